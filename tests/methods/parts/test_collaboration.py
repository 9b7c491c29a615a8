"""FedPAC's statistics and programmes: against samples, traces of d x d products, brute force, and optimality."""

from __future__ import annotations

import itertools
import time

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from semcom.methods.parts import collaboration
from semcom.methods.parts.collaboration import (
    compute_class_statistics,
    compute_coordinates,
    factor_matrix,
    minimise_on_simplex,
    solve_head_weights,
)


def moments(n: int, c: int, d: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    """h and V of n clients with unequal class shares and features of their own."""
    generator = torch.Generator().manual_seed(seed)
    counts = torch.randint(0, 40, (n, c), generator=generator).double()
    counts[:, 0] += 1
    common = torch.randn(c, d, generator=generator, dtype=torch.float64)
    means = common + 0.3 * torch.randn(n, c, d, generator=generator, dtype=torch.float64)
    return compute_class_statistics(means, counts, means.square().sum(-1) + d / 2)


def by_traces(h: Tensor, variance: Tensor, i: int, pairs: list[tuple[int, int]]) -> dict[tuple[int, int], float]:
    """Entries of client i's P in the usual form: the trace of a sum over classes of d x d outer products."""
    found = {}
    for j, other in pairs:
        total = sum(torch.outer(h[i, c] - h[j, c], h[i, c] - h[other, c]) for c in range(h.shape[1]))
        found[j, other] = float(total.trace()) + (float(variance[j]) if j == other else 0.0)
    return found


def test_statistics_of_samples() -> None:
    """V is the variance of p-weighted features over the number of samples, and h has each class's share of the mean."""
    rng = np.random.default_rng(0)
    features, labels = rng.normal(size=(12, 5)), np.array([0] * 7 + [2] * 5)
    means, squares, counts = np.zeros((3, 5)), np.zeros(3), np.zeros(3)
    for c in (0, 2):
        mine = features[labels == c]
        means[c], squares[c], counts[c] = mine.mean(0), np.trace(mine.T @ mine) / len(mine), len(mine)
    h, variance = compute_class_statistics(*(torch.as_tensor(x)[None] for x in (means, counts, squares)))
    p = counts / 12
    np.testing.assert_allclose(h[0], p[:, None] * means, atol=1e-15)
    want = (np.square(features).sum() / 12 - sum(p[c] ** 2 * means[c] @ means[c] for c in (0, 2))) / 12
    np.testing.assert_allclose(variance, [want], rtol=1e-14)


def test_one_sample_has_no_variance() -> None:
    mean = torch.tensor([[[0.1, 0.7], [0.0, 0.0]]])
    _, variance = compute_class_statistics(mean, torch.tensor([[1.0, 0.0]]), mean.square().sum(-1) * (1 - 1e-7))
    assert variance.tolist() == [0.0]


def test_programmes_are_those_of_the_traces() -> None:
    h, variance = moments(6, 3, 16)
    points = compute_coordinates(h)
    for i in range(6):
        m = factor_matrix(points, variance.numpy(), i)
        p = m.T @ m
        for at, value in by_traces(h, variance, i, [*itertools.product(range(6), repeat=2)]).items():
            assert p[at] == pytest.approx(value, rel=1e-12, abs=1e-12)


def test_at_full_size() -> None:
    """20 clients, 10 classes, d = 512 in float32: entries to 1e-5, and far below 50 ms a client."""
    h, variance = (t.float() for t in moments(20, 10, 512))
    m = factor_matrix(compute_coordinates(h), variance.double().numpy(), 3)
    p = m.T @ m
    for at, value in by_traces(h.double(), variance.double(), 3, [(0, 0), (0, 19), (3, 3), (7, 8)]).items():
        assert p[at] == pytest.approx(value, rel=1e-5, abs=1e-5)
    start = time.perf_counter()
    solve_head_weights(h, variance)
    assert time.perf_counter() - start < 20 * 0.05


def test_a_common_mean_costs_no_digits() -> None:
    h, variance = moments(5, 2, 8)
    torch.testing.assert_close(
        solve_head_weights(h + 1e6, variance), solve_head_weights(h, variance), rtol=0, atol=1e-8
    )


def test_two_clients_in_closed_form() -> None:
    """a^2 V_1 + (1 - a)^2 (V_2 + distance^2) is least at a = (V_2 + distance^2) / (V_1 + V_2 + distance^2)."""
    h = torch.tensor([[[0.0, 0.0]], [[0.6, 0.8]]])
    weights = solve_head_weights(h, torch.tensor([2.0, 3.0]))
    torch.testing.assert_close(weights, torch.tensor([[4 / 6, 2 / 6], [3 / 6, 3 / 6]], dtype=torch.float64))


def test_equal_clients_share_by_precision() -> None:
    """Without distances the variance of a mean is least with weights 1/V."""
    variance = torch.tensor([1.0, 2.0, 4.0])
    precision = 1 / variance.double()
    want = (precision / precision.sum()).expand(3, 3)
    torch.testing.assert_close(solve_head_weights(torch.ones(3, 2, 2), variance), want)


def test_against_a_grid() -> None:
    """No point of a fine grid on the simplex is better, and one nearly as good."""
    h, variance = moments(3, 2, 4, seed=1)
    grid = np.array([(a, b, 200 - a - b) for a in range(201) for b in range(201 - a)]) / 200
    for i in range(3):
        m = factor_matrix(compute_coordinates(h), variance.numpy(), i)
        best, ours = np.square(grid @ m.T).sum(1).min(), np.square(m @ minimise_on_simplex(m)).sum()
        assert ours <= best + 1e-12 and best - ours < 1e-3 * best


@settings(max_examples=150, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    n=st.integers(1, 12),
    rank=st.integers(1, 6),
    distance=st.floats(-6, 6),
    range_=st.floats(0, 6),
)
def test_the_solution_is_optimal(seed: int, n: int, rank: int, distance: float, range_: float) -> None:
    """KKT: the gradient P a equals a' P a wherever a > 0 and is not smaller elsewhere, at any scale and rank."""
    rng = np.random.default_rng(seed)
    points = 10**distance * rng.normal(size=(n, rank))
    m = factor_matrix(points, 10 ** rng.uniform(-range_, range_, n), int(rng.integers(n)))
    a = minimise_on_simplex(m)
    assert a.sum() == pytest.approx(1) and (a >= 0).all()
    # In units of a programme whose columns have length 1, where x_j = a_j length_j.
    length = np.linalg.norm(m, axis=0)
    slack = (m.T @ (m @ a) - np.square(m @ a).sum()) / length
    # Long columns that nearly cancel leave rounding of their own size in M a.
    error = 1e-8 * np.linalg.norm(m @ a) + 10 * np.finfo(float).eps * length.max()
    assert (slack >= -error).all()
    assert (np.abs(slack[a > 1e-9]) <= error).all()


def test_small_weights_are_dropped() -> None:
    """A distant client would get 1 part in 2001. Without it, the other weights sum to 1."""
    h = torch.tensor([[[0.0]], [[0.0]], [[1000.0**0.5]]])
    weights = solve_head_weights(h, torch.ones(3))
    torch.testing.assert_close(weights[0], torch.tensor([0.5, 0.5, 0.0], dtype=torch.float64))
    kept = minimise_on_simplex(factor_matrix(compute_coordinates(h), np.ones(3), 0))[2]
    assert 0 < kept < 1e-3


def test_no_variance_keeps_its_own_head() -> None:
    h, _ = moments(4, 2, 3)
    assert torch.equal(solve_head_weights(h, torch.zeros(4)), torch.eye(4, dtype=torch.float64))


def test_equals_without_variance_keep_their_own_heads() -> None:
    """With one sample each and the same feature, no client improves on its own head. Client 2 has no equal."""
    h = torch.tensor([[[1.0]], [[1.0]], [[3.0]]])
    assert torch.equal(solve_head_weights(h, torch.zeros(3)), torch.eye(3, dtype=torch.float64))
    assert torch.equal(solve_head_weights(torch.ones(3, 1, 1), torch.zeros(3)), torch.eye(3, dtype=torch.float64))
    certain = solve_head_weights(h, torch.tensor([0.5, 0.0, 0.5]))  # an equal that is certain is better than oneself
    assert certain[:2].tolist() == [[0.0, 1.0, 0.0]] * 2


def test_a_failing_solver_leaves_everyone_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    def gives_up(a: np.ndarray, b: np.ndarray) -> None:
        raise RuntimeError("maximum number of iterations")

    monkeypatch.setattr(collaboration, "nnls", gives_up)
    assert torch.equal(solve_head_weights(*moments(4, 2, 3)), torch.eye(4, dtype=torch.float64))


def test_so_many_that_all_weights_are_small(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a thousand clients all weights are small, like those of the 20 equal clients here, below a tenth."""
    monkeypatch.setattr(collaboration, "SMALL", 0.1)
    assert torch.equal(solve_head_weights(torch.zeros(20, 1, 1), torch.ones(20)), torch.eye(20, dtype=torch.float64))
