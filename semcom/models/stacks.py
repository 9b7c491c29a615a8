"""Layers for one client, or for a stack of clients at once, each with its own weights.

On a stack, weights, inputs and outputs have the clients as their first axis. A network of such layers only is called
directly on stacks. `replace_by_own_layers` puts these in the place of torch's. Any other network is left to vmap, which
runs everything, and takes longer: its rules for convolutions, batch normalisation and in-place activations make copies,
and each of its operations costs the host more than the operation itself.

Legend: k clients, b samples of each, c channels.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from semcom.models.convolution import Geometry, convolve, lay_side_by_side, separate_channels

K = TypeVar("K", bound=type[nn.Module])

_on = False


@contextmanager
def on_stacks() -> Iterator[None]:
    """Let layers treat their inputs and weights as those of a stack while the context lasts."""
    global _on
    before, _on = _on, True
    try:
        yield
    finally:
        _on = before


def stacked() -> bool:
    """Check whether layers currently work on stacks."""
    return _on


KNOWN: set[type[nn.Module]] = {nn.Sequential, nn.Identity, nn.Sigmoid, nn.Tanh, nn.GELU, nn.Softplus}
"""Modules that work on stacks."""


def for_stacks(kind: K) -> K:
    """Declare that a module works on stacks: it calls others, adds, multiplies, and counts axes from the last one."""
    KNOWN.add(kind)
    return kind


@lru_cache(maxsize=256)
def works_on_stacks(network: nn.Module) -> bool:
    """Check whether all of a network works on stacks."""
    return all(type(layer) in KNOWN and (type(layer) is not Conv2d or layer.is_plain()) for layer in network.modules())


@for_stacks
class Conv2d(nn.Conv2d):
    """`nn.Conv2d`, also on stacks."""

    def forward(self, x: Tensor) -> Tensor:
        """Convolve `[b, c, h, w]`, or `[k, b, c, h, w]`."""
        if not _on:
            return super().forward(x)
        device, dtype = x.device.type, x.dtype
        if torch.is_autocast_enabled(device):  # which does not reach into a custom autograd function
            dtype = torch.get_autocast_dtype(device)
        bias = None if self.bias is None else self.bias.to(dtype)
        padding: Any = self.padding
        geometry = Geometry(x.shape[-2:], self.kernel_size, self.stride, padding, self.dilation, self.groups)
        return convolve(x.to(dtype), self.weight.to(dtype), bias, geometry)

    def is_plain(self) -> bool:
        """Check whether the border is of zeros, and its width a number."""
        return self.padding_mode == "zeros" and not isinstance(self.padding, str)


@for_stacks
class Linear(nn.Linear):
    """`nn.Linear`, also on stacks."""

    def forward(self, x: Tensor) -> Tensor:
        """Multiply `[..., inputs]`, or `[k, ..., inputs]`."""
        if not _on:
            return super().forward(x)
        rows, matrices = x.flatten(1, -2), self.weight.mT
        y = torch.bmm(rows, matrices) if self.bias is None else torch.baddbmm(self.bias.unsqueeze(1), rows, matrices)
        return y.view(*x.shape[:-1], y.shape[-1])


@for_stacks
class GroupNorm(nn.GroupNorm):
    """`nn.GroupNorm`, also on stacks."""

    def forward(self, x: Tensor) -> Tensor:
        """Normalise `[b, c, ...]`, or `[k, b, c, ...]`."""
        if not _on:
            return super().forward(x)
        y = F.group_norm(x.flatten(0, 1), self.num_groups, eps=self.eps).view(x.shape)
        if not self.affine:
            return y
        shape = (len(x), 1, -1, *[1] * (x.dim() - 3))
        return y * self.weight.view(shape) + self.bias.view(shape)


@for_stacks
class ConvTranspose2d(nn.ConvTranspose2d):
    """`nn.ConvTranspose2d`, also on stacks: the clients are groups of one transposed convolution."""

    def forward(self, x: Tensor, output_size: list[int] | None = None) -> Tensor:
        """Convolve `[b, c, h, w]`, or `[k, b, c, h, w]`."""
        if not _on or output_size is not None:
            return super().forward(x, output_size)
        padding: Any = self.padding
        y = F.conv_transpose2d(
            lay_side_by_side(x),
            self.weight.flatten(0, 1),
            None if self.bias is None else self.bias.flatten(),
            self.stride,
            padding,
            self.output_padding,
            len(x) * self.groups,
            self.dilation,
        )
        return separate_channels(y, len(x))


@for_stacks
class PReLU(nn.PReLU):
    """`nn.PReLU`, also on stacks."""

    def forward(self, x: Tensor) -> Tensor:
        """Scale negative numbers of `[b, c, ...]`, or `[k, b, c, ...]`, by the slope of their channel."""
        if not _on:
            return super().forward(x)
        slope = self.weight.to(x.dtype).view(len(x), 1, -1, *[1] * (x.dim() - 3))
        return torch.where(x > 0, x, slope * x)


@for_stacks
class Flatten(nn.Flatten):
    """`nn.Flatten`, also on stacks."""

    def forward(self, x: Tensor) -> Tensor:
        """Flatten `[b, ...]`, or `[k, b, ...]`."""
        start, end = (d + (_on and d >= 0) for d in (self.start_dim, self.end_dim))
        return x.flatten(start, end)


class _Pool:
    """A pool, also on stacks."""

    def forward(self, x: Tensor) -> Tensor:
        """Pool `[b, c, h, w]`, or `[k, b, c, h, w]`."""
        pool: Callable[[Tensor], Tensor] = super().forward  # type: ignore[misc]
        return separate_channels(pool(lay_side_by_side(x)), len(x)) if _on else pool(x)


class _Activation:
    """An activation, which never overwrites its input on stacks: a convolution hands on a view there."""

    inplace: bool

    def forward(self, x: Tensor) -> Tensor:
        """Apply the function to each number."""
        act: Callable[[Tensor], Tensor] = super().forward  # type: ignore[misc]
        if not (_on and self.inplace):
            return act(x)
        try:
            self.inplace = False
            return act(x)
        finally:
            self.inplace = True


def _derive_stacked_classes(mixin: type, *kinds: type[nn.Module]) -> dict[type[nn.Module], type[nn.Module]]:
    return {kind: for_stacks(type(kind.__name__, (mixin, kind), {})) for kind in kinds}


ACTIVATIONS = (
    nn.ReLU, nn.LeakyReLU, nn.ReLU6, nn.ELU, nn.CELU, nn.SELU, nn.SiLU, nn.Mish, nn.Hardswish, nn.Hardtanh,
    nn.Hardsigmoid,
)  # fmt: skip
OWN: dict[type[nn.Module], type[nn.Module]] = {
    nn.Conv2d: Conv2d,
    nn.ConvTranspose2d: ConvTranspose2d,
    nn.PReLU: PReLU,
    nn.Linear: Linear,
    nn.GroupNorm: GroupNorm,
    nn.Flatten: Flatten,
    **_derive_stacked_classes(_Pool, nn.MaxPool2d, nn.AvgPool2d, nn.AdaptiveAvgPool2d),
    **_derive_stacked_classes(_Activation, *ACTIVATIONS),
}
"""torch's layers, and ours for each: the same parameters, and for one client the same computation."""
