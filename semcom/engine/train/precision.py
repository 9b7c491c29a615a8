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
"""Functions whose tensors are the factors of products, and what is added to these."""


def dtype_of(precision: str) -> torch.dtype:
    """In what weights, features and losses are kept."""
    return torch.float64 if precision == "float64" else torch.float32


def autocast_of(precision: str) -> torch.dtype | None:
    """What the factors of products are rounded to by autocast, if they are."""
    return torch.bfloat16 if precision == "bf16" else None


@contextmanager
def casting(dtype: torch.dtype | None, device: torch.device, stacked: bool = False) -> Iterator[None]:
    """Autocast to `dtype` on a device, also within vmap where it is `stacked`; nothing for None."""
    if dtype is None:
        yield
        return
    with torch.autocast(device.type, dtype), _Stacked(dtype) if stacked else nullcontext():
        yield


class _Stacked(TorchFunctionMode):
    """What autocast leaves out within vmap, where functions are taken apart into operations that it does not know.

    The factors of convolutions and linear layers are rounded. Batch normalisation, whose rounded values and unrounded
    statistics do not go together there, is computed on unrounded ones.
    """

    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__()
        self.dtype = dtype

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Carries out a function of torch."""
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
    """Whether CUDA may round factors of float32 products to TF32: by default torch lets convolutions, not matrices."""
    kinds = torch.backends.cuda.matmul, torch.backends.cudnn.conv  # type: ignore[attr-defined]
    before = [kind.fp32_precision for kind in kinds]
    for kind in kinds:
        kind.fp32_precision = "tf32" if precision == "tf32" else "ieee"
    try:
        yield
    finally:
        for kind, old in zip(kinds, before, strict=True):
            kind.fp32_precision = old
