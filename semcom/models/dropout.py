"""Dropout with draws from outside, so that they depend on the run's seed and not on the clients trained together."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from semcom.config import ConfigError
from semcom.models.stacks import for_stacks, stacked


@for_stacks
class Dropout(nn.Module):
    """`nn.Dropout`, and with `channels` `nn.Dropout1d/2d`, with given draws: x keep / (1 - p).

    The engine swaps in `keep` `[b, *units]` (1 to keep, 0 to drop) for each training step. A layer that is called twice
    in a step drops the same twice. torch's layers draw for all samples at once, from their own generator.

    Args:
        p: probability that a unit is dropped, in [0, 1).
        channels: whether a unit is a whole channel instead of a number.

    Attributes:
        units: shape of one sample's units, noted in each pass in evaluation mode; None before the first.

    Raises:
        ConfigError: every unit would be dropped.
        RuntimeError: training without `keep`.
    """

    keep: Tensor | None
    units: tuple[int, ...] | None

    def __init__(self, p: float = 0.5, channels: bool = False) -> None:
        super().__init__()
        if not 0 <= p < 1:
            raise ConfigError(f"model: a dropout of {p:g} is not a probability below 1")
        self.p, self.channels, self.units = p, channels, None
        self.register_buffer("keep", None)

    def forward(self, x: Tensor) -> Tensor:
        """Drop units in training: `[b, ...] -> [b, ...]`."""
        if not self.training:
            self.units = self._units(x.shape[stacked() :])
            return x
        if self.p == 0:
            return x
        if self.keep is None:
            raise RuntimeError("dropout: training needs `keep`, what is kept of each sample")
        return x * self.keep.to(x.dtype) / (1 - self.p)

    def extra_repr(self) -> str:
        """Format the settings as torch's layers print theirs."""
        return f"p={self.p}, channels={self.channels}"

    def _units(self, shape: torch.Size) -> tuple[int, ...]:
        """Compute the shape of the draws for one sample, with as many axes as the sample."""
        return (shape[1], *[1] * (len(shape) - 2)) if self.channels else tuple(shape[1:])
