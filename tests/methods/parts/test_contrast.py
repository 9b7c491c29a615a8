"""The supervised contrastive loss: by hand, its gradient in closed form, NT-Xent, padding."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional

from semcom.methods.parts.contrast import supervised_contrastive

TAU = 0.3
FORMS: Any = pytest.mark.parametrize("form", ["inside", "outside"])


def sample(k: int = 2, b: int = 6, d: int = 4, classes: int = 3) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    features = torch.randn(k, b, d, generator=generator, dtype=torch.float64)
    return features, torch.randint(0, classes, (k, b), generator=generator)


def by_definition(r: np.ndarray, y: np.ndarray, form: str) -> float:
    """Eq. 5 as it is printed, anchor by anchor, for one client."""
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
    """Of the mean of the inside form over anchors that all have positives, in closed form, `[b, d]`.

    An anchor's pull on itself is RepPer's Eq. 10, sum_a z_a G_ja / tau with G = P - X of Eqs. 11 and 12; sample a also
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
    """Neither in the loss nor in the gradient; and clients do not see each other."""
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
    """A client whose samples all differ in class has a loss of zero and moves nothing."""
    r = sample(1, 3)[0].requires_grad_()
    loss = supervised_contrastive(r, torch.tensor([[0, 1, 2]]), None, TAU, form)
    (grad,) = torch.autograd.grad(loss.sum(), r)
    assert loss.item() == 0 and (grad == 0).all()


@FORMS
def test_large_similarities_do_not_overflow(form: Any) -> None:
    r, y = sample()
    assert supervised_contrastive(r.float(), y, None, 1e-3, form).isfinite().all()
