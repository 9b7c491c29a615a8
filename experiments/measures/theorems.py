"""What the convergence theorems of the FedCL letter and of FedCoSR say, as functions of measured numbers.

Both bound the loss at the start of a client's training by that at the start of the round before, and take the round
apart into three: the local steps, what the server then does to the model ("mixing"), and new centroids ("targets").

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
    """Return the bound on the change of the loss by SGD's steps, which both theorems share.

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
    """Return what may raise the loss over what surely lowers it, `rise` / ((eta - L1 eta^2 / 2) sum ||grad||^2).

    The bound promises a lower loss where this is below 1. It is infinite where the step is too long to lower anything.
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
    """The first round that it speaks of."""
    closing: int = 0
    """Gradients of the sum after the last step."""

    def parts(self, rate: Values, steps: Values, found: Mapping[str, Values]) -> dict[str, Values]:
        """Return the bound on the change of the loss by each of `PARTS`."""
        steady = bound_local_steps(rate, found["smoothness"], found["squares"], steps, found["variance"])
        return {"local": steady, "mixing": 0 * np.asarray(steady), "targets": self.targets(found)}

    def targets(self, found: Mapping[str, Values]) -> Values:
        """Return lambda L2 eta E' G, at the SCG's own rate."""
        step = found["scg_rate"] * self.scg_steps
        return self.lam * found["scg_lipschitz"] * step * found["scg_gradient"]

    def repaired(self, shift: Values, spread: Values) -> Values:
        """Return what Eq. 10's squared norm allows new centroids to do: lambda (2 spread + shift) shift.

        ||f - b||^2 - ||f - a||^2 = <a - b, 2 (f - a) + (a - b)>. The letter's Lemma 2 has the norm alone, not squared.

        Args:
            shift: length of the longest way of a centroid.
            spread: root mean squared distance of the features to the old ones.
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
    """The first round that it speaks of: round 1 is the initialisation, without centroids."""
    closing: int = 1
    """Gradients of the sum after the last step: it runs to R, one further than there are steps."""

    def parts(self, rate: Values, steps: Values, found: Mapping[str, Values]) -> dict[str, Values]:
        """Return the bound on the change of the loss by each of `PARTS`."""
        steady = bound_local_steps(rate, found["smoothness"], found["squares"], steps, found["variance"])
        mixing = found["smoothness"] * (found["epsilon"] ** 2 + found["epsilon"]) / 2
        return {"local": steady, "mixing": mixing, "targets": 0 * np.asarray(steady) + 2 * self.alpha / self.tau}

    def has_rate(self, steps: Values, found: Mapping[str, Values]) -> Values:
        """Return whether Corollary 1 has any learning rate: whether its root is of no negative number (Eq. 22)."""
        smoothness, squares, eps = found["smoothness"], found["squares"], found["epsilon"]
        rise = smoothness * (eps**2 + eps) + 4 * self.alpha / self.tau
        return squares**2 >= (smoothness * squares + steps * smoothness * found["variance"]) * rise


def bound_information(candidates: Values, contrast: Values) -> Values:
    """Return log C - L_Reg, from which on Theorem 1 of FedCoSR puts the mutual information, in nat.

    Args:
        candidates: C, the centroids that a feature is contrasted with.
        contrast: L_Reg, InfoNCE of a client.
    """
    return np.log(candidates) - contrast


def entropy(counts: np.ndarray) -> float:
    """Return H(y) of samples by class, `[C]`, in nat: what features can tell of their class at most."""
    shares = counts[counts > 0] / counts.sum()
    return float(-(shares * np.log(shares)).sum())
