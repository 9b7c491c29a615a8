"""FedCRL: FedCoSR's rounds in the setting of its Table I."""

from __future__ import annotations

from semcom.methods.fedcosr import FedCoSR
from semcom.methods.fedcrl import FedCRL
from tests.worlds import request


def test_table_one() -> None:
    """The paper's own Table 1: Adam, r = 1, joint ratio 1, alpha 1, tau_CL 0.1, gamma 0.8."""
    open_ = {"lr": None, "batch_size": None, "optimizer": None}
    config = request("fedcrl", train={**open_, "preset": "paper"})
    train, hyper = config.train, config.hyper
    assert (train.lr, train.batch_size, train.optimizer) == (0.003, 16, "adam")
    assert (train.local_epochs, train.participation) == (1, 1.0)
    assert (hyper.alpha, hyper.tau_cl, hyper.gamma) == (1.0, 0.1, 0.8)
    assert hyper.local_aggregation and hyper.separate and not hyper.clip and FedCRL.paper != FedCoSR.paper
