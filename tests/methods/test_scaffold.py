"""SCAFFOLD: worked by hand over two rounds, its mean control, its rate."""

from __future__ import annotations

import numpy as np
import pytest

from tests.methods.arms import X, Y, as_toy, assert_toy, assert_toys, compare_noise, rounds, toy_world, toys
from tests.methods.by_hand import mean
from tests.worlds import world

ETA_L, ETA_G = 0.4, 0.7
SGD = {"optimizer": "sgd", "lr": ETA_L}


def test_two_rounds_by_hand() -> None:
    """Two full-batch steps along grad CE + c - c_k. The first round has no controls yet."""
    w = toy_world("scaffold", hyper={"eta_g": ETA_G}, train={**SGD, "local_epochs": 2})
    before, *after = rounds(w, n=2)
    shared, c, own = as_toy(before.model, 0), as_toy(before.mean, 0), toys(before.own)
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
        c = c.plus(mean(changes), 1)
        shared = shared.plus(mean(trained).plus(shared, -1), ETA_G)
        assert_toys(state.model, shared)
        assert_toys(state.own, own)
        assert_toys(state.mean, c)


def test_c_is_the_mean_of_the_controls() -> None:
    """By the clients' numbers of images, also of those that are absent."""
    w = world("scaffold", sizes=(7, 5, 3, 6), train={**SGD, "participation": 0.5})
    state = rounds(w, n=5)[-1]
    for name, t in state.own.named().items():
        assert t.abs().max() > 1e-3
        weighted = np.average(t.numpy(), axis=0, weights=(7, 5, 3, 6))
        np.testing.assert_allclose(state.mean.named()[name][0], weighted, rtol=0, atol=1e-14)


def test_c_keeps_the_noise_of_all_changes() -> None:
    """At 10 dB its power is a tenth of theirs, over the square of the number of clients."""
    states = rounds(world("scaffold", sizes=(4,) * 4, train=SGD, air={"parameters": "analog"}), n=10)
    assert compare_noise(states, lambda state: state.mean) == pytest.approx(0.1 / 4**2, rel=0.4)


def test_controls_are_gradients_whatever_the_optimiser() -> None:
    """After a round of one step the control is the initial gradient, though Adam has moved otherwise."""
    w = toy_world("scaffold", train={"optimizer": "adam", "lr": 0.1})
    before, after = rounds(w)
    shared = as_toy(before.model, 0)
    assert_toys(after.own, [shared.slope(X[k], Y[k]) for k in (0, 1)])
    assert not np.allclose(as_toy(after.model, 0).W, shared.step(X[0], Y[0], 0.1).W)


@pytest.mark.parametrize(("milestones", "factor"), [((), 1.0), ((2,), 0.5)])
def test_the_rate_follows_the_schedule(milestones: tuple[int, ...], factor: float) -> None:
    """After a round of one step the control is the initial gradient, whatever the rate."""
    train = {"lr_milestones": milestones, "lr_decay": 0.5} if milestones else {}
    w = toy_world("scaffold", train={**SGD, **train})
    _, first, second = rounds(w, n=2)
    shared, c = as_toy(first.model, 0), as_toy(first.mean, 0)
    own = toys(first.own)
    steps = [
        shared.step(X[k], Y[k], factor * ETA_L).plus(c, -factor * ETA_L).plus(own[k], factor * ETA_L) for k in (0, 1)
    ]
    assert_toy(as_toy(second.model, 0), mean(steps))
    assert_toys(second.own, [shared.slope(X[k], Y[k]) for k in (0, 1)])
