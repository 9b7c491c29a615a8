"""Laws of a positive number, such as the |h|^2 of a link: those with a density, and those that list all values."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

NODES = 400
"""Nodes of the Gauss-Legendre rule by which means are taken: they are right to nine digits."""
TAIL = 1e-15
"""Probability at either end that means leave out."""

Function = Callable[[np.ndarray], np.ndarray]


class Law(Protocol):
    """Law of a positive number x."""

    def quantile(self, p: float) -> float:
        """Find the largest t with P(x < t) <= p."""
        ...

    def below(self, t: float) -> float:
        """Compute P(x < t)."""
        ...

    def mean(self, f: Function, least: float = 0.0) -> float:
        """Compute E[f(x); x >= least]."""
        ...


@dataclass(frozen=True)
class Continuous:
    """Law with a density.

    Attributes:
        frozen: the law, as `scipy.stats` has it.
    """

    frozen: Any

    def quantile(self, p: float) -> float:
        """Find the t with P(x < t) = p."""
        return float(self.frozen.ppf(p))

    def below(self, t: float) -> float:
        """Compute P(x < t)."""
        return float(self.frozen.cdf(t))

    def mean(self, f: Function, least: float = 0.0) -> float:
        """Compute E[f(x); x >= least], integrated over log x, where powers of x are smooth down to 0."""
        low, high = max(least, self.quantile(TAIL)), float(self.frozen.isf(TAIL))
        if low >= high:
            return 0.0
        nodes, weights = np.polynomial.legendre.leggauss(NODES)
        half = math.log(high / low) / 2
        x = low * np.exp(half * (1 + nodes))
        return float((weights * f(x) * self.frozen.pdf(x) * x).sum() * half)


@dataclass(frozen=True)
class Listed:
    """Law of a number that takes each of n values with the same chance.

    Attributes:
        values: ascending, float64 `[n]`.
    """

    values: np.ndarray

    @classmethod
    def of(cls, values: np.ndarray) -> Listed:
        """Make the law of a number that takes each of these values, in any order and shape."""
        return cls(np.sort(values.astype(np.float64), axis=None))

    def quantile(self, p: float) -> float:
        """Find the largest t with P(x < t) <= p."""
        # Rounding must not take a product that is a whole number below it.
        return float(self.values[min(math.floor(p * len(self.values) * (1 + TAIL)), len(self.values) - 1)])

    def below(self, t: float) -> float:
        """Compute P(x < t)."""
        return int(np.searchsorted(self.values, t)) / len(self.values)

    def mean(self, f: Function, least: float = 0.0) -> float:
        """Compute E[f(x); x >= least]."""
        return float(f(self.values[np.searchsorted(self.values, least) :]).sum()) / len(self.values)


@dataclass(frozen=True)
class Scaled:
    """Law of a multiple of another number.

    Attributes:
        law: of that number.
        factor: positive.
    """

    law: Law
    factor: float

    def quantile(self, p: float) -> float:
        """Find the largest t with P(x < t) <= p."""
        return self.law.quantile(p) * self.factor

    def below(self, t: float) -> float:
        """Compute P(x < t)."""
        return self.law.below(t / self.factor)

    def mean(self, f: Function, least: float = 0.0) -> float:
        """Compute E[f(x); x >= least]."""
        return self.law.mean(lambda x: f(x * self.factor), least / self.factor)
