"""FedPAC's combination of heads: whose heads help whom, from first and second moments of the clients' features.

Client i's combined head is sum_j a_j phi_j. Its expected error is bounded by a' P a, P = diag(V) + D D', where D stacks
the differences h_i - h_j over j: clients whose features vary little and lie alike are worth listening to.

The entries of D D' are usually computed as traces of d x d outer products. The trace of an outer product is a dot
product, so one Gram matrix of the h holds all entries of all n programmes.

Legend: n clients, C classes, d features.
"""

from __future__ import annotations

import numpy as np
import torch
from scipy.optimize import nnls
from torch import Tensor

SMALL = 1e-3
"""The largest weight that is dropped."""
NOTHING = 1e-12
"""The length, relative to the longest column, up to which a column has length zero in float64."""


def compute_class_statistics(means: Tensor, counts: Tensor, squares: Tensor) -> tuple[Tensor, Tensor]:
    """Compute the statistics that a client sends of its features, p_c being its share of class c.

    Args:
        means: mu_c, mean feature per class, `[n, C, d]`.
        counts: samples per class, `[n, C]`.
        squares: E_c ||f||^2, mean squared norm per class, `[n, C]`.

    Returns:
        h = [p_c mu_c], `[n, C, d]`, and V = (sum_c p_c E_c ||f||^2 - sum_c p_c^2 ||mu_c||^2) / samples, `[n]`.
    """
    samples = counts.sum(1)
    share = counts / samples[:, None]
    h = share.unsqueeze(-1) * means
    variance = (share * squares).sum(1) - h.square().sum((1, 2))
    return h, variance.clamp(min=0) / samples  # rounding may take it below zero where a client has one sample


def solve_head_weights(h: Tensor, variance: Tensor) -> Tensor:
    """Solve for every client's weights on the heads of all, each by the client's programme.

    Args:
        h: `[n, C, d]`.
        variance: V, `[n]`, not negative.

    Returns:
        float64 `[n, n]`, by client and head. A client's weights are on the simplex. They take only its own head if its
        programme has no solution.
    """
    points, spread = compute_coordinates(h), variance.double().cpu().numpy()
    rows = [_keep_best_weights(factor_matrix(points, spread, i), i) for i in range(len(points))]
    return torch.as_tensor(np.stack(rows), device=h.device)


def compute_coordinates(h: Tensor) -> np.ndarray:
    """Compute n points, `[n, n]`, with the same distances as the h in their C d dimensions.

    They come from the eigenvectors of the Gram matrix, whose negative eigenvalues are rounding errors. h is centred
    first, so that a mean that all clients share costs no digits.
    """
    flat = h.double().flatten(1)
    flat = flat - flat.mean(0)
    values, vectors = np.linalg.eigh((flat @ flat.T).cpu().numpy())
    return vectors * np.sqrt(values.clip(min=0))


def factor_matrix(points: np.ndarray, variance: np.ndarray, i: int) -> np.ndarray:
    """Build M `[2 n, n]` with M' M = P of client i, so that P is positive semidefinite by construction."""
    return np.concatenate([np.diag(np.sqrt(variance)), (points[i] - points).T])


def minimise_on_simplex(columns: np.ndarray, own: int = 0) -> np.ndarray:
    """Find the weights `[n]` on the simplex of the shortest convex combination of a matrix's columns `[m, n]`.

    If several columns have length zero, column `own` is taken if it is among them, else the first.

    The x >= 0 that minimises ||M x||^2 + (sum x - 1)^2 is a multiple of them at any scale of M: for x = s a the best s
    leaves q / (1 + q) with q = ||M a||^2, which grows with q. So an active set solves it exactly.

    Raises:
        RuntimeError: the solver gives up.
    """
    lengths = np.linalg.norm(columns, axis=0)
    nothing = lengths <= NOTHING * lengths.max()
    if nothing.any():
        return np.eye(len(lengths))[own if nothing[own] else nothing.argmax()]
    # Both scalings only keep the solver's tolerance away from the scale of the features.
    stacked = np.concatenate([columns / lengths.min(), np.ones((1, len(lengths)))])
    unit = np.linalg.norm(stacked, axis=0)
    found = nnls(stacked / unit, np.eye(len(stacked))[-1])[0] / unit
    return found / found.sum()


def _keep_best_weights(columns: np.ndarray, i: int) -> np.ndarray:
    """Find client i's weights, drop the small weights, and scale the rest to sum to 1."""
    try:
        weights = minimise_on_simplex(columns, i)
    except RuntimeError:  # a client without a solution keeps its own head
        weights = np.zeros(len(columns[0]))
    large = np.where(weights > SMALL, weights, 0.0)
    return large / large.sum() if large.any() else np.eye(len(large))[i]
