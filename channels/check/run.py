"""All checks, and their findings as a table."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

import pandas as pd

from channels.check import digital, errors, fading, noise, ofdm
from channels.check.finding import Finding
from channels.check.lab import Lab

Check = Callable[[Lab], Iterator[Finding]]

CHECKS: Mapping[str, Check] = {
    "noise": noise.noise,
    "power": noise.power,
    "fading": fading.fading,
    "coherence": fading.coherence,
    "received-snr": fading.snr,
    "antennas": fading.antennas,
    "equalisers": errors.equalisers,
    "bit-errors": errors.bit_errors,
    "ofdm-transparency": ofdm.transparency,
    "ofdm-leaks": ofdm.leaks,
    "ofdm-profiles": ofdm.profiles,
    "ofdm-doppler": ofdm.doppler,
    "ofdm-delay": ofdm.delay,
    "ofdm-estimates": ofdm.estimates,
    "digital": digital.digital,
    "constellations": digital.constellations,
    "codes": digital.codes,
}
"""Checks by name. Each uses draws of its own, so one alone finds the same as among the others."""


def findings(lab: Lab, checks: Mapping[str, Check] | None = None) -> Iterator[Finding]:
    """Yield the findings of the checks (None: of all), one check after the other."""
    for check in (CHECKS if checks is None else checks).values():
        yield from check(lab)


def table(found: Sequence[Finding]) -> str:
    """Return findings as text; "units" are the independent ones behind a standard error, and a wrong one is marked."""
    columns = ["theory", "measured", "standard error", "units", "deviation", ""]
    cells = pd.DataFrame(map(_cells, found), index=[f.quantity for f in found], columns=columns)
    text = cells.rename_axis(columns="quantity").to_string()
    return "\n".join(line.rstrip() for line in text.splitlines())


def _cells(f: Finding) -> tuple[str, ...]:
    """Return the cells of a finding; an exact quantity has a bound for rounding in place of a standard error."""
    units, mark = "rounding" if f.units is None else f"{f.units:,}", "" if f.agrees else "<- wrong"
    return f"{f.theory:.5g}", f"{f.measured:.5g}", f"{f.error:.2g}", units, f"{f.deviation:+.2f}", mark
