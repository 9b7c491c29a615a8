"""SCAFFOLD: worked by hand over two rounds, its reductions, its mean control, its traffic."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.methods.arms import X, Y, as_toy, assert_toy, play, rounds, toy_world
from tests.methods.by_hand import mean
from tests.worlds import gap, world

ETA_L, ETA_G = 0.4, 0.7
P = [3 / 5, 2 / 5]
PLAIN_SGD: dict[str, Any] = {"train": {"optimizer": "sgd", "lr": ETA_L}}


def test_two_rounds_by_hand() -> None:
    """Two full-batch steps along grad CE + c - c_k; the first round has no controls yet."""
    w = toy_world("scaffold", hyper={"eta_l": ETA_L, "eta_g": ETA_G}, train={"local_epochs": 2})
    before, *after = rounds(w, n=2)
    shared, c, own = as_toy(before.model, 0), as_toy(before.mean, 0), [as_toy(before.own, k) for k in (0, 1)]
    assert not any(part.any() for model in (c, *own) for part in (model.W, model.V, model.b))
    for state in after:
        trained, changes = [], []
        for k in (0, 1):
            local = shared
            for _ in range(2):
                local = local.step(X[k], Y[k], ETA_L).plus(c, -ETA_L).plus(own[k], ETA_L)
            trained.append(local)
            changes.append(c.plus(c, -2).plus(shared.plus(local, -1), 1 / (2 * ETA_L)))
        own = [own[k].plus(changes[k], 1) for k in (0, 1)]
        c = c.plus(mean(changes, P), 1)
        shared = shared.plus(mean(trained, P).plus(shared, -1), ETA_G)
        for k in (0, 1):
            assert_toy(as_toy(state.model, k), shared)
            assert_toy(as_toy(state.own, k), own[k])
            assert_toy(as_toy(state.mean, k), c)


def test_round_one_is_fedavg() -> None:
    """By SGD at eta_l; from round 2 on the controls differ."""
    hyper, names = {"eta_l": ETA_L}, ("scaffold", "fedavg")
    for n, equal in ((1, True), (2, False)):
        own, plain = (play(m, n, **({"hyper": hyper} if m == "scaffold" else PLAIN_SGD)).model for m in names)
        assert (gap(own, plain) == 0) == equal


def test_one_client_is_local() -> None:
    """Its control is the mean of all, so that the correction vanishes."""
    one = rounds(world("scaffold", sizes=(7,), hyper={"eta_l": ETA_L}), n=3)[-1].model
    assert gap(one.spread(), rounds(world("local", sizes=(7,), **PLAIN_SGD), n=3)[-1].model) < 1e-12


def test_c_is_the_mean_of_the_controls() -> None:
    """By the clients' numbers of images, also of those that are absent."""
    w = world("scaffold", sizes=(7, 5, 3, 6), hyper={"eta_l": ETA_L}, train={"participation": 0.5})
    state = rounds(w, n=5)[-1]
    for name, t in state.own.named().items():
        assert t.abs().max() > 1e-3
        weighted = np.average(t.numpy(), axis=0, weights=(7, 5, 3, 6))
        np.testing.assert_allclose(state.mean.named()[name][0], weighted, rtol=0, atol=1e-14)


@pytest.mark.parametrize(("milestones", "factor"), [((), 1.0), ((2,), 0.5)])
def test_the_rate_follows_the_schedule(milestones: tuple[int, ...], factor: float) -> None:
    """Of the control too: after a round of one step it is the gradient at the start, whatever the rate."""
    train = {"lr_milestones": milestones, "lr_decay": 0.5} if milestones else {}
    w = toy_world("scaffold", hyper={"eta_l": ETA_L}, train=train)
    _, first, second = rounds(w, n=2)
    shared, c = as_toy(first.model, 0), as_toy(first.mean, 0)
    own = [as_toy(first.own, k) for k in (0, 1)]
    steps = [
        shared.step(X[k], Y[k], factor * ETA_L).plus(c, -factor * ETA_L).plus(own[k], factor * ETA_L) for k in (0, 1)
    ]
    assert_toy(as_toy(second.model, 0), mean(steps, P))
    for k in (0, 1):
        assert_toy(as_toy(second.own, k), shared.slope(X[k], Y[k]))
