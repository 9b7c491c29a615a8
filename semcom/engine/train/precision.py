"""Arithmetic of encoders and heads: `RunConfig.precision`. The link, the losses and the optimiser stay in float32."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch


def dtype_of(precision: str) -> torch.dtype:
    """Return the type in which weights, features and losses are kept."""
    return torch.float64 if precision == "float64" else torch.float32


def autocast_of(precision: str) -> torch.dtype | None:
    """Return the type to which autocast rounds the factors of products, or None."""
    return torch.bfloat16 if precision == "bf16" else None


@contextmanager
def rounding(precision: str) -> Iterator[None]:
    """Set how CUDA computes products while the context lasts.

    tf32 lets it round the factors of float32 products, which torch by default does in convolutions alone. With tf32 and
    bf16 the fastest algorithm is found by trying, in each process anew; with float32 and float64 the same is taken
    every time, so that the same numbers come out.
    """
    cudnn: Any = torch.backends.cudnn
    exact, products = precision in ("float32", "float64"), "tf32" if precision == "tf32" else "ieee"
    wanted = [
        (torch.backends.cuda.matmul, "fp32_precision", products),
        (cudnn.conv, "fp32_precision", products),
        (cudnn, "deterministic", exact),
        (cudnn, "benchmark", not exact),
    ]
    before = [(kind, name, getattr(kind, name)) for kind, name, _ in wanted]
    try:
        for kind, name, value in wanted:
            setattr(kind, name, value)
        yield
    finally:
        for kind, name, value in before:
            setattr(kind, name, value)
