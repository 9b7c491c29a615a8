"""APFL: w, v and alpha worked by hand over three rounds, and without alpha."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import numpy as np
import pytest
import torch

from semcom.methods.apfl import APFL
from tests.methods.arms import X, Y, as_toy, assert_toy, assert_toys, ended, play, rounds, toy_world
from tests.methods.by_hand import Toy, mean
from tests.worlds import client, world

ALPHA, LR, ETA = 0.3, 0.5, 0.2
OPTIMIZERS = {"sgd": torch.optim.SGD, "adam": torch.optim.Adam}


def second(state: Any, k: int) -> Toy:
    """A client's v."""
    t = {name: value.numpy() for name, value in client(state.model, k).items()}
    return Toy(t["own.encoder.1.weight"], t["own.head.0.weight"], t["own.head.0.bias"])


def mix(v: Toy, w: Toy, alpha: float) -> Toy:
    return mean([v, w], [alpha, 1 - alpha])


def dot(one: Toy, other: Toy) -> float:
    return float(sum((a * b).sum() for a, b in zip(leaves(one), leaves(other), strict=True)))


def leaves(toy: Toy) -> tuple[np.ndarray, ...]:
    return toy.W, toy.V, toy.b


def optimizer(kind: str, toy: Toy) -> torch.optim.Optimizer:
    """Torch's optimiser, which moves a model's arrays in place."""
    return OPTIMIZERS[kind]([torch.from_numpy(leaf) for leaf in leaves(toy)], LR)


def descend(optimizer: torch.optim.Optimizer, slope: Toy) -> None:
    for leaf, grad in zip(optimizer.param_groups[0]["params"], leaves(slope), strict=True):
        leaf.grad = torch.from_numpy(grad)
    optimizer.step()


@pytest.mark.parametrize("eta", [ETA, 0.0])
@pytest.mark.parametrize("kind", OPTIMIZERS)
def test_three_rounds_by_hand(kind: str, eta: float) -> None:
    """alpha takes one step of Eq. 10 per round, whatever the optimiser of w and v. In round 1 v is w."""
    train = {"local_epochs": 2, "optimizer": kind}
    world = toy_world("apfl", LR, hyper={"alpha": ALPHA, "eta_alpha": eta}, train=train)
    method = APFL(world.config.hyper)
    before, *after = rounds(world, method, n=3)
    shared, own, alpha = as_toy(before.model, 0), [second(before, k) for k in (0, 1)], [ALPHA, ALPHA]
    assert_toy(own[0], shared)
    for state in after:
        trained = []
        for k in (0, 1):
            w, v = deepcopy(shared), own[k]
            descents = [optimizer(kind, model) for model in (w, v)]
            for epoch in range(2):
                slope, way, mine = mix(v, w, alpha[k]).slope(X[k], Y[k]), v.plus(w, -1), alpha[k]
                if epoch == 0:
                    alpha[k] = float(np.clip(alpha[k] - eta * dot(slope, way), 0, 1))
                descend(descents[1], Toy(*(mine * leaf for leaf in leaves(slope))))
                descend(descents[0], w.slope(X[k], Y[k]))
            trained.append(w)
        shared = mean(trained)
        personal = method.views(state, world)["personal"].population
        assert_toys(state.model, shared)
        assert_toys(personal, [mix(own[k], shared, alpha[k]) for k in (0, 1)])
        for k in (0, 1):
            assert_toy(second(state, k), own[k])
        np.testing.assert_allclose(state.model.named()["alpha"], alpha, rtol=0, atol=1e-12)
    assert (eta > 0) == (alpha[0] != alpha[1])


def test_alpha_zero_is_fedavg() -> None:
    """But for BatchNorm's running statistics, which are those of the client's own passes."""
    views = ended(world("apfl", hyper={"alpha": 0.0, "eta_alpha": 0.0}), n=3)[1]
    personal, common = (views[name].population.named() for name in ("personal", "global"))
    average = play("fedavg", n=3, sizes=(7, 5, 3)).model
    for name in average.parameters():
        assert torch.equal(personal[name], common[name])
        assert torch.equal(personal[name], average.named()[name])


def test_alpha_moves_by_as_much_as_a_client_gains() -> None:
    """At the defaults: a step of a new Adam would be as long as its rate for all clients."""
    w = world("apfl", sizes=(5, 5, 5), train={"optimizer": "adam", "lr": 1e-3})
    first, second = (state.model.named()["alpha"] for state in rounds(w, n=2)[1:])
    moves = (second - first).abs().tolist()
    assert len(set(first.tolist())) == 1 and min(moves) > 0 and len({f"{move:.3g}" for move in moves}) == len(moves)


def test_alpha_stays_in_its_range_and_is_logged() -> None:
    w = world("apfl", hyper={"eta_alpha": 1e3}, train={"local_epochs": 5})
    alpha = rounds(w, n=3)[-1].model.named()["alpha"]
    assert set(alpha.tolist()) <= {0.0, 1.0}
    assert torch.equal(w.session.tally.log["alpha"], alpha)
