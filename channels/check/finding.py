"""Findings of a check: measured numbers beside their closed forms, their distance in standard errors, and a table."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd
import torch
from torch import Tensor

LIMIT = 5.0
"""Standard errors beyond which a finding is wrong: by chance in one of 1.7 million."""


@dataclass(frozen=True)
class Finding:
    """Measured number beside its closed form: one line of the table.

    Attributes:
        quantity: its name, with its parameters.
        theory: closed form.
        measured: the same, measured.
        error: standard error of `measured`; of an exact quantity, a bound for rounding.
        units: independent units that `error` is from; None: exact but for rounding.
    """

    quantity: str
    theory: float
    measured: float
    error: float
    units: int | None

    @property
    def deviation(self) -> float:
        """Distance of `measured` from `theory` in units of `error`, with its sign; nan if either is no number."""
        apart = self.measured - self.theory
        if self.error == 0.0:
            return 0.0 if apart == 0.0 else math.copysign(math.inf, apart)
        return apart / self.error

    @property
    def agrees(self) -> bool:
        """True if the deviation is within `LIMIT`, which a nan is not."""
        return abs(self.deviation) <= LIMIT


def find_mean(quantity: str, samples: Tensor, theory: float) -> Finding:
    """Return the mean of independent samples, with the standard error from their own spread."""
    values = samples.double().flatten()
    units = len(values)
    return Finding(quantity, theory, float(values.mean()), float(values.std()) / math.sqrt(units), units)


def find_probability(quantity: str, hits: Tensor, theory: float) -> Finding:
    """Return the share of independent trials (bool) that hit, with the standard error of the binomial law."""
    units = hits.numel()
    error = math.sqrt(theory * (1 - theory) / units)
    return Finding(quantity, theory, float(hits.double().mean()), error, units)


def find_second_moment(quantity: str, samples: Tensor, theory: float) -> Finding:
    """Return E[u^2] / E[u]^2 of independent samples u.

    The standard error is that of the delta method: to first order the ratio r is the mean of `u^2 / m^2 - 2 r u / m`,
    m = E u.
    """
    u = samples.double().flatten()
    u = u / u.mean()
    square = u.square()
    ratio = float(square.mean())
    return Finding(quantity, theory, ratio, float((square - 2 * ratio * u).std()) / math.sqrt(len(u)), len(u))


def find_difference(quantity: str, first: Finding, second: Finding) -> Finding:
    """Return two measurements of the same thing against each other."""
    error, units = math.hypot(first.error, second.error), min(first.units or 0, second.units or 0)
    return Finding(quantity, 0.0, first.measured - second.measured, error, units or None)


def find_largest_error(quantity: str, apart: Tensor, rounding: float) -> Finding:
    """Return the largest magnitude of numbers that should all be zero, real or complex.

    Args:
        quantity: its name.
        apart: the differences, not empty.
        rounding: bound for the rounding of one of them; 0.0: none.
    """
    return Finding(quantity, 0.0, float(apart.abs().max()), rounding, None)


def epsilon(dtype: torch.dtype) -> float:
    """Return the distance from 1 to the next larger number of a real type, or of the parts of a complex one."""
    return torch.finfo(dtype).eps


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
