"""Constellations and code rates: 5G's table as the standard prints it."""

from __future__ import annotations

import math

import pytest

from semcom.channels.coding.mcs import RATES, SCHEMES, capacity

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
