"""Arithmetic of encoders and heads: `RunConfig.precision`. The link, the losses and the optimiser stay in float32."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch


def dtype_of(precision: str) -> torch.dtype:
    """Return the type in which weights, features and losses are kept."""
    return torch.float64 if precision == "float64" else torch.float32


def autocast_of(precision: str) -> torch.dtype | None:
    """Return the type to which autocast rounds the factors of products, or None."""
    return torch.bfloat16 if precision == "bf16" else None


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
