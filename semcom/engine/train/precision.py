"""Arithmetic of encoders and heads: `RunConfig.precision`. The link, the losses and the optimiser stay in float32."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode

PRODUCTS = (F.linear, F.conv1d, F.conv2d, F.conv3d, F.conv_transpose1d, F.conv_transpose2d, F.conv_transpose3d)
"""The functions whose tensors are the factors of products, and what is added to these."""


def dtype_of(precision: str) -> torch.dtype:
    """Return the type in which weights, features and losses are kept."""
    return torch.float64 if precision == "float64" else torch.float32


def autocast_of(precision: str) -> torch.dtype | None:
    """Return the type to which autocast rounds the factors of products, or None."""
    return torch.bfloat16 if precision == "bf16" else None


@contextmanager
def casting(dtype: torch.dtype | None, device: torch.device, stacked: bool = False) -> Iterator[None]:
    """Turn on autocast to `dtype` on a device, inside vmap too where it is `stacked`; None leaves all as it is."""
    if dtype is None:
        yield
        return
    with torch.autocast(device.type, dtype), _Stacked(dtype) if stacked else nullcontext():
        yield


class _Stacked(TorchFunctionMode):
    """The part of autocast that is missing inside vmap, which takes functions apart into operations unknown to it.

    The factors of convolutions and linear layers are rounded. Batch normalisation, whose rounded values and unrounded
    statistics do not go together there, is computed on unrounded ones.
    """

    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__()
        self.dtype = dtype

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func is F.batch_norm:
            return func(args[0].float(), *args[1:], **kwargs).to(args[0].dtype)
        if func in PRODUCTS:
            args, kwargs = map(self._round, args), {name: self._round(value) for name, value in kwargs.items()}
        return func(*args, **kwargs)

    def _round(self, value: Any) -> Any:
        return value.to(self.dtype) if isinstance(value, Tensor) and value.is_floating_point() else value


@contextmanager
def rounding(precision: str) -> Iterator[None]:
    """Let CUDA round factors of float32 products to TF32, or not; by default torch does so in convolutions alone."""
    kinds = torch.backends.cuda.matmul, torch.backends.cudnn.conv  # type: ignore[attr-defined]
    before = [kind.fp32_precision for kind in kinds]
    for kind in kinds:
        kind.fp32_precision = "tf32" if precision == "tf32" else "ieee"
    try:
        yield
    finally:
        for kind, old in zip(kinds, before, strict=True):
            kind.fp32_precision = old
