"""Intervals on simulated studies whose truth is known, and Holm's correction against published values.

How often an interval covers the truth is compared with the table in experiments/evidence.md, within four standard
errors of the simulation: a number there that is wrong by more fails here.
"""

from __future__ import annotations

import math

import numpy as np
import pytest

from semcom.studies.analysis import statistics
from semcom.studies.analysis.statistics import (
    bootstrap_clients,
    bootstrap_two_levels,
    compute_t_interval,
    correct_by_holm,
)
from tests.pages import read_page, read_table

CLIENTS = 20
TRUTH = 0.02


def documented(head: str) -> dict[int, list[float]]:
    """First column of a table of the page -> its percentages, as shares."""
    rows = [list(row.values()) for row in read_table(read_page("experiments/evidence.md"), head)]
    return {int(row[0]): [float(cell.removesuffix(" %")) / 100 for cell in row[1:]] for row in rows}


SEEDS, ONE = documented("seeds"), documented("clients")


def close(share: float, expected: float, n: int) -> bool:
    """Whether a share of n simulations is what is expected, within four standard errors."""
    return abs(share - expected) <= 4 * math.sqrt(expected * (1 - expected) / n)


def simulated(rng: np.random.Generator, seeds: int, between: float) -> np.ndarray:
    """Differences `[S, K]`: the seeds' own, of standard deviation `between`, and the clients', of 1."""
    return TRUTH + between * rng.normal(size=(seeds, 1)) + rng.normal(size=(seeds, CLIENTS))


@pytest.mark.parametrize("seeds", SEEDS)
def test_t_covers_what_it_says(seeds: int) -> None:
    n, rng = 500, np.random.default_rng(seeds)
    found = [compute_t_interval(simulated(rng, seeds, 1.0).mean(1)) for _ in range(n)]
    assert close(sum(f.low <= TRUTH <= f.high for f in found) / n, SEEDS[seeds][0], n)
    assert SEEDS[seeds][0] == 0.95, "exact for normal seeds"
    assert all(f.excludes_zero == (f.p < 0.05) for f in found)


@pytest.mark.parametrize("seeds", list(SEEDS)[::2])
def test_the_two_level_bootstrap_covers_what_the_page_says(seeds: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(statistics, "RESAMPLES", 599)
    n, rng = 250, np.random.default_rng(seeds)
    for between, expected in zip((0.0, 1 / math.sqrt(CLIENTS), 1.0), SEEDS[seeds][1:], strict=True):
        found = [bootstrap_two_levels(simulated(rng, seeds, between)) for _ in range(n)]
        assert close(sum(f.low <= TRUTH <= f.high for f in found) / n, expected, n), between


@pytest.mark.parametrize("clients", ONE)
def test_the_bootstrap_over_clients_covers_what_the_page_says(clients: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The truth of that seed's clients; and the permutation test is right for clients that differ symmetrically."""
    monkeypatch.setattr(statistics, "RESAMPLES", 599)
    n, rng = 250, np.random.default_rng(clients)
    covered, rejected = ONE[clients]
    found = [bootstrap_clients(rng.normal(size=clients)) for _ in range(n)]
    assert close(sum(f.low <= 0 <= f.high for f in found) / n, covered, n)
    assert sum(f.p < 0.05 for f in found) / n <= rejected + 4 * math.sqrt(0.05 * 0.95 / n)
    assert rejected <= 0.055


def test_one_seed_does_not_cover_the_truth_over_seeds(monkeypatch: pytest.MonkeyPatch) -> None:
    """With seeds that differ as much as clients do, an interval over 20 clients misses it more often than not."""
    monkeypatch.setattr(statistics, "RESAMPLES", 599)
    rng = np.random.default_rng(0)
    found = [bootstrap_clients(simulated(rng, 1, 1.0)[0]) for _ in range(200)]
    assert sum(f.low <= TRUTH <= f.high for f in found) / 200 < 0.5


def test_the_bootstraps_by_hand() -> None:
    """Two seeds of one client: each resample is 0, .5 or 1, with chances of 1/4, 1/2 and 1/4."""
    found = bootstrap_two_levels(np.array([[0.0], [1.0]]))
    assert (found.mean, found.low, found.high) == (0.5, 0.0, 1.0) and math.isnan(found.p)
    # Seeds without clients that differ are drawn whole, as by a bootstrap over seeds: 5 of 5 are the largest in 1/3125.
    whole = bootstrap_two_levels(np.repeat(np.arange(5.0)[:, None], 3, axis=1))
    assert 0.4 <= whole.low <= 1 and 3 <= whole.high <= 3.6
    # BCa of a normal sample of 1,000 is near the normal interval.
    values = np.random.default_rng(0).normal(size=1000)
    half = 1.96 * values.std() / math.sqrt(1000)
    found = bootstrap_clients(values)
    assert (found.low, found.high) == pytest.approx((values.mean() - half, values.mean() + half), abs=0.1 * half)
    # Of six equal signs, two of the 64 changes of sign are as extreme; of five, two of 32, too many for 5 %.
    assert bootstrap_clients([1.0, 2.0, 3.0, 4.0, 5.0, 6.0]).p == pytest.approx(2 / 64)
    few = bootstrap_clients([1.0, 2.0, 3.0, 4.0, 5.0])
    assert few.mean == 3 and math.isnan(few.low) and math.isnan(few.p)


def test_a_study_gives_the_same_numbers_again() -> None:
    differences = np.random.default_rng(0).normal(size=(3, 10))
    assert (bootstrap_two_levels(differences).low, bootstrap_two_levels(differences).high) == (
        bootstrap_two_levels(differences).low,
        bootstrap_two_levels(differences).high,
    )
    assert bootstrap_clients(differences[0]) == bootstrap_clients(differences[0])


def test_without_spread_there_is_no_interval() -> None:
    for found in (
        compute_t_interval([0.5]),
        compute_t_interval([0.1, 0.1, 0.1 + 1e-16]),
        bootstrap_clients([0.2]),
        bootstrap_two_levels(np.ones((1, 5))),
    ):
        assert math.isnan(found.low) and math.isnan(found.high) and math.isnan(found.p) and not found.excludes_zero


def test_very_many_clients_take_neither_memory_nor_minutes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(statistics, "MOST_DRAWS", 10**6)
    monkeypatch.setattr(statistics, "FEWEST", 199)
    values = np.random.default_rng(0).normal(size=(2, 20_000))
    half = 1.96 / math.sqrt(20_000)
    found = bootstrap_clients(values[0])
    assert found.high - found.low == pytest.approx(2 * half, rel=0.3)
    assert bootstrap_two_levels(values).low < values.mean() < bootstrap_two_levels(values).high


# Holm ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("p", "adjusted"),
    [
        ([0.01, 0.04, 0.03, 0.005], [0.03, 0.06, 0.06, 0.02]),  # R: p.adjust(c(.01, .04, .03, .005), "holm")
        ([0.01, 0.02, 0.03, 0.04, 0.05], [0.05, 0.08, 0.09, 0.09, 0.09]),
        ([0.5, 0.9], [1.0, 1.0]),
        ([0.03], [0.03]),
        ([], []),
    ],
)
def test_holm_gives_the_known_values(p: list[float], adjusted: list[float]) -> None:
    assert correct_by_holm(p) == pytest.approx(adjusted)


def test_what_is_no_test_does_not_count() -> None:
    found = correct_by_holm([math.nan, 0.02, math.nan, 0.03])
    assert [found[1], found[3]] == [0.04, 0.04] and math.isnan(found[0]) and math.isnan(found[2])


def test_holm_keeps_the_chance_of_any_false_claim() -> None:
    """Ten true hypotheses: 1 - (1 - .05 / 10)^10 = 4.9 % of the studies claim anything, and without it 40 %."""
    n, rng = 4000, np.random.default_rng(0)
    p = rng.uniform(size=(n, 10))
    false = np.mean([min(correct_by_holm(row)) < 0.05 for row in p])
    assert close(false, 1 - 0.995**10, n) and (p.min(1) < 0.05).mean() > 0.35


def test_holm_finds_more_than_bonferroni() -> None:
    p = [0.001, 0.012, 0.02, 0.2]
    assert [value < 0.05 for value in correct_by_holm(p)] == [True, True, True, False]
    assert [4 * value < 0.05 for value in p] == [True, True, False, False]
