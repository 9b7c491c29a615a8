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
        theory: value of the closed form.
        measured: measured value.
        error: standard error of `measured`, or a bound on the rounding of an exact quantity.
        units: number of independent units behind `error` (None: the quantity is exact up to rounding).
    """

    quantity: str
    theory: float
    measured: float
    error: float
    units: int | None

    @property
    def deviation(self) -> float:
        """Distance of `measured` from `theory` in units of `error`, with its sign, or NaN if either is NaN."""
        apart = self.measured - self.theory
        if self.error == 0.0:
            return 0.0 if apart == 0.0 else math.copysign(math.inf, apart)
        return apart / self.error

    @property
    def agrees(self) -> bool:
        """True if the deviation is within `LIMIT`, which a nan is not."""
        return abs(self.deviation) <= LIMIT


def find_mean(quantity: str, samples: Tensor, theory: float) -> Finding:
    """Compare the mean of independent samples with theory; their own spread gives the standard error."""
    values = samples.double().flatten()
    units = len(values)
    return Finding(quantity, theory, float(values.mean()), float(values.std()) / math.sqrt(units), units)


def find_probability(quantity: str, hits: Tensor, theory: float) -> Finding:
    """Compare the fraction of independent trials (bool) that hit with theory; the error is that of the binomial law."""
    units = hits.numel()
    error = math.sqrt(theory * (1 - theory) / units)
    return Finding(quantity, theory, float(hits.double().mean()), error, units)


def find_second_moment(quantity: str, samples: Tensor, theory: float) -> Finding:
    """Estimate E[u^2] / E[u]^2 of independent samples u.

    The standard error is that of the delta method: to first order the ratio r is the mean of `u^2 / m^2 - 2 r u / m`,
    m = E u.
    """
    u = samples.double().flatten()
    u = u / u.mean()
    square = u.square()
    ratio = float(square.mean())
    return Finding(quantity, theory, ratio, float((square - 2 * ratio * u).std()) / math.sqrt(len(u)), len(u))


def find_difference(quantity: str, first: Finding, second: Finding) -> Finding:
    """Compare two measurements of the same quantity with each other."""
    error, units = math.hypot(first.error, second.error), min(first.units or 0, second.units or 0)
    return Finding(quantity, 0.0, first.measured - second.measured, error, units or None)


def find_largest_error(quantity: str, apart: Tensor, rounding: float) -> Finding:
    """Find the largest magnitude among real or complex numbers that should all be zero.

    Args:
        quantity: its name.
        apart: the differences, not empty.
        rounding: bound on the rounding error of each number, or 0.0 for exact numbers.
    """
    return Finding(quantity, 0.0, float(apart.abs().max()), rounding, None)


def epsilon(dtype: torch.dtype) -> float:
    """Look up the distance from 1 to the next larger number of a real type, or of the parts of a complex type."""
    return torch.finfo(dtype).eps


def format_findings(found: Sequence[Finding]) -> str:
    """Format findings as a table. "units" counts the samples behind a standard error; wrong findings are marked."""
    columns = ["theory", "measured", "standard error", "units", "deviation", ""]
    cells = pd.DataFrame(map(_format_cells, found), index=[f.quantity for f in found], columns=columns)
    text = cells.rename_axis(columns="quantity").to_string()
    return "\n".join(line.rstrip() for line in text.splitlines())


def _format_cells(f: Finding) -> tuple[str, ...]:
    """Format a finding as the cells of a row. An exact quantity has a rounding bound in place of a standard error."""
    units, mark = "rounding" if f.units is None else f"{f.units:,}", "" if f.agrees else "<- wrong"
    return f"{f.theory:.5g}", f"{f.measured:.5g}", f"{f.error:.2g}", units, f"{f.deviation:+.2f}", mark
