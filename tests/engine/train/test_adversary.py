"""The adversary in training: its error in closed form, its gradient, and what it hides."""

from __future__ import annotations

import math

import pytest
import torch

import semcom
from semcom.engine.train.adversary import NOISE, measure_inversion_error, oppose_inversion
from tests import worlds


def samples(k: int = 2) -> tuple[torch.Tensor, torch.Tensor]:
    clock = torch.Generator().manual_seed(0)
    z, x = torch.randn(k, 6, 4, generator=clock), torch.randn(k, 6, 3, generator=clock)
    return z.double() / z.double().square().mean(-1, keepdim=True).sqrt(), x.double()


def test_the_error_is_that_of_the_best_ridge_regression() -> None:
    """Found by gradient descent: the expected squared error of a linear estimate from features with noise."""
    z, x = samples(1)
    centred = z[0] - z[0].mean(0), x[0] - x[0].mean(0)
    weight = torch.zeros(4, 3, dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.LBFGS([weight], max_iter=200, line_search_fn="strong_wolfe", tolerance_grad=1e-12)

    def loss() -> torch.Tensor:
        optimizer.zero_grad()
        error = (centred[0] @ weight - centred[1]).square().sum() + 6 * NOISE * weight.square().sum()
        error.backward()
        return error

    optimizer.step(loss)
    assert float(measure_inversion_error(z, x, None)) == pytest.approx(
        float(loss().detach() / centred[1].square().sum()), rel=1e-9
    )


def test_features_that_tell_nothing_leave_all_of_the_error() -> None:
    _, x = samples()
    assert measure_inversion_error(torch.ones(2, 6, 4).double(), x, None).tolist() == pytest.approx([1, 1])
    assert float(measure_inversion_error(x[..., :2] * 1e-3, x[..., :2], None).max()) < 1  # of any power


def test_padding_and_other_clients_make_no_difference() -> None:
    z, x = samples()
    mask = torch.tensor([[True] * 4 + [False] * 2, [True] * 6])
    found = measure_inversion_error(z, x, mask)
    assert found[0] == pytest.approx(float(measure_inversion_error(z[:1, :4], x[:1, :4], None)), rel=1e-12)
    assert found[1] == pytest.approx(float(measure_inversion_error(z[1:], x[1:], None)), rel=1e-12)


def test_the_gradient_is_that_of_the_loss_and_of_what_the_features_are_used_for() -> None:
    z, x = samples()
    z.requires_grad_()
    use = torch.linspace(-1, 1, z.numel(), dtype=torch.float64).view_as(z)
    passed = oppose_inversion(z, x, None, 0.3)
    assert torch.equal(passed, z)
    (found,) = torch.autograd.grad((use * passed).sum(), z)
    (alone,) = torch.autograd.grad(-0.3 * measure_inversion_error(z, x, None).log().sum(), z)
    assert torch.allclose(found, use + alone, rtol=1e-12)


@pytest.mark.parametrize("method", ["fedcl", "fedper", "scaffold", "perfedavg", "repper"])
def test_a_run_with_an_adversary_does_not_see_its_chunks(method: str) -> None:
    def train(weight: float, chunk: int) -> list[float]:
        more = {"train": {"rounds": 2, "adversary": weight}, "chunk": chunk}
        result = semcom.run(worlds.request(method, **more))
        return [
            float(t.double().square().sum())
            for c in result.views[next(iter(result.views))].population.stacks()
            for t in c.tensors.values()
        ]

    plain, opposed = train(0.0, 4), train(0.5, 4)
    assert opposed == pytest.approx(train(0.5, 1), rel=1e-9)
    assert not all(math.isclose(a, b, rel_tol=1e-9) for a, b in zip(plain, opposed, strict=True))


def test_features_of_a_run_with_an_adversary_are_harder_to_invert() -> None:
    def error(weight: float) -> float:
        result = semcom.run(
            worlds.request("local", train={"rounds": 15, "adversary": weight}, channel={"kind": "none"})
        )
        index = result.federation.train[0]
        z = result.encode(result.federation.images[index], 0)
        return float(measure_inversion_error(z[None], result.federation.gather(index, z.dtype)[None], None))

    assert error(1.0) > 1.2 * error(0.0)
