"""Batch normalisation for stacks of clients with mini-batches of different sizes."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from semcom.models.convolution import lay_side_by_side, separate_channels
from semcom.models.stacks import for_stacks, stacked


@for_stacks
class BatchNorm(nn.Module):
    """`nn.BatchNorm1d/2d` for padded batches.

    The engine swaps in `mask` `[b]` (1 for a sample, 0 for padding) for a padded batch. Padding then enters neither the
    batch statistics nor the running statistics. Without a mask torch's native path is taken. A channel with a single
    value has no variance: it is normalised to zero and does not change the running variance, whereas torch raises an
    error.
    """

    mask: Tensor | None
    running_mean: Tensor
    running_var: Tensor

    def __init__(self, features: int, eps: float = 1e-5, momentum: float = 0.1, affine: bool = True) -> None:
        super().__init__()
        self.eps, self.momentum = eps, momentum
        self.weight = nn.Parameter(torch.ones(features)) if affine else None
        self.bias = nn.Parameter(torch.zeros(features)) if affine else None
        self.register_buffer("running_mean", torch.zeros(features))
        self.register_buffer("running_var", torch.ones(features))
        self.register_buffer("mask", None)

    def forward(self, x: Tensor) -> Tensor:
        """Normalise `x` `[b, channels, ...]`, or that of each client of a stack, over all but the channels."""
        at = int(stacked())
        if self.training and (self.mask is not None or x.numel() == math.prod(x.shape[:at]) * x.shape[at + 1]):
            return self._masked(x)
        tensors = self.weight, self.bias, self.running_mean, self.running_var
        if not stacked():
            return self._native(x, *tensors)
        # One normalisation of k times as many channels; running statistics are views, so that theirs move.
        side = (None if t is None else t.flatten(0, 1) for t in tensors)
        return separate_channels(self._native(lay_side_by_side(x), *side), len(x))

    def _native(
        self, x: Tensor, weight: Tensor | None, bias: Tensor | None, mean: Tensor | None, var: Tensor | None
    ) -> Tensor:
        """Normalise by torch's own function, not by `F.batch_norm`: that may choose cuDNN, which vmap cannot call."""
        return torch.native_batch_norm(x, weight, bias, mean, var, self.training, self.momentum, self.eps)[0]

    def _masked(self, x: Tensor) -> Tensor:
        """Normalise in training with explicit sums, in float32 at least."""
        if x.dtype == torch.bfloat16:  # from autocast; its sums would lose what they are to measure
            return self._masked(x.float()).to(x.dtype)
        at = int(stacked())  # the axis of the samples; the clients of a stack come first
        over, ones = [at, *range(at + 2, x.dim())], [1] * (x.dim() - at - 2)
        shape = [*x.shape[:at], 1, -1, *ones]
        keep = x.new_ones(x.shape[: at + 1]) if self.mask is None else self.mask.to(x.dtype)
        count = keep.sum(at, keepdim=bool(at))
        count = count * math.prod(x.shape[at + 2 :])
        keep = keep.view(*x.shape[: at + 1], 1, *ones)
        mean = (x * keep).sum(over) / count
        centred = x - mean.view(shape)
        var = (centred.square() * keep).sum(over) / count
        self._track(mean.detach(), var.detach(), count)
        y = centred * (var + self.eps).rsqrt().view(shape)
        return y if self.weight is None or self.bias is None else y * self.weight.view(shape) + self.bias.view(shape)

    def _track(self, mean: Tensor, var: Tensor, count: Tensor) -> None:
        """Move the running statistics, in place, as under vmap they are views into a stack."""
        unbiased = var * count / (count - 1).clamp(min=1)
        rate = self.momentum * (count > 1).to(var.dtype)  # a single value has no unbiased variance
        self.running_mean.mul_(1 - self.momentum).add_(self.momentum * mean)
        self.running_var.mul_(1 - rate).add_(rate * unbiased)
