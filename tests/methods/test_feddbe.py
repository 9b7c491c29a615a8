"""FedDBE: bias, running mean and consensus by hand, and the traffic of each round."""

from __future__ import annotations

import numpy as np
import pytest

from semcom.engine.store.population import Population
from tests.methods.arms import X, Y, assert_toy, rounds, toy_world
from tests.methods.by_hand import P, Toy, mean
from tests.worlds import client, world

KAPPA, MU, LR = 0.8, 0.6, 0.5


def split(pop: Population, k: int) -> tuple[Toy, np.ndarray]:
    """A client's model, and its bias."""
    t = {name: value.numpy() for name, value in client(pop, k).items()}
    return Toy(t["encoder.1.weight"], t["head.1.0.weight"], t["head.1.0.bias"]), t["head.0.bias"]


@pytest.mark.parametrize("first", [1, 2])
def test_three_rounds_by_hand(first: int) -> None:
    """Two full-batch epochs per round. The consensus is that of the first round, and the pull begins in the second."""
    w = toy_world("feddbe", LR, hyper={"kappa": KAPPA, "mu": MU}, train={"local_epochs": 2})
    before, *after = rounds(w, n=3, first=first)
    (shared, _), biases, consensus = split(before.model, 0), [np.zeros(2), np.zeros(2)], np.zeros(2)
    for r, state in enumerate(after, 1):
        trained, means = [], []
        for k in (0, 1):
            local, running = shared, np.zeros(2)
            for _ in range(2):
                running = (1 - MU) * running + MU * local.features(X[k]).mean(0)
                pull = (r > 1) * KAPPA * MU * (running - consensus) / 2 / len(X[k])
                slope = Toy(local.W, local.V, local.b + local.V @ biases[k]).slope(X[k], Y[k], pull + 0 * X[k])
                slope.V = slope.V + np.outer(slope.b, biases[k])
                biases[k] = biases[k] - LR * local.V.T @ slope.b
                local = local.plus(slope, -LR)
            trained.append(local)
            means.append(running)
        shared = mean(trained)
        consensus = P[0] * means[0] + P[1] * means[1] if r == 1 else consensus
        np.testing.assert_allclose(state.consensus, consensus, rtol=0, atol=1e-12)
        for k in (0, 1):
            model, bias = split(state.model, k)
            assert_toy(model, shared)
            np.testing.assert_allclose(bias, biases[k], rtol=0, atol=1e-12)


@pytest.mark.parametrize("bias", [True, False])
def test_what_it_sends(bias: bool) -> None:
    """The model both ways without the bias. d numbers up in round 1, down in all others."""
    w = world("feddbe", hyper={"bias": bias})
    state = rounds(w, n=3)[-1]
    n = 3 * (state.model.numbers("")[0] - 4 * bias)
    assert w.air.totals["up"].floats == 3 * n + 3 * 4 and w.air.totals["down"].floats == 3 * n + 2 * 3 * 4


def test_padding_is_no_feature() -> None:
    """The running mean of a mini-batch is over its images, the same for a single client and in a stack."""
    found = [rounds(world("feddbe", sizes=(7, 5, 3), chunk=k))[-1].consensus for k in (1, 3)]
    np.testing.assert_allclose(found[0], found[1], rtol=0, atol=1e-12)
