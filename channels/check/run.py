"""All checks, and their findings as a table."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

import pandas as pd

from channels.check import digital, errors, fading, noise, ofdm
from channels.check.finding import Finding
from channels.check.lab import Lab

Check = Callable[[Lab], Iterator[Finding]]

CHECKS: Mapping[str, Check] = {
    "noise": noise.check_noise,
    "power": noise.check_symbol_power,
    "fading": fading.check_fading,
    "coherence": fading.check_fading_coherence,
    "received-snr": fading.check_snr_over_fading,
    "antennas": fading.check_fading_antennas,
    "equalisers": errors.check_equaliser_errors,
    "bit-errors": errors.check_bit_errors,
    "ofdm-transparency": ofdm.check_ofdm_transparency,
    "ofdm-leaks": ofdm.check_ofdm_leaks,
    "ofdm-profiles": ofdm.check_ofdm_profiles,
    "ofdm-doppler": ofdm.check_ofdm_doppler,
    "ofdm-delay": ofdm.check_ofdm_delay,
    "ofdm-estimates": ofdm.check_ofdm_estimates,
    "digital": digital.check_digital_link,
    "constellations": digital.check_digital_constellations,
    "codes": digital.check_digital_codes,
}
"""Checks by name. Each uses draws of its own, so one alone finds the same as among the others."""


def run_checks(lab: Lab, checks: Mapping[str, Check] | None = None) -> Iterator[Finding]:
    """Yield the findings of the checks (None: of all), one check after the other."""
    for check in (CHECKS if checks is None else checks).values():
        yield from check(lab)


def format_findings(found: Sequence[Finding]) -> str:
    """Return findings as text; "units" are the independent ones behind a standard error, and a wrong one is marked."""
    columns = ["theory", "measured", "standard error", "units", "deviation", ""]
    cells = pd.DataFrame(map(_cells, found), index=[f.quantity for f in found], columns=columns)
    text = cells.rename_axis(columns="quantity").to_string()
    return "\n".join(line.rstrip() for line in text.splitlines())


def _cells(f: Finding) -> tuple[str, ...]:
    """Return the cells of a finding; an exact quantity has a bound for rounding in place of a standard error."""
    units, mark = "rounding" if f.units is None else f"{f.units:,}", "" if f.agrees else "<- wrong"
    return f"{f.theory:.5g}", f"{f.measured:.5g}", f"{f.error:.2g}", units, f"{f.deviation:+.2f}", mark
