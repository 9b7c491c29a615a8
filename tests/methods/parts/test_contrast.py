"""The supervised contrastive loss: by hand, its gradient in closed form, NT-Xent, padding."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, strategies
from torch import Tensor
from torch.nn import functional

from semcom.methods.parts.contrast import anchor_gradient, supervised_contrastive

TAU = 0.3
FORMS: Any = pytest.mark.parametrize("form", ["inside", "outside"])


def sample(k: int = 2, b: int = 6, d: int = 4) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    features = torch.randn(k, b, d, generator=generator, dtype=torch.float64)
    return features, torch.randint(0, 3, (k, b), generator=generator)


def by_definition(r: np.ndarray, y: np.ndarray, form: str) -> float:
    """Compute Eq. 5 as printed, anchor by anchor, for one client."""
    z = r / np.linalg.norm(r, axis=1, keepdims=True)
    e = np.exp(z @ z.T / TAU)
    losses = []
    for j in range(len(y)):
        others = [a for a in range(len(y)) if a != j]
        ratios = [e[j, p] / sum(e[j, a] for a in others) for p in others if y[p] == y[j]]
        if ratios:
            losses.append(-math.log(np.mean(ratios)) if form == "inside" else -np.mean(np.log(ratios)))
    return float(np.mean(losses)) if losses else 0.0


def test_four_samples_by_hand() -> None:
    """Two at right angles to two others: with s = 1/tau, l = log(e^s + 2) - s for each."""
    r = torch.tensor([[[2.0, 0.0], [0.5, 0.0], [0.0, 3.0], [0.0, 1.0]]], dtype=torch.float64)
    got = supervised_contrastive(r, torch.tensor([[0, 0, 1, 1]]), None, 0.5)
    assert got.item() == pytest.approx(math.log(math.exp(2) + 2) - 2, abs=1e-14)


def test_inside_and_outside_by_hand() -> None:
    """One class, three samples at 0, 90 and 180 degrees, tau 1."""
    r = torch.tensor([[[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0]]], dtype=torch.float64)
    y = torch.zeros(1, 3, dtype=torch.int64)
    inside, outside = (supervised_contrastive(r, y, None, 1.0, form).item() for form in ("inside", "outside"))
    assert inside == pytest.approx(math.log(2), abs=1e-14)  # the ratios of an anchor sum to 1
    ends = math.log(1 + math.exp(-1)) + 1 / 2  # -(log 1/(1 + 1/e) + log (1/e)/(1 + 1/e)) / 2
    assert outside == pytest.approx((2 * ends + math.log(2)) / 3, abs=1e-14)


@FORMS
def test_the_definition(form: Any) -> None:
    r, y = sample()
    want = [by_definition(r[k].numpy(), y[k].numpy(), form) for k in (0, 1)]
    np.testing.assert_allclose(supervised_contrastive(r, y, None, TAU, form), want, rtol=1e-13)


def gradient(r: np.ndarray, y: np.ndarray, tau: float) -> np.ndarray:
    """Compute the closed-form gradient of the mean of the inside form over anchors that all have positives, `[b, d]`.

    An anchor's pull on itself is RepPer's Eq. 10, sum_a z_a G_ja / tau with G = P - X of Eqs. 11 and 12. Sample a also
    feels z_j G_ja of every other anchor j. Then dz/dr of Eq. 22.
    """
    length = np.linalg.norm(r, axis=1, keepdims=True)
    z = r / length
    e = np.exp(z @ z.T / tau) * (1 - np.eye(len(y)))
    positive = e * (y[:, None] == y)
    g = e / e.sum(1, keepdims=True) - positive / positive.sum(1, keepdims=True)
    dz = (g + g.T) @ z / (tau * len(y))
    return (dz - z * (z * dz).sum(1, keepdims=True)) / length


def test_the_gradient_in_closed_form() -> None:
    r, y = sample(1, 7)[0].requires_grad_(), torch.tensor([[0, 1, 0, 0, 2, 1, 2]])
    (got,) = torch.autograd.grad(supervised_contrastive(r, y, None, TAU).sum(), r)
    np.testing.assert_allclose(got[0], gradient(r[0].detach().numpy(), y[0].numpy(), TAU), atol=1e-14)


def anchor_losses(r: Tensor, y: Tensor) -> list[Tensor]:
    """Each anchor's term of Eq. 5, one client."""
    z = functional.normalize(r, dim=1)
    found = []
    for j in range(len(y)):
        others = [a for a in range(len(y)) if a != j]
        e = {a: torch.exp(z[j] @ z[a] / TAU) for a in others}
        ratios = [e[p] / sum(e.values()) for p in others if y[p] == y[j]]
        found.append(-torch.stack(ratios).mean().log() if ratios else z.sum() * 0)
    return found


def anchors_of(r: Tensor, y: Tensor) -> Tensor:
    """The gradient of each anchor's loss by its own representation, by autograd, `[b, d]`."""
    r = r.clone().requires_grad_()
    losses = anchor_losses(r, y)
    return torch.stack([torch.autograd.grad(loss, r, retain_graph=True)[0][j] for j, loss in enumerate(losses)])


def test_the_anchor_gradient_is_autograds() -> None:
    """Two clients, the second with padding. Padding and samples without another of their class have no gradient."""
    r, _ = sample(2, 7)
    y = torch.tensor([[0, 1, 0, 0, 2, 1, 1], [0, 0, 1, 1, 2, 0, 0]])
    mask = torch.tensor([[True] * 7, [True] * 5 + [False] * 2])
    got = sum(anchor_gradient(r, y, mask, TAU))
    assert isinstance(got, Tensor)
    torch.testing.assert_close(got[0], anchors_of(r[0], y[0]), rtol=0, atol=1e-13)
    torch.testing.assert_close(got[1, :5], anchors_of(r[1, :5], y[1, :5]), rtol=0, atol=1e-13)
    assert (got[0, 4] == 0).all() and (got[1, 4:] == 0).all()


def test_the_parts_are_those_of_positives_and_negatives() -> None:
    """Eqs. 14 and 15 with 1 / (tau ||r||) in both. The printed negatives lack exactly that factor."""
    r, y = sample(1, 6, 3)[0], torch.tensor([[0, 0, 1, 0, 1, 1]])
    z, length = functional.normalize(r[0], dim=1), r[0].norm(dim=1)
    e = torch.exp(z @ z.T / TAU).fill_diagonal_(0)
    same = (y[0] == y[0][:, None]).fill_diagonal_(False)
    pulled, printed = torch.zeros_like(r[0]), torch.zeros_like(r[0])
    for j in range(6):
        for a in set(range(6)) - {j}:
            across = z[a] - (z[j] @ z[a]) * z[j]
            share = e[j, a] / e[j].sum()
            if same[j, a]:
                pulled[j] += across * (share - e[j, a] / e[j, same[j]].sum()) / (TAU * length[j])
            else:
                printed[j] += across * share
    positives, negatives = (part[0] for part in anchor_gradient(r, y, None, TAU))
    torch.testing.assert_close(positives, pulled, rtol=0, atol=1e-13)
    torch.testing.assert_close(negatives * TAU * length[:, None], printed, rtol=0, atol=1e-13)
    assert ((TAU * length - 1).abs() > 0.1).all()  # so that the factor is seen
    wrong = (pulled + printed - anchors_of(r[0], y[0])).norm(dim=1)
    assert (wrong > 0.1 * (pulled + printed).norm(dim=1)).all()


@given(
    seed=strategies.integers(0, 2**32 - 1),
    b=strategies.integers(2, 8),
    d=strategies.integers(2, 5),
    tau=strategies.floats(0.05, 2.0),
)
def test_the_anchor_gradient_does_not_lengthen_r(seed: int, b: int, d: int, tau: float) -> None:
    """Both parts are orthogonal to r, since the loss sees only its direction. A longer r has a smaller gradient."""
    generator = torch.Generator().manual_seed(seed)
    r = torch.randn(1, b, d, generator=generator, dtype=torch.float64)
    y = torch.randint(0, 3, (1, b), generator=generator)
    parts, halved = anchor_gradient(r, y, None, tau), anchor_gradient(2 * r, y, None, tau)
    for part, half in zip(parts, halved, strict=True):
        along = (part * r).sum(-1).abs()
        assert (along <= 1e-12 * (1 + part.norm(dim=-1)) * (1 + r.norm(dim=-1))).all()
        torch.testing.assert_close(half, part / 2, rtol=1e-9, atol=1e-12)


@FORMS
def test_distinct_labels_are_nt_xent(form: Any) -> None:
    """Two views of b samples, each with a label of its own: cross-entropy of finding the other view among 2 b - 1."""
    one, other = sample(1, 5)[0], sample(2, 5)[0][1:]
    labels = torch.arange(5).repeat(2)[None]
    z = functional.normalize(torch.cat([one, other], 1)[0], dim=1)
    logits = (z @ z.T / 0.1).fill_diagonal_(-torch.inf)
    want = functional.cross_entropy(logits, torch.arange(10).roll(5))
    got = supervised_contrastive(torch.cat([one, other], 1), labels, None, 0.1, form)
    torch.testing.assert_close(got[0], want, rtol=1e-13, atol=0)


@FORMS
def test_padding_does_not_count(form: Any) -> None:
    """It counts neither in the loss nor in the gradient, and clients do not see each other."""
    r, y = sample(3, 6)
    mask = torch.arange(6) < torch.tensor([[6], [4], [1]])
    r.requires_grad_()
    got = supervised_contrastive(r, y.masked_fill(~mask, 0), mask, TAU, form)
    alone = [
        supervised_contrastive(r[k : k + 1, :n], y[k : k + 1, :n], None, TAU, form) for k, n in enumerate((6, 4, 1))
    ]
    torch.testing.assert_close(got, torch.cat(alone), rtol=1e-13, atol=0)
    (grad,) = torch.autograd.grad(got.sum(), r)
    assert grad.isfinite().all() and (grad[~mask] == 0).all() and (grad[mask].abs().sum() > 0)


@FORMS
def test_gradients_against_finite_differences(form: Any) -> None:
    r, y = sample(2, 5)
    mask = torch.tensor([[True] * 5, [True] * 4 + [False]])
    assert torch.autograd.gradcheck(
        lambda x: supervised_contrastive(x, y, mask, TAU, form), r.requires_grad_(), fast_mode=False
    )


@FORMS
def test_nothing_to_pull_together(form: Any) -> None:
    """A client with a single sample per class has zero loss and zero gradient."""
    r = sample(1, 3)[0].requires_grad_()
    loss = supervised_contrastive(r, torch.tensor([[0, 1, 2]]), None, TAU, form)
    (grad,) = torch.autograd.grad(loss.sum(), r)
    assert loss.item() == 0 and (grad == 0).all()


@FORMS
def test_large_similarities_do_not_overflow(form: Any) -> None:
    r, y = sample()
    assert supervised_contrastive(r.float(), y, None, 1e-3, form).isfinite().all()
