"""Measured block errors of 5G's schemes over AWGN: a table that ships, and the command that measures it.

    python -m semcom.channels.coding.waterfall channels/coding/waterfall.csv

A codeword of `uses` symbols that meets one realisation of the noise arrives from some SNR on. The table has, for each
scheme and for lengths in powers of two, the SNRs from which 50, 90 and 99 % of the codewords arrive. Between them, and
beyond, block errors are straight lines in probits against dB, and between lengths SNRs are so in the logarithm of the
length: the codewords that ship in `ldpc.py` are followed within some 0.1 dB.
"""

from __future__ import annotations

import csv
import math
import sys
from bisect import bisect_left
from functools import lru_cache
from pathlib import Path
from statistics import NormalDist

import torch
from torch import Tensor

from semcom.channels.coding.mcs import SCHEMES, Scheme
from semcom.channels.coding.modem import make_modem, split_into_codewords
from semcom.channels.link import complex_normal

TABLE = Path(__file__).with_suffix(".csv")
LENGTHS = tuple(2**i for i in range(4, 13))
"""Symbols of the codewords that are measured, as far as a scheme has codewords so long."""
LOST = (0.5, 0.1, 0.01)
"""Shares of the codewords that are lost at the SNRs of the table."""
PROBITS = tuple(NormalDist().inv_cdf(share) for share in LOST)
SPAN_DB, SPREAD_DB, STEPS = 8.0, 96.0, 9
"""Least range in which the SNR of a codeword is searched, that times the square root of its length, and the number
of halvings. A quarter of the range lies below Shannon's limit."""
SYMBOLS, FEWEST, MOST = 2**18, 250, 2000
"""Symbols of a measurement, and the number of codewords in any case."""


def has_codewords(scheme: Scheme, uses: int) -> bool:
    """Check whether blocks of `uses` symbols make codewords of a scheme; short blocks of the fastest scheme may not."""
    try:
        return bool(split_into_codewords(math.floor(scheme.efficiency * uses), uses, scheme.modulation))
    except ValueError:
        return False


def find_block_error(scheme: Scheme, uses: int, snr_db: Tensor) -> Tensor:
    """Interpolate the fraction of blocks of `uses` symbols that are lost over AWGN, float64 like `snr_db`.

    A block of several codewords arrives if all of them do. Codewords outside the table's range of lengths count as its
    shortest or longest.
    """
    count, *_ = split_into_codewords(math.floor(scheme.efficiency * uses), uses, scheme.modulation)
    half, tenth, hundredth = _interpolate(scheme, uses // count)
    x = snr_db.double()
    upper = PROBITS[1] + (x - tenth) * (PROBITS[1] - PROBITS[0]) / (tenth - half)
    lower = PROBITS[1] + (x - tenth) * (PROBITS[2] - PROBITS[1]) / (hundredth - tenth)
    lost = torch.special.ndtr(torch.where(x < tenth, upper, lower))
    # 1 - (1 - lost)^count, keeping the digits of small shares.
    return -torch.expm1(count * torch.log1p(-lost.clamp_max(1 - 1e-12)))


def _interpolate(scheme: Scheme, uses: int) -> list[float]:
    """Interpolate the SNRs of a scheme's codewords of a length, for the fractions `LOST`."""
    rows = _read_scheme_snrs()[scheme]
    lengths = sorted(rows)
    after = min(max(bisect_left(lengths, uses), 1), len(lengths) - 1)
    one, two = lengths[after - 1], lengths[after]
    part = min(max(math.log(uses / one) / math.log(two / one), 0.0), 1.0)
    return [(1 - part) * a + part * b for a, b in zip(rows[one], rows[two], strict=True)]


@lru_cache(maxsize=1)
def _read_scheme_snrs() -> dict[Scheme, dict[int, list[float]]]:
    """Read scheme -> length -> SNRs."""
    found: dict[Scheme, dict[int, list[float]]] = {scheme: {} for scheme in SCHEMES}
    with TABLE.open(newline="") as file:
        for modulation, rate, uses, *snrs in list(csv.reader(file))[1:]:
            found[Scheme(int(modulation), float(rate) / 1024)][int(uses)] = [float(db) for db in snrs]
    return found


def measure_waterfall(scheme: Scheme, uses: int, codewords: int, seed: int = 0) -> Tensor:
    """Measure the SNR from which each of some random codewords arrives, in dB, float64 `[codewords]`, ascending."""
    bits = math.floor(scheme.efficiency * uses)
    modem = make_modem(bits, uses, scheme.modulation, torch.device("cpu"))
    generator = torch.Generator().manual_seed(seed)
    sent = torch.randint(2, (codewords, bits), generator=generator)
    symbols, noise = modem.symbols(sent), complex_normal((codewords, uses), generator, torch.float32)
    step = max(SPAN_DB, SPREAD_DB / math.sqrt(uses)) / 2  # short codewords meet more varied noise
    low = torch.full((codewords, 1), 10 * math.log10(2**scheme.efficiency - 1) - step / 2, dtype=torch.float64)
    for _ in range(STEPS):
        no = torch.pow(10.0, -(low + step) / 10).float()
        got, _ = modem.receive(symbols + no.sqrt() * noise, None, no)
        low += torch.where((got != sent.bool()).any(1, keepdim=True), step, 0.0)
        step /= 2
    return (low + step).flatten().sort().values


def measure_waterfall_table(path: Path) -> None:
    """Measure all schemes and lengths, and write the table."""
    lines = ["modulation,rate_1024,uses,half_db,tenth_db,hundredth_db"]
    for scheme in SCHEMES:
        for uses in LENGTHS:
            if split_into_codewords(math.floor(scheme.efficiency * uses), uses, scheme.modulation)[0] == 1:
                found = measure_waterfall(scheme, uses, min(max(SYMBOLS // uses, FEWEST), MOST))
                snrs = found.quantile(1 - torch.tensor(LOST, dtype=torch.float64))
                lines.append(
                    f"{scheme.modulation},{scheme.code_rate * 1024:g},{uses}," + ",".join(f"{s:.2f}" for s in snrs)
                )
                print(lines[-1], file=sys.stderr, flush=True)  # noqa: T201
    path.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    measure_waterfall_table(Path(sys.argv[1]))
