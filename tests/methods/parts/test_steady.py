"""Training until losses are steady: made-up losses, client by client."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
import torch
from torch import Tensor

from semcom.engine.store.population import Population
from semcom.methods.parts.steady import is_steady, train_until_steady
from tests.worlds import client, mapped, world


def epochs_of(losses: Sequence[Sequence[float]], most: Sequence[int]) -> tuple[list[int], list[float]]:
    """List the epochs of clients with losses `losses[k]` and their last losses. An epoch adds 1 to their weights."""
    pop = world(sizes=[2] * len(most)).population()

    def epoch(some: Population, number: int) -> tuple[Population, Tensor]:
        return mapped(some, lambda name, t: t + 1), torch.tensor([losses[k][number] for k in some.ids])

    trained, last = train_until_steady(epoch, pop, np.array(most))
    added = [(client(trained, k)["head.0.bias"] - client(pop, k)["head.0.bias"]) for k in range(len(most))]
    assert all(torch.equal(t.round(), t.round()[0].expand_as(t)) for t in added)
    return [round(float(t[0])) for t in added], last.tolist()


SWINGING = [0.0, 1.0] * 50


def test_each_client_has_its_own_end() -> None:
    """Constant losses end after 11 epochs, late ones after the last swing leaves the window, others at the limit."""
    late = [*SWINGING[:8], *[1.0] * 50]  # the last 0 is the seventh loss: ten later, the eleventh
    fading = [2 ** -float(i) for i in range(100)]
    found, last = epochs_of([[5.0] * 100, late, SWINGING, fading, SWINGING], [100, 100, 20, 100, 1])
    assert found[:3] == [11, 17, 20] and found[4] == 1
    ends = [n for n in range(11, 100) if np.std(fading[n - 10 : n]) < 0.1]
    assert found[3] == ends[0]
    assert last == pytest.approx([5.0, 1.0, 1.0, fading[found[3] - 1], 0.0])


def test_never_steady_within_ten_losses() -> None:
    assert epochs_of([[1.0] * 20] * 2, [10, 11])[0] == [10, 11]
    assert not is_steady(np.ones((10, 1)))[0] and is_steady(np.ones((11, 1)))[0]


@pytest.mark.parametrize(("swing", "ended"), [(0.0999, True), (0.1001, False)])
def test_the_standard_deviation_is_that_of_the_last_ten(swing: float, ended: bool) -> None:
    """Losses of plus or minus a swing have it as their standard deviation. Earlier losses are forgotten."""
    losses = np.array([100.0] * 5 + [swing, -swing] * 5)[:, None]
    assert is_steady(losses).tolist() == [ended]
