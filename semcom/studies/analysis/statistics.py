"""Intervals for differences between paired runs, and Holm's correction. This module knows numbers, and no runs.

S: number of seeds, K: number of clients. Differences are those of one method to another, of the same seed and client.
experiments/evidence.md has the coverage of each interval in simulated studies, measured by
tests/studies/analysis/test_statistics.py.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import special, stats

LEVEL = 0.95
"""Coverage that every interval aims at; a p-value below 1 - LEVEL is taken for a difference."""
RESAMPLES = 9999
"""Resamples of a bootstrap and of a permutation test, where the data are small enough (`_count_resamples`)."""
MOST_DRAWS = 200_000_000
"""Numbers that all resamples together may draw; with more data there are fewer resamples, down to `FEWEST`."""
FEWEST = 999
AT_ONCE = 2**22
"""Numbers that are resampled at once: some 100 MB of memory."""
LARGEST_BCA = 2000
"""Most values for BCa, which leaves out each value in turn; for more the percentiles are used."""
LEAST_CLIENTS = 6
"""Fewest clients of one seed whose permutation test can come below 0.05: 2 / 2^6 = 0.03."""
EQUAL = 1e-12
"""Spread up to which values count as equal, because of rounding."""


@dataclass(frozen=True)
class Interval:
    """A mean with its interval.

    Attributes:
        mean: of the values.
        low: lower end of the 95 % interval; NaN where there is none.
        high: upper end.
        p: p-value, two-sided, of the hypothesis that the mean is zero; NaN where there is none.
    """

    mean: float
    low: float = math.nan
    high: float = math.nan
    p: float = math.nan

    @property
    def excludes_zero(self) -> bool:
        """True if there is an interval, and zero is not in it."""
        return self.low > 0 or self.high < 0


def compute_t_interval(values: Sequence[float] | np.ndarray) -> Interval:
    """Compute the mean of values `[S]`, one per seed, with Student's t interval and the p-value of the t test.

    Exact where the values are drawn from a normal distribution. Of one value, or of values that are all equal, the
    spread is not known: the mean comes without an interval.
    """
    array = np.asarray(values, dtype=float)
    if not _varies(array):
        return Interval(float(array.mean()))
    # The arithmetic of `stats.ttest_1samp`, which takes a hundred times as long: a study has thousands of intervals.
    n, mean = array.size, array.mean()
    error = np.sqrt(np.square(array - mean).mean() * (n / (n - 1)) / n)
    low, high = _find_t_quantiles(n - 1)
    p = 2 * special.stdtr(n - 1, -abs(mean / error))
    return Interval(float(mean), float(low * error + mean), float(high * error + mean), float(p))


def bootstrap_clients(differences: Sequence[float] | np.ndarray) -> Interval:
    """Compute the mean of the differences `[K]` of one seed's clients with SciPy's BCa bootstrap over clients.

    The p-value is that of the permutation test that swaps the two methods at random for each client. Both speak of
    clients like these in this one seed; fewer than `LEAST_CLIENTS` have neither, as their p-value cannot be below 0.05.
    Above 2,000 clients the bootstrap's percentiles take the place of BCa, which leaves out one client after the
    other.
    """
    array = np.asarray(differences, dtype=float)
    if not _varies(array) or array.size < LEAST_CLIENTS:
        return Interval(float(array.mean()))
    n, batch = _count_resamples(array.size), max(1, AT_ONCE // array.size)
    method = "BCa" if array.size <= LARGEST_BCA else "percentile"
    drawn = stats.bootstrap(
        (array,), np.mean, confidence_level=LEVEL, n_resamples=n, batch=batch, method=method, rng=_make_generator()
    ).confidence_interval
    test = stats.permutation_test(
        (array,), np.mean, permutation_type="samples", n_resamples=n, batch=batch, rng=_make_generator()
    )
    return Interval(float(array.mean()), float(drawn.low), float(drawn.high), float(test.pvalue))


def bootstrap_two_levels(differences: np.ndarray) -> Interval:
    """Compute the mean of differences `[S, K]` with the percentiles of a bootstrap over seeds, then clients within.

    Each resample draws S seeds, and K clients of each of them. SciPy's `bootstrap` draws the seeds and takes the
    percentiles; the clients are drawn inside its statistic. With few seeds the interval is too narrow, see
    experiments/evidence.md. There is no p-value.
    """
    seeds, clients = differences.shape
    mean = float(differences.mean())
    if seeds < 2 or not _varies(differences):
        return Interval(mean)
    generator = _make_generator()

    def statistic(chosen: np.ndarray, axis: int = -1) -> np.ndarray:
        within = generator.integers(clients, size=(*chosen.shape, clients))
        return differences[chosen[..., None], within].mean((-2, -1))

    found = stats.bootstrap(
        (np.arange(seeds),),
        statistic,
        vectorized=True,
        confidence_level=LEVEL,
        n_resamples=_count_resamples(differences.size),
        # Without a batch, SciPy holds all resamples at once.
        batch=max(1, AT_ONCE // differences.size),
        method="percentile",
        rng=generator,
    ).confidence_interval
    return Interval(mean, float(found.low), float(found.high))


def correct_by_holm(p_values: Sequence[float]) -> list[float]:
    """Correct p-values for their number, so that the chance of any false claim stays below the level.

    Holm, "A simple sequentially rejective multiple test procedure", Scand. J. Statist. 6, 1979: the i-th smallest of m
    (from 0) times m - i, at most 1, and no smaller than those before it. NaN is no test: it stays, and does not count.
    """
    p = np.asarray(p_values, dtype=float)
    order = np.argsort(p)[: np.isfinite(p).sum()]  # NaN comes last
    adjusted = np.full(len(p), math.nan)
    adjusted[order] = np.minimum(np.maximum.accumulate(p[order] * np.arange(len(order), 0, -1)), 1)
    return [float(value) for value in adjusted]


@functools.cache
def _find_t_quantiles(freedom: int) -> tuple[float, float]:
    """Find the two quantiles of Student's t between which `LEVEL` of it lies."""
    tail = (1 - LEVEL) / 2
    return float(special.stdtrit(freedom, tail)), float(special.stdtrit(freedom, 1 - tail))


def _varies(values: np.ndarray) -> bool:
    return bool(np.ptp(values) > EQUAL)


def _count_resamples(size: int) -> int:
    return int(np.clip(MOST_DRAWS // size, FEWEST, RESAMPLES))


def _make_generator() -> np.random.Generator:
    """Seed the same generator for each interval, so that a study gives the same numbers every time."""
    return np.random.default_rng(0)
