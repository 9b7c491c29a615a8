"""APFL: w, v and alpha worked by hand over two rounds, and without alpha."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from semcom.methods.apfl import APFL
from tests.methods.arms import X, Y, as_toy, assert_toy, assert_toys, ended, play, rounds, toy_world
from tests.methods.by_hand import Toy, mean
from tests.worlds import client, world

ALPHA, LR = 0.3, 0.5


def second(state: Any, k: int) -> Toy:
    """A client's v."""
    t = {name: value.numpy() for name, value in client(state.model, k).items()}
    return Toy(t["own.encoder.1.weight"], t["own.head.0.weight"], t["own.head.0.bias"])


def mix(v: Toy, w: Toy, alpha: float) -> Toy:
    return mean([v, w], [alpha, 1 - alpha])


def dot(one: Toy, other: Toy) -> float:
    return float(sum((getattr(one, part) * getattr(other, part)).sum() for part in ("W", "V", "b")))


@pytest.mark.parametrize("adaptive", [True, False])
def test_two_rounds_by_hand(adaptive: bool) -> None:
    world = toy_world("apfl", LR, hyper={"alpha": ALPHA, "adaptive": adaptive}, train={"local_epochs": 2})
    method = APFL(world.config.hyper)
    before, *after = rounds(world, method, n=2)
    shared, own, alpha = as_toy(before.model, 0), [second(before, k) for k in (0, 1)], [ALPHA, ALPHA]
    assert_toy(own[0], shared)
    for state in after:
        trained = []
        for k in (0, 1):
            w = shared
            for epoch in range(2):
                slope, way = mix(own[k], w, alpha[k]).slope(X[k], Y[k]), own[k].plus(w, -1)
                w, own[k] = w.step(X[k], Y[k], LR), own[k].plus(slope, -LR * alpha[k])
                alpha[k] = float(np.clip(alpha[k] - LR * dot(slope, way) * (adaptive and epoch == 0), 0, 1))
            trained.append(w)
        shared = mean(trained)
        personal = method.views(state, world)["personal"].population
        assert_toys(state.model, shared)
        assert_toys(personal, [mix(own[k], shared, alpha[k]) for k in (0, 1)])
        for k in (0, 1):
            assert_toy(second(state, k), own[k])
        np.testing.assert_allclose(state.model.named()["alpha"], alpha, rtol=1e-12)
    assert adaptive == (alpha != [ALPHA, ALPHA])


def test_alpha_zero_is_fedavg() -> None:
    """But for BatchNorm's running statistics, which are those of the client's own passes."""
    views = ended(world("apfl", hyper={"alpha": 0.0, "adaptive": False}), n=3)[1]
    personal, common = (views[name].population.named() for name in ("personal", "global"))
    average = play("fedavg", n=3, sizes=(7, 5, 3)).model
    for name in average.parameters():
        assert torch.equal(personal[name], common[name])
        assert torch.equal(personal[name], average.named()[name])


def test_alpha_stays_in_its_range_and_is_logged() -> None:
    w = world("apfl", train={"optimizer": "sgd", "lr": 1.0, "local_epochs": 5})
    alpha = rounds(w, n=3)[-1].model.named()["alpha"]
    assert bool(((alpha >= 0) & (alpha <= 1)).all()) and len(set(alpha.tolist())) > 1
    assert torch.equal(w.session.tally.log["alpha"], alpha)
