"""Accuracy and fairness: closed forms."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from semcom.runs.result.accuracy import (
    LAST,
    average_worst_tenth,
    compute_client_accuracies,
    compute_constant_accuracies,
    compute_headlines,
    jain_index,
    summarize_accuracies,
)

TABLE = np.array([[[3, 1, 0], [0, 4, 0], [0, 0, 0]], [[0, 0, 0], [2, 2, 0], [0, 0, 0]]])
"""Two clients, three classes; nobody tests the third."""


def test_per_client() -> None:
    assert compute_client_accuracies(TABLE).tolist() == [7 / 8, 0.5]
    assert compute_client_accuracies(np.array([[[0, 5], [0, 5]]])).tolist() == [0.5], "rows are true classes"


def test_answers_that_never_change() -> None:
    train, test = np.array([[3, 1, 0], [0, 2, 2]]), np.array([[1, 1, 2], [1, 4, 0]])
    assert compute_constant_accuracies(train, test) == {"own": (1 / 4 + 4 / 5) / 2, "common": (1 / 4 + 1 / 5) / 2}


@pytest.mark.parametrize(("n", "count"), [(1, 1), (4, 1), (10, 1), (14, 1), (20, 2), (100, 10)])
def test_worst_tenth(n: int, count: int) -> None:
    shuffled = np.random.default_rng(0).permutation(n) / n
    assert average_worst_tenth(shuffled) == pytest.approx(np.arange(count).mean() / n)
    assert average_worst_tenth(shuffled, 1.0) == pytest.approx(shuffled.mean())


def test_jain() -> None:
    assert jain_index(np.array([0.3] * 7)) == pytest.approx(1.0)
    assert jain_index(np.array([0.0, 0.0, 0.8, 0.0])) == pytest.approx(0.25)
    assert jain_index(np.array([0.2, 0.6])) == pytest.approx(0.8**2 / (2 * 0.4))
    assert jain_index(np.zeros(3)) == 1.0


@settings(max_examples=50, deadline=None, derandomize=True)
@given(st.lists(st.floats(0.01, 1.0), min_size=1, max_size=30), st.floats(0.1, 10))
def test_jain_in_general(values: list[float], scale: float) -> None:
    a = np.array(values)
    assert 1 / len(a) - 1e-12 <= jain_index(a) <= 1 + 1e-12
    assert jain_index(a) == pytest.approx(jain_index(scale * a)) == pytest.approx(1 / (1 + (a.std() / a.mean()) ** 2))


def test_spread() -> None:
    got = summarize_accuracies(np.array([0.2, 0.4, 0.9]))
    assert got == pytest.approx(
        {"accuracy": 0.5, "accuracy_std": (0.26 / 3) ** 0.5, "worst10": 0.2, "jain": 2.25 / (3 * 1.01)}
    )


def evaluation(*clients: float, **at: float) -> dict[str, object]:
    return {"clients": list(clients), **({"at": at} if at else {})}


def headline(rounds: Sequence[int], evaluations: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    lines = [{"round": n, "views": {"global": each}} for n, each in zip(rounds, evaluations, strict=True)]
    return compute_headlines(lines)["global"]


def test_headline_is_the_mean_over_the_last_evaluations() -> None:
    assert LAST == 10
    runs = [evaluation(1.0, 1.0, low=1.0)] * 2 + [evaluation(i / 10, 0.5, low=i / 20) for i in range(10)]
    got = headline(list(range(1, 13)), runs)
    assert got["clients"] == pytest.approx([0.45, 0.5]) and got["accuracy"] == pytest.approx(0.475)
    assert got["accuracy_std"] == pytest.approx(0.025) and got["worst10"] == pytest.approx(0.45)
    assert got["at"] == pytest.approx({"low": 0.225})
    assert got["best"] == 1.0 and got["best_round"] == 1 and got["last"] == pytest.approx(0.7)
    assert got["last_at"] == pytest.approx({"low": 0.45}), "of the last evaluation alone"


def test_headline_after_an_early_stop_is_of_all_evaluations_from_the_best_on() -> None:
    """Also where these are more than the last ten."""
    lines = [{"round": n, "views": {"global": evaluation(n / 100)}} for n in range(1, 41)]
    assert compute_headlines(lines, since=20)["global"]["accuracy"] == pytest.approx(0.3)
    assert compute_headlines(lines)["global"]["accuracy"] == pytest.approx(0.355)


def test_headline_averages_what_else_the_last_evaluations_have() -> None:
    """Those of a version that did not have a number yet are left out."""
    lines = [{"clients": [0.5], "validation": 0.1}]
    lines += [{"clients": [0.5], "among_own": i / 10, "among_own_at": {"9": i / 20}} for i in range(9)]
    got = headline(list(range(1, 11)), lines)
    assert (got["among_own"], got["validation"]) == pytest.approx((0.4, 0.1))
    assert got["among_own_at"] == pytest.approx({"9": 0.2})


def test_headline_of_a_short_run() -> None:
    got = headline([10, 20, 30], [evaluation(0.1), evaluation(0.6), evaluation(0.2)])
    assert got["accuracy"] == pytest.approx(0.3) and got["best_round"] == 20 and got["last"] == 0.2
    assert "at" not in got and "last_at" not in got
