"""Batch normalisation that works on stacks of clients whose mini-batches differ in size."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class BatchNorm(nn.Module):
    """`nn.BatchNorm1d/2d` for padded batches.

    `mask` `[b]` (1 for a sample, 0 for padding) is swapped in by the engine where a batch is padded; padding then
    enters neither the batch statistics nor the running ones. Without a mask torch's native path is taken. A channel
    that holds a single value has no variance: it is normalised to zero and leaves the running variance alone,
    where torch raises an error.
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
        """Normalise `x` `[b, channels, ...]` over all but the channels."""
        values = x.numel() // x.shape[1]
        if not self.training or (self.mask is None and values > 1):
            return F.batch_norm(
                x, self.running_mean, self.running_var, self.weight, self.bias, self.training, self.momentum, self.eps
            )
        return self._masked(x)

    def _masked(self, x: Tensor) -> Tensor:
        """Normalise in training with explicit sums, in float32 at least."""
        if x.dtype == torch.bfloat16:  # from autocast; its sums would lose what they are to measure
            return self._masked(x.float()).to(x.dtype)
        over = [0, *range(2, x.dim())]
        shape = [1, -1, *[1] * (x.dim() - 2)]
        keep = x.new_ones(x.shape[0]) if self.mask is None else self.mask.to(x.dtype)
        keep = keep.view(-1, *[1] * (x.dim() - 1))
        count = keep.sum() * (x.numel() // (x.shape[0] * x.shape[1]))
        mean = (x * keep).sum(over) / count
        centred = x - mean.view(shape)
        var = (centred.square() * keep).sum(over) / count
        self._track(mean.detach(), var.detach(), count)
        y = centred * (var + self.eps).rsqrt().view(shape)
        return y if self.weight is None or self.bias is None else y * self.weight.view(shape) + self.bias.view(shape)

    def _track(self, mean: Tensor, var: Tensor, count: Tensor) -> None:
        """Move the running statistics; in place, as under vmap they are views into a stack."""
        unbiased = var * count / (count - 1).clamp(min=1)
        rate = self.momentum * (count > 1).to(var.dtype)
        self.running_mean.mul_(1 - self.momentum).add_(self.momentum * mean)
        self.running_var.mul_(1 - rate).add_(rate * unbiased)
