"""Power normalisation and the mapping of real features to complex symbols."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from semcom.channels import make_link
from semcom.channels.power import normalise_power, to_features, to_pairs


@settings(deadline=None, max_examples=100)
@given(
    exponent=st.floats(-6, 6),
    d=st.integers(1, 40).map(lambda s: 2 * s),
    dtype=st.sampled_from([torch.float32, torch.float64]),
    seed=st.integers(0, 2**31),
)
def test_mean_symbol_power_is_one_at_every_scale(exponent, d, dtype, seed):
    x = 10.0**exponent * torch.randn(3, d, dtype=dtype, generator=torch.Generator().manual_seed(seed))
    x[1] = 0
    x.requires_grad_()
    y = normalise_power(x)
    power = (to_pairs(y) / math.sqrt(2)).abs().square().mean(-1)
    rounding = 4 * d * torch.finfo(dtype).eps
    torch.testing.assert_close(power, torch.tensor([1.0, 0.0, 1.0], dtype=dtype), rtol=rounding, atol=rounding)
    (gradient,) = torch.autograd.grad(y.pow(3).sum(), x)
    assert torch.equal(gradient[1], torch.zeros(d, dtype=dtype))
    assert torch.isfinite(gradient).all()
    # The output does not depend on the input's length, so the gradient is orthogonal to the input.
    along = (gradient * x).sum(-1).abs()
    assert (along <= rounding * 100 * (1 + gradient.norm(dim=-1) * x.norm(dim=-1))).all()


@pytest.mark.parametrize("scale", [0.0, 1e-45, 1e-38, 1e-22, 1e-19, 1e-18, 1e18])
def test_no_nan_at_extreme_scales(scale):
    x = torch.full((1, 64), scale, requires_grad=True)
    y = normalise_power(x)
    (gradient,) = torch.autograd.grad(y, x, torch.randn(1, 64, generator=torch.Generator().manual_seed(0)))
    assert torch.isfinite(y).all() and torch.isfinite(gradient).all()


def test_normalisation_has_the_right_derivative():
    x = torch.randn(2, 3, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(0), requires_grad=True)
    assert torch.autograd.gradcheck(normalise_power, x)


def test_a_pair_of_features_is_one_complex_number():
    x = torch.tensor([[1.0, 2.0, 3.0, 4.0]])
    assert torch.equal(to_pairs(x), torch.tensor([[1 + 2j, 3 + 4j]]))
    assert torch.equal(to_features(to_pairs(x)), x)
    transposed = torch.arange(24.0).view(4, 6).t()  # [6, 4], not contiguous
    assert torch.equal(to_features(to_pairs(transposed)), transposed)


def test_an_ideal_link_returns_the_normalised_features():
    x = 3 * torch.randn(2, 5, 8, generator=torch.Generator().manual_seed(0))
    assert torch.equal(make_link("ideal")(x, {}, torch.tensor([0.0, 10.0])), normalise_power(x))
