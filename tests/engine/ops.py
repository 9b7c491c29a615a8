"""What torch is asked to do: every operation, nested ones too, and how much memory it takes."""

from __future__ import annotations

from typing import Any

import torch
from torch.overrides import TorchFunctionMode


class Ops:
    """Records operations while it is entered.

    Attributes:
        names: of operations, such as "aten::index", in order; one that is part of another follows it.
        bytes: how much memory was asked for, also where it was given back at once.
    """

    def __enter__(self) -> Ops:
        """Begins."""
        self._profile = torch.autograd.profiler.profile(profile_memory=True)
        self._profile.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        """Ends; from here on the attributes are there."""
        self._profile.__exit__(*error)
        events = self._profile.function_events or []
        self.names = [event.name for event in events if event.name.startswith("aten::")]
        self.bytes = sum(max(0, event.self_cpu_memory_usage) for event in events)


class Words(TorchFunctionMode):
    """Records the names of torch's functions and methods as Python calls them, such as "tolist"."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Notes a call and carries it out."""
        self.names.append(getattr(func, "__name__", str(func)))
        return func(*args, **(kwargs or {}))
