"""Arithmetic of encoders and heads: `RunConfig.precision`. The link, the losses and the optimiser stay in float32."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

import torch


def dtype_of(precision: str) -> torch.dtype:
    """In what weights, features and losses are kept."""
    return torch.float64 if precision == "float64" else torch.float32


def autocast_of(precision: str) -> torch.dtype | None:
    """What the factors of products are rounded to by autocast, if they are."""
    return torch.bfloat16 if precision == "bf16" else None


def casting(dtype: torch.dtype | None, device: torch.device) -> AbstractContextManager[object]:
    """Autocast to `dtype` on a device; nothing for None."""
    return nullcontext() if dtype is None else torch.autocast(device.type, dtype)


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
