"""Mean ranks of methods over several settings, and which of them differ: Demsar, JMLR 2006. It only knows numbers.

N: settings, the blocks of the tests; k: methods. Ranks of two methods depend on the others that are ranked with them
(Benavoli, Corani, Mangili, JMLR 2016); `compare_to_control` does not.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats

from semcom.studies.analysis.statistics import LEVEL, compute_t_interval, correct_by_holm


@dataclass(frozen=True)
class Friedman:
    """Friedman's test of whether methods differ at all, without a correction for ties.

    Attributes:
        chi2: Friedman's statistic.
        f: that of Iman and Davenport, which is less conservative; infinite where all settings have one order.
        p: p-value of `f`; of one order in all settings the exact probability by chance.
    """

    chi2: float
    f: float
    p: float


def rank_in_settings(values: np.ndarray) -> np.ndarray:
    """Rank the methods in each setting, the largest value first: `[N, k] -> [N, k]`, from 1; ties share their ranks.

    Example:
        >>> import numpy as np
        >>> rank_in_settings(np.array([[0.5, 0.7, 0.5]])).tolist()
        [[2.5, 1.0, 2.5]]
    """
    return stats.rankdata(-values, axis=1)


def carry_out_friedman_test(mean_ranks: np.ndarray, settings: int) -> Friedman:
    """Carry out Friedman's test on the mean ranks of two methods or more, `[k]`, over two settings or more.

    Example:
        >>> import numpy as np
        >>> found = carry_out_friedman_test(np.array([3.143, 2.000, 2.893, 1.964]), 14)
        >>> round(found.chi2, 2), round(found.f, 2)
        (9.28, 3.69)
    """
    n, k = settings, len(mean_ranks)
    chi2 = 12 * n / (k * (k + 1)) * (float((mean_ranks**2).sum()) - k * (k + 1) ** 2 / 4)
    left = n * (k - 1) - chi2
    if left <= 1e-9:
        return Friedman(chi2, math.inf, float(math.factorial(k)) ** (1 - n))
    f = (n - 1) * chi2 / left
    return Friedman(chi2, f, float(stats.f.sf(f, k - 1, (k - 1) * (n - 1))))


def compute_critical_difference(methods: int, settings: int) -> float:
    """Compute the difference of mean ranks from which on two methods differ by Nemenyi's test at 5 %.

    Example:
        >>> round(compute_critical_difference(4, 14), 2)
        1.25
    """
    q = float(stats.studentized_range.ppf(LEVEL, methods, np.inf)) / math.sqrt(2)
    return q * math.sqrt(methods * (methods + 1) / (6 * settings))


def find_cliques(mean_ranks: Sequence[float], critical: float) -> list[tuple[int, int]]:
    """Find the largest groups of neighbours in the order of mean ranks whose ends do not differ.

    Args:
        mean_ranks: ascending.
        critical: difference from which on two methods differ.

    Returns:
        First and last place of each group, also of a single method that differs from both neighbours.
    """
    found: list[tuple[int, int]] = []
    for first, best in enumerate(mean_ranks):
        last = max(place for place, rank in enumerate(mean_ranks) if rank - best < critical)
        if not found or last > found[-1][1]:
            found.append((first, last))
    return found


def compute_rank_intervals(ranks: np.ndarray) -> list[tuple[float, float, float]]:
    """Compute mean, low and high end of Student's 95 % interval of each method's rank over settings, of `[N, k]`.

    Intervals end at 1 and k, and are NaN for a method that has one rank everywhere.
    """
    each, last = map(compute_t_interval, ranks.T), float(ranks.shape[1])
    return [(found.mean, np.maximum(found.low, 1.0), np.minimum(found.high, last)) for found in each]


def compare_to_control(values: Mapping[str, np.ndarray], control: str) -> dict[str, float]:
    """Compare methods with one of them by Wilcoxon's signed-rank test over settings.

    Args:
        values: method -> its values in the settings, `[N]`.
        control: one of the methods.

    Returns:
        Other method -> p-value, two-sided, after Holm's correction; NaN for a method that is equal everywhere.
    """
    others = [name for name in values if name != control]
    gaps = [values[name] - values[control] for name in others]
    p = [float(stats.wilcoxon(gap).pvalue) if np.any(gap) else math.nan for gap in gaps]
    return dict(zip(others, correct_by_holm(p), strict=True))
