"""MOON: worked by hand over two rounds, and models that are alike."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tests.methods.arms import X, Y, as_toy, assert_toy, assert_toys, play, rounds, toy_world
from tests.methods.by_hand import Toy, mean
from tests.worlds import gap, world

MU, TAU, LR = 3.0, 0.7, 0.5


def contrast(f: np.ndarray, others: list[np.ndarray]) -> np.ndarray:
    """Gradient of the mean of -log softmax(cosines / tau)[0] with the features f, `[n, d]`.

    d cos(f, h) / df = h / (|f| |h|) - cos(f, h) f / |f|^2
    """
    length = np.linalg.norm(f, axis=1, keepdims=True)
    cosines, ways = [], []
    for h in others:
        norm = np.linalg.norm(h, axis=1, keepdims=True)
        cosines.append((f * h).sum(1, keepdims=True) / (length * norm))
        ways.append(h / (length * norm) - cosines[-1] * f / length**2)
    weight = np.exp(np.stack(cosines) / TAU)
    share = weight / weight.sum(0)
    return ((share[0] - 1) * ways[0] + share[1] * ways[1]) / (TAU * len(f))


def trained(received: Toy, previous: Toy, k: int) -> Toy:
    """Two full-batch epochs."""
    model, others = received, [received.features(X[k]), previous.features(X[k])]
    for _ in range(2):
        model = model.step(X[k], Y[k], LR, MU * contrast(model.features(X[k]), others))
    return model


def test_two_rounds_by_hand() -> None:
    w = toy_world("moon", lr=LR, hyper={"mu": MU, "tau": TAU}, train={"local_epochs": 2})
    start, first, second = rounds(w, n=2)
    received = as_toy(start.model, 0)
    previous = [received, received]
    for state in (first, second):
        previous = [trained(received, previous[k], k) for k in (0, 1)]
        received = mean(previous)
        assert_toy(as_toy(state.model, 0), received)
        assert_toys(state.previous, previous)


def test_equal_models_do_not_contrast() -> None:
    """In round 1 the previous model is the global one: over an ideal link both cosines agree."""
    setting: dict[str, Any] = {"channel": {"kind": "ideal"}, "train": {"local_epochs": 2}, "sizes": (3, 2, 1)}
    w = world("moon", **setting)
    assert gap(rounds(w)[-1].model, play("fedavg", 1, **setting).model) < 1e-10
    np.testing.assert_allclose(w.session.tally.log["contrast"], math.log(2), rtol=1e-12)


def test_each_model_is_heard_with_draws_of_its_own() -> None:
    w = world("moon")
    rounds(w)
    assert (w.session.tally.log["contrast"] - math.log(2)).abs().min() > 1e-3
