"""Compute the bounds of the convergence theorems of the FedCL letter and of FedCoSR from measured numbers.

Both bound the loss at the start of a client's training by that at the start of the round before, and divide the round
into three parts: the local steps, the server's change of the model ("mixing"), and new centroids ("targets").

A value per round and client is an array `[T, K]`. Losses and their changes are in nat.

Sources: Wang et al., IEEE Commun. Lett. 2024, Theorem 1 (Eq. 18); Huang et al., arXiv:2404.17916v3, Theorems 1 and 2
(Eqs. 17 and 21) and Corollary 1 (Eq. 22).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

Values = np.ndarray | float
PARTS = ("local", "mixing", "targets")
"""The parts of a round, in their order; "total" is their sum."""


def bound_local_steps(rate: Values, smoothness: Values, squares: Values, steps: Values, variance: Values) -> Values:
    """Compute the bound of both theorems on the change of the loss by SGD's steps.

    -(eta - L1 eta^2 / 2) sum ||grad||^2 + S L1 eta^2 rho^2 / 2.

    Args:
        rate: eta.
        smoothness: L1.
        squares: the sum of squared gradient norms.
        steps: S, the letter's E and FedCoSR's R.
        variance: rho^2, sigma^2 in FedCoSR.
    """
    return -(rate - smoothness * rate**2 / 2) * squares + steps * smoothness * rate**2 * variance / 2


def compute_guarantee(rate: Values, smoothness: Values, squares: Values, rise: Values) -> Values:
    """Compute the possible rise of the loss over its sure fall, `rise` / ((eta - L1 eta^2 / 2) sum ||grad||^2).

    The bound guarantees a lower loss below 1. The ratio is infinite if the step is too long for any fall.
    """
    fall = (rate - smoothness * rate**2 / 2) * squares
    return np.where(np.asarray(fall) > 0, rise / np.where(np.asarray(fall) > 0, fall, 1.0), np.inf)


@dataclass(frozen=True)
class FedCLBound:
    """Theorem 1 of the FedCL letter: lambda L2 eta E' G for new centroids, nothing for the decoder's average.

    Attributes:
        lam: lambda.
        scg_steps: E'.
    """

    lam: float
    scg_steps: int
    first: int = 1
    """First round of the theorem."""
    closing: int = 0
    """Gradients of the sum after the last step."""

    def parts(self, rate: Values, steps: Values, found: Mapping[str, Values]) -> dict[str, Values]:
        """Bound the change of the loss by each of `PARTS`."""
        steady = bound_local_steps(rate, found["smoothness"], found["squares"], steps, found["variance"])
        return {"local": steady, "mixing": 0 * np.asarray(steady), "targets": self.targets(found)}

    def targets(self, found: Mapping[str, Values]) -> Values:
        """Compute lambda L2 eta E' G, at the SCG's own rate."""
        step = found["scg_rate"] * self.scg_steps
        return self.lam * found["scg_lipschitz"] * step * found["scg_gradient"]

    def repaired(self, shift: Values, spread: Values) -> Values:
        """Bound the change by new centroids with Eq. 10's squared norm: lambda (2 spread + shift) shift.

        ||f - b||^2 - ||f - a||^2 = <a - b, 2 (f - a) + (a - b)>. The letter's Lemma 2 has the norm without the square.

        Args:
            shift: longest shift of a centroid.
            spread: root mean squared distance of the features to the old centroids.
        """
        return self.lam * (2 * spread + shift) * shift


@dataclass(frozen=True)
class FedCoSRBound:
    """Theorem 2 of FedCoSR: L1 (eps^2 + eps) / 2 for the mixed body, 2 alpha / tau_CL for new centroids.

    Attributes:
        alpha: weight of the contrastive loss.
        tau: tau_CL.
    """

    alpha: float
    tau: float
    first: int = 2
    """First round of the theorem: round 1 is the initialisation, without centroids."""
    closing: int = 1
    """Gradients of the sum after the last step: the sum runs to R, one index further than the steps."""

    def parts(self, rate: Values, steps: Values, found: Mapping[str, Values]) -> dict[str, Values]:
        """Bound the change of the loss by each of `PARTS`."""
        steady = bound_local_steps(rate, found["smoothness"], found["squares"], steps, found["variance"])
        mixing = found["smoothness"] * (found["epsilon"] ** 2 + found["epsilon"]) / 2
        return {"local": steady, "mixing": mixing, "targets": 0 * np.asarray(steady) + 2 * self.alpha / self.tau}

    def has_rate(self, steps: Values, found: Mapping[str, Values]) -> Values:
        """Check whether Corollary 1 has a learning rate: its root is not of a negative number (Eq. 22)."""
        smoothness, squares, eps = found["smoothness"], found["squares"], found["epsilon"]
        rise = smoothness * (eps**2 + eps) + 4 * self.alpha / self.tau
        return squares**2 >= (smoothness * squares + steps * smoothness * found["variance"]) * rise


def bound_information(candidates: Values, contrast: Values) -> Values:
    """Compute log C - L_Reg, the lower bound of FedCoSR's Theorem 1 on the mutual information, in nat.

    Args:
        candidates: C, the centroids that a feature is contrasted with.
        contrast: L_Reg, InfoNCE of a client.
    """
    return np.log(candidates) - contrast


def label_entropy(counts: np.ndarray) -> float:
    """Compute H(y) of samples by class, `[C]`, in nat: the most that features can tell about their class."""
    shares = counts[counts > 0] / counts.sum()
    return float(-(shares * np.log(shares)).sum())
