"""Ranks, Friedman's and Nemenyi's test against Demsar's printed example and SciPy, groups and a control."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from scipy import stats

from semcom.studies.analysis import ranks as of

DEMSAR = np.array([3.143, 2.000, 2.893, 1.964])
"""Mean ranks of four variants of C4.5 on 14 datasets that Demsar 2006 prints (section 3.2.2)."""


def test_example_of_demsar_comes_out() -> None:
    found = of.carry_out_friedman_test(DEMSAR, 14)
    assert (round(found.chi2, 2), round(found.f, 2)) == (9.28, 3.69)
    assert found.p == pytest.approx(stats.f.sf(found.f, 3, 39)) and 0.01 < found.p < 0.05
    critical = of.compute_critical_difference(4, 14)
    assert round(critical, 2) == 1.25
    assert of.find_cliques(sorted(DEMSAR), critical) == [(0, 3)]  # 1.18 apart: the test is not powerful enough


@pytest.mark.parametrize(("k", "q"), [(2, 1.960), (5, 2.728), (10, 3.164)])  # Demsar 2006, Table 5(a)
def test_critical_values_are_those_of_the_printed_table(k: int, q: float) -> None:
    assert of.compute_critical_difference(k, 20) == pytest.approx(q * np.sqrt(k * (k + 1) / 120), rel=5e-4)


def test_friedman_without_ties_is_scipys() -> None:
    values = np.random.default_rng(0).normal(size=(9, 5))
    ranks = of.rank_in_settings(values)
    assert ranks.tolist() == [[sorted(row, reverse=True).index(value) + 1 for value in row] for row in values]
    found = of.carry_out_friedman_test(ranks.mean(0), 9)
    assert found.chi2 == pytest.approx(stats.friedmanchisquare(*values.T).statistic)


@pytest.mark.parametrize(("k", "settings"), [(2, 2), (3, 2), (3, 4)])
def test_one_order_everywhere_is_as_likely_by_chance_as_counted(k: int, settings: int) -> None:
    found = of.carry_out_friedman_test(np.arange(1.0, k + 1), settings)
    orders = list(itertools.product(itertools.permutations(range(k)), repeat=settings))
    assert found.f == np.inf and found.p == pytest.approx(np.mean([len({*each}) == 1 for each in orders]))


def test_intervals_of_ranks_end_where_ranks_do() -> None:
    found = of.compute_rank_intervals(np.array([[1.0, 2.5, 2.5], [1.0, 2.0, 3.0], [3.0, 2.0, 1.0], [1.0, 3.0, 2.0]]))
    assert [low >= 1 and high <= 3 for _, low, high in found] == [True] * 3 and found[0][:2] == (1.5, 1.0)
    same = of.compute_rank_intervals(np.array([[1.0, 2.0], [1.0, 2.0]]))
    assert [mean for mean, _, _ in same] == [1.0, 2.0] and np.isnan([ends for _, *ends in same]).all()


def test_groups_are_the_largest_whose_ends_do_not_differ() -> None:
    assert of.find_cliques([1.0, 1.5, 2.4, 5.0], 1.0) == [(0, 1), (1, 2), (3, 3)]
    assert of.find_cliques([1.0, 2.0, 3.0], 5.0) == [(0, 2)]
    assert of.find_cliques([1.0, 2.0], 1.0) == [(0, 0), (1, 1)]  # exactly the difference from which on they differ


def test_control_is_compared_by_signed_ranks_with_holm() -> None:
    base = np.arange(12.0)
    values = {"control": base, "better": base + 1 + base / 100, "mixed": base + np.tile([1.0, -1.0], 6), "same": base}
    found = of.compare_to_control(values, "control")
    assert found["better"] == pytest.approx(2 * 2 / 2**12)  # all signs alike, the smaller of two tests
    assert found["mixed"] == pytest.approx(1) and np.isnan(found["same"])
