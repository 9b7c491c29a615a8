"""Constellations and code rates: 5G's table, and Shannon's limit."""

from __future__ import annotations

import math
from typing import NamedTuple

from semcom.channels.coding.ldpc import LOWEST_RATE

RATES = {
    4: (120, 193, 308, 449, 602),
    16: (378, 434, 490, 553, 616, 658),
    64: (466, 517, 567, 616, 666, 719, 772, 822, 873),
    256: (682.5, 711, 754, 797, 841, 885, 916.5, 948),
}
"""Code rates times 1,024 that 5G offers for a constellation size (3GPP TS 38.214, Table 5.1.3.1-2)."""


class Scheme(NamedTuple):
    """Constellation size and code rate."""

    modulation: int
    code_rate: float

    @property
    def efficiency(self) -> float:
        """Bits per channel use."""
        return self.code_rate * math.log2(self.modulation)


TABLE = tuple(Scheme(size, rate / 1024) for size, rates in RATES.items() for rate in rates)
SCHEMES = tuple(scheme for scheme in TABLE if scheme.code_rate >= LOWEST_RATE)
"""Schemes that Sionna's encoder has, the slowest first."""


def capacity(snr_db: float) -> float:
    """Compute Shannon's limit of a complex AWGN channel, in bits per use."""
    return math.log2(1 + 10 ** (snr_db / 10))
