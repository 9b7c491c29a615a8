"""An adversary in training: each encoder also learns to leave the best linear inverter of its features in error.

The adversary hears features z of a client's mini-batch, of mean square 1, with noise n of variance v, and knows its
images x. The least expected error of a linear estimate, the minimum over W of E||(z + n) W - x||^2 with both centred,
is a ridge regression, of the closed form tr x^T c (z z^T + c 1)^-1 x with c = b v for b images. So the inner problem
of the min-max is solved exactly in each step, as in B. Sadeghi, R. Yu, V. Boddeti, "On the Global Optima of Kernelized
Adversarial Representation Learning", ICCV 2019, and there is no second network to train.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from semcom.channels.power import normalise_power

NOISE = 0.1
"""v: the adversary hears at 10 dB."""


def measure_inversion_error(features: Tensor, images: Tensor, mask: Tensor | None) -> Tensor:
    """Measure the error of the best linear inverter, as a fraction of the images' variance, per client: `[k]`.

    Args:
        features: `[k, b, d]`, of any power.
        images: `[k, b, ...]`.
        mask: False for padding, bool `[k, b]` (None: no padding).

    Example:
        >>> import torch
        >>> from semcom.engine.train.adversary import measure_inversion_error
        >>> images = torch.tensor([[[1.0, 0.0], [-1.0, 0.0]]])
        >>> measure_inversion_error(images, images, None)  # of a variance of 2, 0.1 of noise: 0.1 / 2.1
        tensor([0.0476])
    """
    weight = features.new_ones(features.shape[:2]) if mask is None else mask.to(features.dtype)
    z, x = (_centre(of, weight) for of in (normalise_power(features), images.flatten(2).to(features.dtype)))
    count = NOISE * weight.sum(1)
    kernel = z @ z.transpose(1, 2) + torch.diag_embed(count[:, None].expand(weight.shape))
    lower = torch.linalg.cholesky_ex(kernel)[0]  # never checked, so nothing waits for the device
    solved = torch.cholesky_solve(x, lower)
    return count * (x * solved).sum((1, 2)) / x.square().sum((1, 2)).clamp_min(torch.finfo(x.dtype).tiny)


def _centre(values: Tensor, weight: Tensor) -> Tensor:
    """Take the mean off the samples of each client, `[k, b, n]`; padding is 0."""
    valid = weight.unsqueeze(-1)
    mean = (values * valid).sum(1, keepdim=True) / valid.sum(1, keepdim=True)
    return (values - mean) * valid


def oppose_inversion(features: Tensor, images: Tensor, mask: Tensor | None, weight: float) -> Tensor:
    """Return features as they are, whose gradient also lowers `-weight * log(error)`, see `measure_inversion_error`."""
    error = measure_inversion_error(features, images, mask)
    found = _Attach.apply(features, -weight * error.clamp_min(torch.finfo(error.dtype).tiny).log())
    assert isinstance(found, Tensor)
    return found


class _Attach(torch.autograd.Function):
    """Function that passes on its first argument, and adds the second, a loss, to whatever is differentiated."""

    @staticmethod
    def forward(ctx: Any, features: Tensor, loss: Tensor) -> Tensor:
        ctx.like = loss.shape
        return features.view_as(features)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor]:  # pyright: ignore[reportIncompatibleMethodOverride]
        return grads[0], grads[0].new_ones(ctx.like)
