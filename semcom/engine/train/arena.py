"""Tensors that stay in place on a GPU from one fit to the next, so that recorded steps can be replayed in later rounds.

A CUDA graph reads and writes where it did when it was recorded. So a fit copies all inputs of its steps into an arena
when it begins, and its results out of it when it ends. Fits whose steps launch the same share an arena: those of the
same network, shapes, objective and settings.
"""

from __future__ import annotations

import dataclasses
from collections import Counter, OrderedDict, defaultdict
from collections.abc import Callable, Hashable, Mapping
from functools import partial
from types import BuiltinFunctionType, FunctionType, MethodType
from typing import Any

import torch
from torch import Tensor, nn

from semcom.engine.host.memory import measure_free_memory
from semcom.engine.host.sending import copy_all, count_bytes, list_leaves, replace_leaves, send_to_device

KEPT = 4
"""Arenas that a run keeps: those of the last fits. The others, and all when memory is short, are given up."""
SHORT = 8
"""Memory is short when less than one over this number of a GPU's is free."""


class Arena:
    """The tensors in place, and what was recorded on them.

    Attributes:
        tensors: inputs by their names in nested dicts, as `place` got them first.
        buffer: memory of what is sent from the host.
        zeros: tensors that are zero when a fit begins, by name: sums and the optimiser's state.
        kept: any other things that recorded steps share.
        replays: recorded steps by their shape.
        taken: number of steps of each shape so far.
        fits: number of fits so far.
    """

    def __init__(self) -> None:
        self.tensors: dict[str, Any] = {}
        self.buffer: Tensor | None = None
        self.zeros: dict[str, list[Tensor]] = {}
        self.kept: dict[str, Any] = {}
        self.replays: dict[object, Callable[[int], object]] = {}
        self.taken = Counter[object]()
        self.fits = 0

    def place(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Copy tensors of the device, in nested dicts, into those in place, and return these.

        The "stack" is laid out for training.
        """
        for name, value in values.items():
            if name not in self.tensors:
                lay = lay_for_training if name == "stack" else torch.empty_like
                self.tensors[name] = replace_leaves(value, iter([lay(t) for t in list_leaves(value)]))
        there = {name: self.tensors[name] for name in values}
        copy_all(list_leaves(there), list_leaves(values))
        return there

    def send(self, values: Mapping[str, Any], device: torch.device) -> dict[str, Any]:
        """Send tensors of the host, in nested dicts, into memory in place, all in one copy, and return them there.

        Those that are on the device already are copied as `place` does.
        """
        flat = list_leaves(values)
        computed = self.place({"computed": {str(i): t for i, t in enumerate(flat) if not t.is_cpu}})["computed"]
        if self.buffer is None:
            self.buffer = torch.empty(count_bytes(values), dtype=torch.uint8, device=device)
        there = list_leaves(send_to_device(values, device, self.buffer))
        return replace_leaves(values, iter([computed.get(str(i), t) for i, t in enumerate(there)]))

    def clear(self) -> None:
        """Set the tensors that begin at zero to zero."""
        kinds: dict[torch.dtype, list[Tensor]] = defaultdict(list)
        for t in (t for some in self.zeros.values() for t in some):
            kinds[t.dtype].append(t)
        with torch.no_grad():
            for some in kinds.values():
                torch._foreach_zero_(some)


class Arenas:
    """The arenas of a run, by what makes the steps of two fits launch the same."""

    def __init__(self) -> None:
        self._known: OrderedDict[Hashable, Arena] = OrderedDict()

    def find(self, network: nn.Module, about: object, inputs: object, sent: object, device: torch.device) -> Arena:
        """Find the arena of fits that agree, a new one if there is none, or if the values may hide a difference.

        Args:
            network: in training.
            about: values that decide what Python does in a step, such as the objective.
            inputs: tensors on the device, in nested dicts.
            sent: shapes of those on the host.
            device: the GPU.
        """
        try:
            key = network, describe(about), describe_inputs(inputs), sent
        except (Unknown, RecursionError):
            return Arena()
        arena = self._known.setdefault(key, Arena())
        self._known.move_to_end(key)
        free = measure_free_memory(device) + torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        if free * SHORT < torch.cuda.mem_get_info(device)[1]:
            self.clear()
        while len(self._known) > KEPT:
            self._known.popitem(last=False)
        return arena

    def clear(self) -> None:
        """Give up all arenas."""
        self._known.clear()


def lay_for_training(stack: Tensor) -> Tensor:
    """Make memory for weights, in the order in which their gradients lie, as a fused optimiser takes for granted.

    On a GPU, products of several clients give the gradients of matrices `[k, out, in]` transposed.
    """
    transposed = stack.dim() == 3 and len(stack) > 1
    empty = torch.empty_like(stack.mT if transposed else stack, memory_format=torch.contiguous_format)
    return empty.mT if transposed else empty


class Unknown(Exception):
    """A value may change without notice, or cannot be compared."""


def describe(value: Any, deep: bool = True) -> Hashable:
    """Describe a value so that equal descriptions mean that Python does the same with both.

    Functions are described by their code and what they hold, and an object that has a method, or that a function holds,
    by its attributes, if these are numbers, names or frozen (`deep`).

    Raises:
        Unknown: for a tensor, which may be another one in the next round, and any other object.
    """
    if value is None or isinstance(value, bool | int | float | str | bytes | type | torch.dtype | BuiltinFunctionType):
        return type(value), value
    if isinstance(value, tuple | list):
        return tuple(describe(each, deep) for each in value)
    if isinstance(value, frozenset | set):
        return frozenset(describe(each, deep) for each in value)
    if isinstance(value, Mapping):
        return tuple((name, describe(each, deep)) for name, each in value.items())
    if isinstance(value, partial):
        return describe((value.func, value.args, value.keywords), deep)
    if isinstance(value, MethodType):
        return describe(value.__func__), describe(value.__self__)
    if isinstance(value, FunctionType):
        held = [cell.cell_contents for cell in value.__closure__ or ()]
        given = value.__module__, value.__defaults__, value.__kwdefaults__
        return value.__code__, describe(given), describe(held)
    if dataclasses.is_dataclass(value) and value.__dataclass_params__.frozen:  # type: ignore[union-attr]
        return type(value), tuple(describe(getattr(value, f.name), deep) for f in dataclasses.fields(value))
    if deep and hasattr(value, "__dict__") and not isinstance(value, Tensor | nn.Module):
        return type(value), describe(vars(value), deep=False)
    raise Unknown


def describe_inputs(values: Any) -> Hashable:
    """Describe tensors in nested dicts by their shapes; numbers on the host, which a recorded step has read, as such.

    Raises:
        Unknown: for larger tensors of the host.
    """
    if isinstance(values, Mapping):
        return tuple((name, describe_inputs(each)) for name, each in values.items())
    if isinstance(values, Tensor) and not values.is_cpu:
        return values.shape, values.dtype
    if isinstance(values, Tensor) and values.dim():
        raise Unknown
    return describe(values.item() if isinstance(values, Tensor) else values)
