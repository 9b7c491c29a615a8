"""FedRep: both phases worked by hand over two rounds, and its reductions."""

from __future__ import annotations

import pytest
import torch

from tests.methods.arms import X, Y, as_toy, assert_toy, play, rounds, toy_world
from tests.methods.by_hand import mean
from tests.worlds import client, gap, world


def test_two_rounds_by_hand() -> None:
    """Three epochs on the head with the received body, then two on the body under the head that came of it."""
    w = toy_world("fedrep", hyper={"head_epochs": 3}, train={"local_epochs": 2})
    before, *after = rounds(w, n=2)
    models = [as_toy(before.model, k) for k in (0, 1)]
    for state in after:
        trained = []
        for k, model in enumerate(models):
            for _ in range(3):
                model = model.under(model.step(X[k], Y[k], 0.5))
            for _ in range(2):
                model = model.step(X[k], Y[k], 0.5).under(model)
            trained.append(model)
        body = mean(trained, [3 / 5, 2 / 5])
        models = [body.under(m) for m in trained]
        for k in (0, 1):
            assert_toy(as_toy(state.model, k), models[k])


@pytest.mark.parametrize("setting", [{}, {"participation": 2 / 3}, {"optimizer": "sgd", "momentum": 0.9}])
def test_no_head_epochs_are_the_global_part_of_fedbabu(setting: dict[str, object]) -> None:
    train = {"local_epochs": 2, **setting}
    rep, babu = (play(m, n=3, hyper=h, train=train) for m, h in (("fedrep", {"head_epochs": 0}), ("fedbabu", {})))
    assert gap(rep.model.spread(), babu.model.spread()) == 0


def test_head_epochs_leave_the_body_alone() -> None:
    """With a rate of almost nothing only running statistics move, by the images and the noise of the body's own phase:
    how long the head is trained before shifts none of that."""
    setting = {"optimizer": "sgd", "lr": 1e-300}
    few, many = (play("fedrep", n=2, hyper={"head_epochs": n}, train=setting).model for n in (1, 7))
    assert gap(few, many) < 1e-200
    start = rounds(world("fedrep"), n=0)[0].model
    assert not torch.equal(client(few, 0)["encoder.1.running_mean"], client(start, 0)["encoder.1.running_mean"])


def test_phases_are_logged_apart() -> None:
    w = world("fedrep")
    rounds(w)
    assert (
        set(w.session.tally.log) == {"loss", "head/loss"}
        and (w.session.tally.log["loss"] != w.session.tally.log["head/loss"]).all()
    )
