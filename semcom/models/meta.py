"""Networks without weights, on torch's meta device."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch.overrides import TorchFunctionMode


@contextmanager
def build_on_meta() -> Iterator[None]:
    """Build modules on the meta device while the context lasts: shapes and types without numbers.

    Normal draws are left out. They would change nothing, and computing their shapes would import parts of torch's
    compiler, which takes two seconds.
    """
    with torch.device("meta"), _Undrawn():
        yield


class _Undrawn(TorchFunctionMode):
    """Skip normal draws, so that they leave a tensor unchanged."""

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        if getattr(func, "__name__", None) == "normal_":
            return args[0] if args else kwargs["tensor"]
        return func(*args, **kwargs)
