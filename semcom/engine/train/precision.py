"""Arithmetic of encoders and heads: `RunConfig.precision`. The link, the losses and the optimiser stay in float32.

But TF32 is a switch of CUDA's for all products, so that those of distances and of SSIM are rounded with it too.

Also a reset of torch's global settings, on which a run's numbers would depend.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode

PRODUCTS = (F.linear, F.conv1d, F.conv2d, F.conv3d, F.conv_transpose1d, F.conv_transpose2d, F.conv_transpose3d)
"""The functions whose tensors are the factors of products, and summands of these."""


def dtype_of(precision: str) -> torch.dtype:
    """Return the type of weights, features and losses."""
    return torch.float64 if precision == "float64" else torch.float32


def autocast_of(precision: str) -> torch.dtype | None:
    """Return the type to which autocast rounds the factors of products, or None."""
    return torch.bfloat16 if precision == "bf16" else None


class InVmap(TorchFunctionMode):
    """The part of autocast that is missing inside vmap, which takes functions apart into operations unknown to it.

    The factors of convolutions and linear layers are rounded. Batch normalisation, whose rounded values and unrounded
    statistics do not go together there, works on unrounded values.
    """

    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__()
        self.dtype = dtype

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func is torch.native_batch_norm:
            normalised, *rest = func(args[0].float(), *args[1:], **kwargs)
            return normalised.to(args[0].dtype), *rest
        if func in PRODUCTS:
            args, kwargs = map(self._round, args), {name: self._round(value) for name, value in kwargs.items()}
        return func(*args, **kwargs)

    def _round(self, value: Any) -> Any:
        return value.to(self.dtype) if isinstance(value, Tensor) and value.is_floating_point() else value


@contextmanager
def set_precision(precision: str) -> Iterator[None]:
    """Set how CUDA computes products inside the context.

    tf32 lets it round the factors of float32 products, which torch by default does only in convolutions. With tf32 and
    bf16 each process tries which algorithm is fastest; with float32 and float64 the choice is fixed, so that the same
    numbers come out.
    """
    cudnn: Any = torch.backends.cudnn
    exact, products = precision in ("float32", "float64"), "tf32" if precision == "tf32" else "ieee"
    wanted = [
        (torch.backends.cuda.matmul, "fp32_precision", products),
        (cudnn.conv, "fp32_precision", products),
        (cudnn, "deterministic", exact),
        (cudnn, "benchmark", not exact),
    ]
    with _set_attributes(wanted):
        yield


@contextmanager
def reset_torch() -> Iterator[None]:
    """Reset torch to the settings of a fresh process inside the context; the caller's settings come back.

    Every entry to a run is in here: an outer `torch.set_default_dtype`, `torch.set_default_device`, `autocast`,
    `no_grad`, `inference_mode`, `set_float32_matmul_precision` or `set_flush_denormal` would else change its numbers,
    and not its hash.
    """
    backends: Any = torch.backends
    dtype, strict = torch.get_default_dtype(), torch.get_deterministic_debug_mode()
    flushes = not torch.full((), 1e-40, dtype=torch.float32, device="cpu").mul(1).item()
    casts = [kind for kind in ("cpu", "cuda") if torch.is_autocast_enabled(kind)]
    cached, inner = torch.is_autocast_cache_enabled(), torch.autocast_increment_nesting() > 1
    torch.autocast_decrement_nesting()
    device = torch.device("cpu") if torch.get_default_device().type != "cpu" else nullcontext()
    # Leaving a mode that is not on would change how autograd uses threads.
    inference = torch.inference_mode(False) if torch.is_inference_mode_enabled() else nullcontext()
    wanted = [
        (backends.cuda.matmul, "fp32_precision", "ieee"),
        (backends.cuda.matmul, "allow_bf16_reduced_precision_reduction", True),
        (backends.mkldnn.matmul, "fp32_precision", "ieee"),
        (backends.mkldnn.conv, "fp32_precision", "ieee"),
        (backends.mkldnn, "enabled", True),
        (backends.cudnn, "enabled", True),
    ]
    try:
        torch.set_default_dtype(torch.float32)
        torch.set_deterministic_debug_mode(0)
        torch.set_flush_denormal(False)
        for kind in casts:
            torch.set_autocast_enabled(kind, False)
        torch.set_autocast_cache_enabled(cached and not inner)  # it is emptied by the outermost autocast alone
        with device, inference, torch.enable_grad(), _set_attributes(wanted):
            yield
    finally:
        torch.set_autocast_cache_enabled(cached)
        for kind in casts:
            torch.set_autocast_enabled(kind, True)
        torch.set_flush_denormal(flushes)
        torch.set_deterministic_debug_mode(strict)
        torch.set_default_dtype(dtype)


@contextmanager
def _set_attributes(wanted: Sequence[tuple[Any, str, Any]]) -> Iterator[None]:
    """Set attributes, `(object, name, value)` each, inside the context."""
    before = [(kind, name, getattr(kind, name)) for kind, name, _ in wanted]
    try:
        for kind, name, value in wanted:
            setattr(kind, name, value)
        yield
    finally:
        for kind, name, value in before:
            setattr(kind, name, value)
