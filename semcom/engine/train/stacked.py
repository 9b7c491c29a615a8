"""Networks of k clients called at once: vmap, with the operations in which it takes a detour done on stacks instead.

vmap runs any network, and most operations well. Of these there are better forms: convolutions (`convolution`), batch
normalisation, which is one over k times as many channels, and activations in place, of which autograd keeps copies. And
autocast does not see into it.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.func import vmap
from torch.overrides import TorchFunctionMode

from semcom.engine.train.convolution import Geometry, Pair, convolve

PRODUCTS = (F.linear, F.conv1d, F.conv2d, F.conv3d, F.conv_transpose1d, F.conv_transpose2d, F.conv_transpose3d)
"""The functions whose tensors are the factors of products, and what is added to these."""


def call_stacked(
    call: Callable[..., Tensor], tensors: Mapping[str, Tensor], x: Tensor | None, autocast: torch.dtype | None = None
) -> Tensor:
    """Call a function of a client's tensors, and of its input, for all clients of a stack.

    Args:
        call: `(tensors, x)` of one client, or `(tensors)` where there is no input.
        tensors: by name, `[k, ...]`.
        x: input, `[k, b, ...]`, or None.
        autocast: type that the factors of products are rounded to, or None.

    Returns:
        the clients' outputs, `[k, ...]`.
    """
    given = (dict(tensors),) if x is None else (dict(tensors), x)
    with _OnStacks(autocast):
        return vmap(call, randomness="error")(*given)


class _OnStacks(TorchFunctionMode):
    """The operations of a network inside vmap, done better.

    With autocast, the factors of convolutions and linear layers are rounded. Batch normalisation, whose rounded values
    and unrounded statistics do not go together there, is computed on unrounded ones.
    """

    def __init__(self, autocast: torch.dtype | None) -> None:
        super().__init__()
        self.autocast = autocast

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func in PRODUCTS:
            args, kwargs = map(self._round, args), {name: self._round(value) for name, value in kwargs.items()}
            return _conv2d(*args, **kwargs) if func is F.conv2d else func(*args, **kwargs)
        if func is F.batch_norm:
            return _batch_norm(*args, **kwargs)
        at = _place_of_inplace(func)
        if at is not None:
            args = tuple(value for i, value in enumerate(args) if i < at)
            kwargs = {**kwargs, "inplace": False}
        return func(*args, **kwargs)

    def _round(self, value: Any) -> Any:
        rounds = self.autocast is not None and isinstance(value, Tensor) and value.is_floating_point()
        return value.to(self.autocast) if rounds else value


@lru_cache(maxsize=1024)
def _place_of_inplace(func: Any) -> int | None:
    """Return which argument of an activation says that it writes over its input, which is its last; None of others."""
    if getattr(func, "__module__", None) != F.__name__:
        return None
    try:
        names = list(inspect.signature(func).parameters)
    except (TypeError, ValueError):  # written in C
        return None
    return names.index("inplace") if names[-1:] == ["inplace"] else None


def _conv2d(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: int | Pair = 1,
    padding: int | Pair | str = 0,
    dilation: int | Pair = 1,
    groups: int = 1,
) -> Tensor:
    if isinstance(padding, str) or x.dim() != 4:
        return F.conv2d(x, weight, bias, stride, padding, dilation, groups)
    geometry = Geometry(
        _pair(x.shape[2:]), _pair(weight.shape[2:]), _pair(stride), _pair(padding), _pair(dilation), groups
    )
    convolved: Tensor = _Convolve.apply(x, weight, bias, geometry)  # type: ignore[assignment]
    return convolved


def _pair(value: Any) -> Pair:
    return (value, value) if isinstance(value, int) else (int(value[0]), int(value[-1]))


def _batch_norm(
    x: Tensor,
    mean: Tensor,
    var: Tensor,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Tensor:
    normalised: Tensor = _Normalise.apply(
        x.float() if x.dtype == torch.bfloat16 else x, mean, var, weight, bias, training, momentum, eps
    )  # type: ignore[assignment]
    return normalised.to(x.dtype)


class _ForVmap(torch.autograd.Function):
    """A function that is only called inside vmap, which hands its rule the stacks."""

    @staticmethod
    def forward(*args: Any) -> Tensor:
        raise RuntimeError("a function of stacks was called outside of vmap")

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        raise RuntimeError("a function of stacks is differentiated by its rule")


class _Convolve(_ForVmap):
    @staticmethod
    def vmap(info: Any, dims: Any, x: Tensor, weight: Tensor, bias: Tensor | None, geometry: Geometry) -> Any:
        x, weight = _first(x, dims[0], info.batch_size), _first(weight, dims[1], info.batch_size)
        return convolve(x, weight, None if bias is None else _first(bias, dims[2], info.batch_size), geometry), 0


class _Normalise(_ForVmap):
    @staticmethod
    def vmap(info: Any, dims: Any, x: Tensor, *rest: Any) -> Any:
        k = info.batch_size
        channels = [
            None if t is None else _first(t, d, k).flatten(0, 1) for t, d in zip(rest[:4], dims[1:5], strict=True)
        ]
        side = _first(x, dims[0], k).transpose(0, 1).flatten(1, 2)
        mean, var, weight, bias = channels
        # This function, as it works on the stack's order of memory as it is: `F.batch_norm` hands some to cuDNN.
        normalised = torch.native_batch_norm(side, weight, bias, mean, var, *rest[4:])[0]
        return normalised.unflatten(1, (k, -1)).transpose(0, 1), 0


def _first(t: Tensor, dim: int | None, k: int) -> Tensor:
    """Return a tensor with the clients as its first axis; what they have in common is repeated without a copy."""
    return t.expand(k, *t.shape) if dim is None else t.movedim(dim, 0)
