"""Constellation and code rate for an SNR: 5G's table as the standard prints it, and the bound, worked out by hand."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest
from scipy import optimize

from channels.coding.mcs import RATES, SCHEMES, bound_mcs_rate, capacity, choose_mcs

LOG2_E = 1.4426950408889634
Q = {0.15865525393145707: 1.0, 0.022750131948179195: 2.0, 0.01: 2.3263478740408408}
"""P(N(0, 1) > x) -> x."""
TABLE = """
0  2 120   0.2344
1  2 193   0.3770
2  2 308   0.6016
3  2 449   0.8770
4  2 602   1.1758
5  4 378   1.4766
6  4 434   1.6953
7  4 490   1.9141
8  4 553   2.1602
9  4 616   2.4063
10 4 658   2.5703
11 6 466   2.7305
12 6 517   3.0293
13 6 567   3.3223
14 6 616   3.6094
15 6 666   3.9023
16 6 719   4.2129
17 6 772   4.5234
18 6 822   4.8164
19 6 873   5.1152
20 8 682.5 5.3320
21 8 711   5.5547
22 8 754   5.8906
23 8 797   6.2266
24 8 841   6.5703
25 8 885   6.9141
26 8 916.5 7.1602
27 8 948   7.4063
"""
"""3GPP TS 38.214, Table 5.1.3.1-2: MCS index, modulation order, code rate x 1024, spectral efficiency."""
PRINTED = [tuple(map(float, line.split()[1:])) for line in TABLE.strip().splitlines()]


def test_the_rates_are_those_of_the_standard():
    ours = [(math.log2(size), rate) for size, rates in RATES.items() for rate in rates]
    assert ours == [(order, rate) for order, rate, _ in PRINTED]


def test_the_schemes_are_those_of_rate_one_fifth_and_above():
    """All but the two slowest, with the efficiencies that the standard prints, to its four decimals."""
    sendable = [(order, rate, efficiency) for order, rate, efficiency in PRINTED if rate / 1024 >= 0.2]
    assert len(sendable) == len(PRINTED) - 2 == len(SCHEMES)
    for scheme, (order, rate, efficiency) in zip(SCHEMES, sendable, strict=True):
        assert (scheme.modulation, scheme.code_rate) == (2**order, rate / 1024)
        assert scheme.efficiency == pytest.approx(efficiency, abs=5.1e-5)


def test_the_bytes_that_capacity_allows():
    """32 complex uses carry at most 4, 13 and 24 bytes at 0, 9 and 18 dB."""
    assert [round(32 * capacity(snr_db) / 8) for snr_db in (0, 9, 18)] == [4, 13, 24]


@pytest.mark.parametrize("lost", Q)
def test_the_normal_approximation_by_hand(lost):
    """At 0 dB C = 1 and V = 3/4 log2(e)^2, so with 300 uses sqrt(V / n) = log2(e) / 20.

    At 70 dB V is log2(e)^2 but for 1e-14, and C = log2(1 + 10^7).
    """
    assert bound_mcs_rate(0.0, 300, lost) == pytest.approx(1 - Q[lost] * LOG2_E / 20, rel=1e-12)
    assert bound_mcs_rate(70.0, 100, lost) == pytest.approx(math.log2(1 + 1e7) - Q[lost] * LOG2_E / 10, rel=1e-12)


def test_one_block_in_a_hundred_may_be_lost():
    assert bound_mcs_rate(0.0, 300) == pytest.approx(1 - 2.3263478740408408 * LOG2_E / 20, rel=1e-12)


def test_codewords_for_nine_tenths_of_capacity():
    """At 0 dB and one lost in a thousand, Q^-1 = 3.0902: n = (3.0902 / 0.1)^2 V / C^2 = 1,490.8 complex uses.

    That is 2 n real ones, of which each has half of C and half of V.
    """
    needed = (3.090232306167813 / 0.1) ** 2 * 3 / 4 * LOG2_E**2
    assert needed == pytest.approx(1490.8, abs=0.1)
    assert bound_mcs_rate(0.0, 1490, 1e-3) < 0.9 < bound_mcs_rate(0.0, 1492, 1e-3)


@pytest.mark.parametrize("uses", [512, 4096])
def test_a_scheme_is_chosen_from_the_snr_at_which_the_bound_reaches_it_and_2_db(uses):
    """With the bound in another form: C = ln(1 + p) / ln 2, V = (1 - (1 + p)^-2) log2(e)^2."""

    def bound(snr_db: float) -> float:
        p = 10 ** (snr_db / 10)
        return (math.log1p(p) - Q[0.01] * math.sqrt((1 - (1 + p) ** -2) / uses)) * LOG2_E

    for scheme, faster in pairwise(SCHEMES):
        snr_db = 2.0 + optimize.brentq(lambda x, wanted=faster.efficiency: bound(x) - wanted, -20, 60, xtol=1e-12)
        assert choose_mcs(snr_db - 1e-6, uses) == scheme
        assert choose_mcs(snr_db + 1e-6, uses) == faster
    slowest = 2.0 + optimize.brentq(lambda x: bound(x) - SCHEMES[0].efficiency, -20, 60, xtol=1e-12)
    assert choose_mcs(slowest - 1e-6, uses) is None
    assert choose_mcs(slowest + 1e-6, uses) == SCHEMES[0]


def test_another_margin_is_the_same_as_another_snr():
    assert choose_mcs(9.0, 512, margin_db=0.0) == choose_mcs(11.0, 512)
    assert choose_mcs(9.0, 512, margin_db=5.0) == choose_mcs(6.0, 512)


def test_a_longer_codeword_and_a_higher_snr_carry_more():
    assert choose_mcs(-6.0, 4096) is None and choose_mcs(0.0, 32) is None
    for uses in (32, 512, 4096):
        efficiencies = [choose_mcs(snr_db, uses).efficiency for snr_db in (6.0, 9.0, 18.0, 24.0)]
        assert efficiencies == sorted(set(efficiencies))
    assert choose_mcs(9.0, 32).efficiency < choose_mcs(9.0, 4096).efficiency
    assert choose_mcs(60.0, 4096) == SCHEMES[-1]
