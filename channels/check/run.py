"""All checks, and their findings as a table."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from channels.check import errors, fading, noise, ofdm
from channels.check.finding import Finding
from channels.check.lab import Lab

Check = Callable[[Lab], Iterator[Finding]]

CHECKS: Mapping[str, Check] = {
    "noise": noise.noise,
    "power": noise.power,
    "fading": fading.fading,
    "coherence": fading.coherence,
    "received-snr": fading.snr,
    "equalisers": errors.equalisers,
    "bit-errors": errors.bit_errors,
    "ofdm-transparency": ofdm.transparency,
    "ofdm-leaks": ofdm.leaks,
    "ofdm-profiles": ofdm.profiles,
    "ofdm-estimates": ofdm.estimates,
}
"""Name -> what it measures. Each uses draws of its own, so one alone finds what it finds among the others."""


def findings(lab: Lab, checks: Mapping[str, Check] | None = None) -> Iterator[Finding]:
    """What the checks find (None: all of them), one after the other."""
    for check in (CHECKS if checks is None else checks).values():
        yield from check(lab)


def table(found: Sequence[Finding]) -> str:
    """Findings as aligned text; "units" are the independent ones behind a standard error; what is wrong is marked."""
    head = ("quantity", "theory", "measured", "standard error", "units", "deviation")
    rows = [head, *(_row(f) for f in found)]
    widths = [max(len(row[i]) for row in rows) for i in range(len(head))]
    marks = ["", *("" if f.agrees else "  <- wrong" for f in found)]
    lines = [
        "  ".join([row[0].ljust(widths[0]), *(cell.rjust(w) for cell, w in zip(row[1:], widths[1:], strict=True))])
        for row in rows
    ]
    return "\n".join(line + mark for line, mark in zip(lines, marks, strict=True))


def _row(f: Finding) -> tuple[str, ...]:
    """One finding; what is exact has a bound for rounding in place of a standard error."""
    units = "rounding" if f.units is None else f"{f.units:,}"
    return f.quantity, f"{f.theory:.5g}", f"{f.measured:.5g}", f"{f.error:.2g}", units, f"{f.deviation:+.2f}"
