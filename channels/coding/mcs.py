"""Constellations and code rates: 5G's table, and the choice for an SNR from the finite-length bound and a margin."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import NamedTuple

from channels.coding.ldpc import LOWEST_RATE

RATES = {
    4: (120, 193, 308, 449, 602),
    16: (378, 434, 490, 553, 616, 658),
    64: (466, 517, 567, 616, 666, 719, 772, 822, 873),
    256: (682.5, 711, 754, 797, 841, 885, 916.5, 948),
}
"""Code rates times 1,024 that 5G offers for a constellation size (3GPP TS 38.214, Table 5.1.3.1-2)."""
MARGIN_DB = 2.0
"""Gap of real codes to `bound_mcs_rate`, dB: from 1 dB (QPSK) to 3 dB (256-QAM) with the codes of `ldpc.py`."""
LOST = 0.01
"""Share of the blocks that may be lost."""


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
    """Return Shannon's limit of a complex AWGN channel, in bits per use."""
    return math.log2(1 + 10 ** (snr_db / 10))


def bound_mcs_rate(snr_db: float, uses: int, lost: float = LOST) -> float:
    """Return the most bits per use at which codewords of `uses` symbols can be lost no more often than `lost`.

    Y. Polyanskiy, H. V. Poor and S. Verdu, "Channel coding rate in the finite blocklength regime", IEEE Trans. Inf.
    Theory 56(5), 2010: C - sqrt(V / n) Q^-1(lost), with the dispersion V of their Eq. 293 for a complex channel.
    """
    from scipy.special import ndtri  # takes long to import, and few runs choose a scheme

    p = 10 ** (snr_db / 10)
    dispersion = p * (p + 2) / (p + 1) ** 2 * math.log2(math.e) ** 2
    return capacity(snr_db) + math.sqrt(dispersion / uses) * float(ndtri(lost))


@lru_cache(maxsize=1024)
def choose_mcs(snr_db: float, uses: int, margin_db: float = MARGIN_DB) -> Scheme | None:
    """Return the fastest scheme for codewords of `uses` symbols over AWGN; None where the slowest would be lost too."""
    limit = bound_mcs_rate(snr_db - margin_db, uses)
    return max((s for s in SCHEMES if s.efficiency <= limit), key=lambda s: s.efficiency, default=None)
