"""FedProx: worked by hand over two rounds of two epochs, and its anchor."""

from __future__ import annotations

import numpy as np

from tests.methods.arms import X, Y, as_toy, assert_toys, rounds, toy_world
from tests.methods.by_hand import Toy, mean

MU, LR = 0.7, 0.5


def test_two_rounds_by_hand() -> None:
    """Two full-batch epochs: the first one starts at the anchor, the second one is pulled back to it."""
    w = toy_world("fedprox", LR, hyper={"mu": MU}, train={"local_epochs": 2})
    before, *after = rounds(w, n=2)
    start = as_toy(before.model, 0)
    for state in after:
        once = [start.step(X[k], Y[k], LR) for k in (0, 1)]
        distance = [squared(once[k].plus(start, -1)) for k in (0, 1)]
        start = mean([once[k].tied_step(X[k], Y[k], LR, start, MU) for k in (0, 1)])
        assert_toys(state.model, start)
    np.testing.assert_allclose(w.session.tally.log["distance"], distance, rtol=1e-12)
    np.testing.assert_allclose(
        w.session.tally.log["loss"], w.session.tally.log["task"] + MU / 2 * w.session.tally.log["distance"], rtol=1e-12
    )


def squared(model: Toy) -> float:
    """Sum of the squares of all weights."""
    return float(sum((part**2).sum() for part in (model.W, model.V, model.b)))


def test_the_anchor_is_the_model_as_received() -> None:
    """The first step has no pull yet, over a noisy downlink too."""
    w = toy_world("fedprox", channel={"kind": "awgn"}, air={"parameters": "analog"})
    rounds(w)
    assert (w.session.tally.log["distance"] == 0).all()
