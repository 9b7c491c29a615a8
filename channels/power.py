"""Power normalisation, and real features as complex symbols.

Features `[..., d]` have mean square 1 per sample when they are sent. A pair of them is one complex number, `x[2i] + j
x[2i+1]`, with mean square 2. The symbol on the air is that number divided by sqrt(2).
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn.functional import threshold

PAIR = math.sqrt(2.0)
"""R.m.s. of a pair of normalised features: a pair is PAIR times its unit-power symbol."""


def normalise_power(features: Tensor) -> Tensor:
    """Scale features `[..., d]` per sample to mean square 1; differentiable.

    Zero vectors stay zero and get a zero gradient. So does an r.m.s. below the square root of the smallest normal
    number (1e-19 in float32), whose square cannot be represented.
    """
    normalised = _Normalise.apply(features)
    assert isinstance(normalised, Tensor)
    return normalised


class _Normalise(torch.autograd.Function):
    """Function y = x / rms(x) with dx = (dy - y mean(y dy)) / rms(x): half the work of the derivative by autograd."""

    @staticmethod
    def forward(ctx: Any, features: Tensor) -> Tensor:
        root = math.sqrt(features.shape[-1])
        norm = torch.linalg.vector_norm(features, dim=-1, keepdim=True)
        least = root * math.sqrt(torch.finfo(features.dtype).tiny)
        inverse = root / threshold(norm, least, math.inf)  # 0 for silent samples: no NaN, and no gradient
        normalised = features * inverse
        ctx.save_for_backward(normalised, inverse)
        return normalised

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        normalised, inverse = ctx.saved_tensors
        # Normalising forgets the length of a sample, so its gradient has no part along the sample.
        along, d = torch.linalg.vecdot(grads[0], normalised).unsqueeze(-1), normalised.shape[-1]
        if along.is_cuda:  # a launch less, rounded otherwise
            return torch.addcmul(grads[0], normalised, along, value=-1.0 / d) * inverse
        return torch.addcmul(grads[0], normalised, along / d, value=-1.0) * inverse


def to_pairs(features: Tensor) -> Tensor:
    """View real `[..., d]` as complex `[..., d/2]`: `x[2i] + j x[2i+1]`. Copies tensors that are not contiguous."""
    return torch.view_as_complex(features.contiguous().unflatten(-1, (-1, 2)))


def to_features(pairs: Tensor) -> Tensor:
    """View complex `[..., s]` as real `[..., 2 s]`, the inverse of `to_pairs`."""
    return torch.view_as_real(pairs.resolve_conj()).flatten(-2)


def check_finite(features: Tensor, mask: Tensor | None) -> None:
    """Raise ValueError for NaN or infinity in valid samples of `[..., d]`. Waits for the device."""
    wrong = ~features.detach().isfinite()
    if mask is not None:
        wrong &= mask.unsqueeze(-1)
    if wrong.any():
        raise ValueError(f"features: {int(wrong.sum())} of {wrong.numel()} values are not finite")


def check_even(d: int) -> None:
    """Raise ValueError when `d` real features cannot be paired into complex symbols."""
    if d < 2 or d % 2:
        raise ValueError(f"features: dimension {d} is odd or empty; two real features make one complex symbol")
