"""The division of the features' power, by hand and in general."""

from __future__ import annotations

import numpy as np
import pytest

from semcom.runs.result.result import Features
from semcom_papers.experiments.measures.features import measure_power


def features(received: np.ndarray, labels: np.ndarray, clients: np.ndarray) -> Features:
    return Features(received, received, labels, clients, np.arange(len(labels)))


def test_power_by_hand() -> None:
    """Client 0: mean (2, 0), class means (1, 0), (3, 0): 4 common, 1 between, 1 within. Client 1 has one class."""
    received = np.array([[1.0, 1.0], [1.0, -1.0], [3.0, 1.0], [3.0, -1.0], [0.0, 2.0], [0.0, 2.0]])
    found = measure_power(features(received, np.array([0, 0, 4, 4, 4, 4]), np.array([0, 0, 0, 0, 7, 7])))
    assert found == {"power_common": pytest.approx((4 / 6 + 1) / 2), "power_between": pytest.approx((1 / 6 + 0) / 2)}


def test_the_parts_of_the_power_add_up() -> None:
    """What is left is the mean square within the classes; classes of unequal sizes, and no part depends on the unit."""
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 3, 500)
    received = rng.normal(size=(3, 8))[labels] + rng.normal(size=8) + 0.5 * rng.normal(size=(500, 8))
    found = measure_power(features(received, labels, np.zeros(500)))
    within = np.mean([np.square(received[labels == c] - received[labels == c].mean(0)).sum(1).sum() for c in range(3)])
    within *= 3 / 500 / np.square(received).sum(1).mean()
    assert sum(found.values()) + within == pytest.approx(1)
    assert measure_power(features(7 * received, labels, np.zeros(500))) == pytest.approx(found)
    shuffled = measure_power(features(received, rng.permutation(labels), np.zeros(500)))
    assert shuffled["power_common"] == pytest.approx(found["power_common"])
    assert shuffled["power_between"] < 0.02 < 0.2 < found["power_between"]
