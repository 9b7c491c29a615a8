"""FedCRL: FedCoSR's rounds in the setting of its Table I."""

from __future__ import annotations

from semcom.methods.fedcosr import FedCoSR
from semcom.methods.fedcrl import FedCRL
from tests.methods.arms import play
from tests.worlds import gap, request


def test_it_is_fedcosr() -> None:
    mine, theirs = play("fedcrl", n=3), play("fedcosr", n=3)
    assert gap(mine.model, theirs.model) == gap(mine.trained, theirs.trained) == 0
    assert FedCRL.paper != FedCoSR.paper


def test_table_one() -> None:
    """Adam; r = 1, joint ratio 1, alpha 1, tau_CL 0.1, gamma 0.8."""
    open_ = {"lr": None, "batch_size": None, "optimizer": None}
    config = request("fedcrl", train={**open_, "preset": "paper"})
    train, hyper = config.train, config.hyper
    assert (train.lr, train.batch_size, train.optimizer) == (0.003, 16, "adam")
    assert (train.local_epochs, train.participation) == (1, 1.0)
    assert (hyper.alpha, hyper.tau_cl, hyper.gamma) == (1.0, 0.1, 0.8)
    assert hyper.local_aggregation and hyper.separate and not hyper.clip


def test_reductions_hold_for_it_too() -> None:
    local = play("fedcrl", n=3, hyper={"alpha": 0.0, "gamma": 0.0})
    assert gap(local.trained, play("local", n=3).model) == 0
