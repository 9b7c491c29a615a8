"""The toy model worked out in NumPy: z = W x, f = sqrt(d) z / |z| (power normalisation), logits = V f + b.

Gradients are derived by hand and share no code with the package:

    dL/dlogits = (softmax - onehot) / n,  dL/dV = sum g f',  dL/db = sum g,  dL/df = V' g
    df/dz = sqrt(d)/|z| (I - z z'/|z|^2),  dL/dW = sum (df/dz)' dL/df x'
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


@dataclass
class Toy:
    """Weights of one client: `W` `[d, 2]`, `V` `[C, d]`, `b` `[C]`."""

    W: np.ndarray
    V: np.ndarray
    b: np.ndarray

    def features(self, x: np.ndarray) -> np.ndarray:
        """`[n, 2] -> [n, d]`, mean square 1."""
        z = x @ self.W.T
        return z * np.sqrt(z.shape[1]) / np.linalg.norm(z, axis=1, keepdims=True)

    def probabilities(self, x: np.ndarray) -> np.ndarray:
        """Softmax of the logits, `[n, C]`."""
        logits = self.features(x) @ self.V.T + self.b
        e = np.exp(logits - logits.max(1, keepdims=True))
        return e / e.sum(1, keepdims=True)

    def slope(self, x: np.ndarray, y: np.ndarray, pull: np.ndarray | None = None) -> Toy:
        """Compute the gradient of the mean cross-entropy of `x` `[n, 2]`, `y` `[n]`.

        `pull` `[n, d]` is the gradient of the other loss terms with respect to each feature, already divided by n.
        """
        n, f, z = len(x), self.features(x), x @ self.W.T
        g = (self.probabilities(x) - np.eye(len(self.b))[y]) / n
        df = g @ self.V + (0 if pull is None else pull)
        length = np.linalg.norm(z, axis=1, keepdims=True)
        dz = np.sqrt(f.shape[1]) / length * (df - z * (z * df).sum(1, keepdims=True) / length**2)
        return Toy(dz.T @ x, g.T @ f, g.sum(0))

    def plus(self, other: Toy, factor: float) -> Toy:
        """self + factor * other."""
        return Toy(self.W + factor * other.W, self.V + factor * other.V, self.b + factor * other.b)

    def step(self, x: np.ndarray, y: np.ndarray, lr: float, pull: np.ndarray | None = None) -> Toy:
        """One SGD step on it."""
        return self.plus(self.slope(x, y, pull), -lr)

    def steps(self, x: np.ndarray, y: np.ndarray, lr: float, n: int) -> Toy:
        """n SGD steps on it."""
        return self if n == 0 else self.step(x, y, lr).steps(x, y, lr, n - 1)

    def tied_step(self, x: np.ndarray, y: np.ndarray, lr: float, anchor: Toy, weight: float) -> Toy:
        """One SGD step on the mean cross-entropy + weight/2 ||w - anchor||^2, the norm over all weights."""
        return self.step(x, y, lr).plus(self, -lr * weight).plus(anchor, lr * weight)

    def under(self, other: Toy) -> Toy:
        """The own body under the head of another."""
        return Toy(self.W, other.V, other.b)


P = (3 / 5, 2 / 5)
"""Weights of the two clients of the toy world, who have three and two images."""


def mean(models: list[Toy], weights: Sequence[float] = P) -> Toy:
    """Weighted average."""
    parts = ([w * getattr(m, p) for m, w in zip(models, weights, strict=True)] for p in ("W", "V", "b"))
    return Toy(*(np.sum(part, axis=0) for part in parts))
