"""FedCoSR: worked by hand over three rounds, InfoNCE against centroids, who was absent."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch

from semcom.engine.train.forward import Batch
from semcom.methods.fedcosr import FedCoSR
from semcom.methods.parts.prototypes import Prototypes, contrast_with_prototypes
from tests.methods.arms import X, Y, as_toy, assert_toys, play, rounds, toy_world, toys
from tests.methods.by_hand import Toy, mean
from tests.worlds import world


def infonce(f: np.ndarray, y: np.ndarray, q: np.ndarray, tau: float) -> tuple[np.ndarray, np.ndarray]:
    """Each sample's loss `[n]` and its gradient by the sample's feature `[n, d]`.

    With u = f/|f|, v = q/|q|, s = u v'/tau, p = softmax(s): dL/du = (p - onehot) v / tau, du/df = (I - u u')/|f|.
    """
    length = np.linalg.norm(f, axis=1, keepdims=True)
    u, v = f / length, q / np.linalg.norm(q, axis=1, keepdims=True)
    e = np.exp(u @ v.T / tau)
    p = e / e.sum(1, keepdims=True)
    du = (p - np.eye(len(q))[y]) @ v / tau
    return -np.log(p[np.arange(len(y)), y]), (du - u * (u * du).sum(1, keepdims=True)) / length


def centroids(models: list[Toy]) -> np.ndarray:
    """Compute class means over all samples of all clients, as weighting the clients' means by counts does."""
    f, y = np.concatenate([m.features(x) for m, x in zip(models, X, strict=True)]), np.concatenate(Y)
    return np.stack([f[y == c].mean(0) for c in (0, 1)])


def test_three_rounds_by_hand() -> None:
    """First plain cross-entropy, then contrast from the global body, then contrast from a personal body."""
    alpha, tau_cl, gamma, lr = 0.7, 0.4, 0.8, 0.5
    w = toy_world("fedcosr", hyper={"alpha": alpha, "tau_cl": tau_cl, "gamma": gamma})
    method = FedCoSR(w.config.hyper)
    before, *after = rounds(w, method, n=3)
    begin, q, weight = toys(before.model), None, np.zeros(2)
    for state in after:
        trained, losses = [], []
        for k in (0, 1):
            loss, pull = (None, None) if q is None else infonce(begin[k].features(X[k]), Y[k], q, tau_cl)
            losses.append(np.inf if loss is None else loss.mean())
            trained.append(begin[k].step(X[k], Y[k], lr, None if pull is None else alpha * pull / len(X[k])))
        body, q, weight = mean(trained).W, centroids(trained), np.exp(-gamma * np.array(losses))
        begin = [Toy(a * m.W + (1 - a) * body, m.V, m.b) for a, m in zip(weight, trained, strict=True)]
        views = method.views(state, w)
        np.testing.assert_allclose(state.centroids.values, q, atol=1e-12)
        np.testing.assert_allclose(state.regulariser, losses, atol=1e-12)
        assert_toys(state.trained, trained)
        assert_toys(state.model, [Toy(body, m.V, m.b) for m in trained])
        assert_toys(views["personal"].population, begin)
        assert_toys(views["trained"].population, trained)
    assert ((weight > 0) & (weight < 1)).all() and weight[0] != weight[1]


# -- InfoNCE ---------------------------------------------------------------------------------------------------------


def batch_of(y: torch.Tensor, mask: torch.Tensor | None = None) -> Batch:
    """Build a batch with labels and empty images, since the loss reads only labels."""
    return Batch(torch.zeros(*y.shape, 1, dtype=torch.float64), y, mask, torch.ones(len(y), dtype=torch.bool), 4)


def test_infonce_by_hand() -> None:
    """Two clients with padding and a class without a target: value, share of samples and gradient."""
    rng = np.random.default_rng(0)
    f, q = rng.normal(size=(2, 5, 3)), rng.normal(size=(4, 3))
    y, mask = np.array([[0, 1, 3, 1, 0], [2, 1, 0, 0, 0]]), np.arange(5) < np.array([[5], [3]])
    known = np.array([True, True, False, True])
    features = torch.tensor(f, requires_grad=True)
    batch = batch_of(torch.tensor(y), torch.tensor(mask))
    loss, part = contrast_with_prototypes(features, torch.tensor(q), torch.tensor(known), batch, 0.3)
    loss.sum().backward()
    for k in (0, 1):
        count, renumbered = mask[k].sum(), np.array([0, 1, -1, 2])[y[k]]
        counts = mask[k] & known[y[k]]
        each, gradient = infonce(f[k][counts], renumbered[counts], q[known], 0.3)
        want = np.zeros((5, 3))
        want[counts] = gradient / count
        np.testing.assert_allclose(loss[k].item(), each.sum() / count, atol=1e-12)
        np.testing.assert_allclose(part[k].item(), counts.sum() / count, atol=1e-15)
        np.testing.assert_allclose(features.grad[k], want, atol=1e-12)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_infonce_without_any_target_is_zero(dtype: torch.dtype) -> None:
    """And so is its gradient: no number would destroy the weights, whatever alpha is."""
    features = torch.randn(1, 3, 2, dtype=dtype, requires_grad=True)
    batch = batch_of(torch.tensor([[0, 1, 3]]))
    loss, part = contrast_with_prototypes(
        features, torch.zeros(4, 2, dtype=dtype), torch.zeros(4, dtype=torch.bool), batch, 0.1
    )
    loss.sum().backward()
    assert loss.tolist() == part.tolist() == [0] and torch.equal(features.grad, torch.zeros_like(features))


# -- rounds ----------------------------------------------------------------------------------------------------------


def test_traffic_where_heads_are_averaged_too() -> None:
    """The averaged part both ways, d per owned class up, and d per existing class down except in round 1."""
    w = world("fedcosr", sizes=(3, 2, 1), hyper={"separate": False})
    state = rounds(w, n=2)[-1]
    part = state.model.numbers(FedCoSR(w.config.hyper).averages).sum()
    owned, d = w.session.draws.federation.owned, 4
    assert w.air.totals["up"].floats == 2 * (part + owned.sum() * d)
    assert w.air.totals["down"].floats == 2 * part + 3 * owned.any(0).sum() * d


def test_an_absent_client_keeps_its_regulariser() -> None:
    """Its share of the global body is that of its last participation."""
    w = world("fedcosr", sizes=(7, 5, 3, 6), train={"participation": 0.5})
    method = FedCoSR(w.config.hyper)
    state, moved = method.setup(w), 0
    for r in range(1, 9):
        w.session.tally.begin(r)
        here, newest = torch.zeros(4, dtype=torch.bool), method.round(state, w)
        here[w.sample()] = True
        assert torch.equal(newest.regulariser[~here], state.regulariser[~here])
        assert r == 1 or not (newest.regulariser[here] == state.regulariser[here]).any()
        moved += int(newest.regulariser.isfinite().sum())
        state = newest
    assert moved


def test_who_has_no_sample_of_a_known_class_has_no_regulariser() -> None:
    """The loss of samples without a centroid counts neither for it nor against it."""
    w = toy_world("fedcosr", classes=4)
    method = FedCoSR(w.config.hyper)
    state = rounds(w, method)[-1]
    q = torch.tensor([[1.0, 2.0], [0.0, 0.0], [2.0, -1.0], [3.0, 1.0]], dtype=torch.float64)
    w.session.tally.begin(2)
    some, none = (
        dataclasses.replace(state, centroids=Prototypes(q, torch.tensor([first, False, True, True])))
        for first in (True, False)
    )
    f = [as_toy(state.model, k).features(X[k][Y[k] == 0]) for k in (0, 1)]
    want = [infonce(x, np.zeros(len(x), dtype=int), q.numpy()[[0, 2, 3]], 0.1)[0].mean() for x in f]
    np.testing.assert_allclose(method.round(some, w).regulariser, want, atol=1e-12)
    assert torch.isinf(method.round(none, w).regulariser).all()


def test_a_class_without_owner_has_no_centroid() -> None:
    """A third class without owners changes no encoder, being neither a positive nor a negative."""
    two, three = (rounds(toy_world("fedcosr", classes=c), n=2)[-1] for c in (2, 3))
    assert three.centroids.known.tolist() == [True, True, False] and not three.centroids.values[2].any()
    torch.testing.assert_close(three.regulariser, two.regulariser, rtol=0, atol=0.2)


def test_clipped_weights_lie_in_the_unit_interval() -> None:
    state = play("fedcosr", n=2, hyper={"clip": True})
    weights = [t for name, t in state.trained.cohorts[0].tensors.items() if "running" not in name]
    assert weights and torch.cat([t.flatten() for t in weights]).aminmax() == (0, 1)
    assert any(t.min() < 0 for t in play("fedcosr", n=2).trained.tensors())
