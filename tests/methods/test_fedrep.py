"""FedRep: both phases worked by hand over two rounds."""

from __future__ import annotations

import torch

from tests.methods.arms import X, Y, assert_toys, play, rounds, toy_world, toys
from tests.methods.by_hand import mean
from tests.worlds import client, gap, world


def test_two_rounds_by_hand() -> None:
    """Three epochs on the head with the received body, then two on the body under the head that came of it."""
    w = toy_world("fedrep", hyper={"head_epochs": 3}, train={"local_epochs": 2})
    before, *after = rounds(w, n=2)
    models = toys(before.model)
    for state in after:
        trained = []
        for k, model in enumerate(models):
            for _ in range(3):
                model = model.under(model.step(X[k], Y[k], 0.5))
            for _ in range(2):
                model = model.step(X[k], Y[k], 0.5).under(model)
            trained.append(model)
        body = mean(trained)
        models = [body.under(m) for m in trained]
        assert_toys(state.model, models)


def test_head_epochs_leave_the_body_alone() -> None:
    """At a rate of almost zero only running statistics move, by images and noise of the body's own phase. The head's
    phase does not shift them, however long it is."""
    setting = {"optimizer": "sgd", "lr": 1e-300}
    few, many = (play("fedrep", n=2, hyper={"head_epochs": n}, train=setting).model for n in (1, 7))
    assert gap(few, many) < 1e-200
    start = rounds(world("fedrep"), n=0)[0].model
    assert not torch.equal(client(few, 0)["encoder.1.running_mean"], client(start, 0)["encoder.1.running_mean"])


def test_phases_are_logged_apart() -> None:
    w = world("fedrep")
    rounds(w)
    log = w.session.tally.log
    assert set(log) == {"loss", "head/loss"} and (log["loss"] != log["head/loss"]).all()
