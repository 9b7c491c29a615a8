"""Copies from the host to the device of a run, for which neither waits, and copies of many tensors at once."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Any

import numpy as np
import torch
from torch import Tensor

ALIGNED = 16
"""Bytes that a tensor's place in a copy is a multiple of: the size of the largest type of numbers, complex128."""


def send_to_device(values: Any, device: torch.device, buffer: Tensor | None = None) -> Any:
    """Send tensors of the host to a device, all in one copy; tensors that are there already stay.

    They go out of pinned memory, so that the host does not wait for the work that the device still has to do. On the
    host, tensors are returned unchanged, and share their memory with arrays.

    Args:
        values: a tensor, an array, or a dict of such, dicts of dicts included.
        device: the target.
        buffer: memory on the device, of `count_bytes` (None: new memory).

    Returns:
        the same dicts with tensors on the device.
    """
    flat = list_leaves(values)
    if device.type == "cpu":
        return replace_leaves(values, iter(flat))
    here = iter(_copy_to_device([t for t in flat if t.is_cpu], device, buffer))
    return replace_leaves(values, iter([next(here) if t.is_cpu else t for t in flat]))


def count_bytes(values: Any) -> int:
    """Count the bytes of the buffer that tensors of the host are sent in."""
    return _place_tensors([t for t in list_leaves(values) if t.is_cpu])[-1]


def list_leaves(values: object) -> list[Tensor]:
    """List the tensors and arrays in nested dicts, as tensors."""
    if isinstance(values, Mapping):
        return [t for value in values.values() for t in list_leaves(value)]
    return [values if isinstance(values, Tensor) else torch.from_numpy(np.ascontiguousarray(values))]


def replace_leaves(values: object, leaves: Iterator[Tensor]) -> Any:
    """Make the same nested dicts of other tensors."""
    if isinstance(values, Mapping):
        return {name: replace_leaves(value, leaves) for name, value in values.items()}
    return next(leaves)


def _place_tensors(tensors: list[Tensor]) -> list[int]:
    """Compute the first byte of each tensor in a buffer, and the number of bytes of all."""
    sizes = [t.numel() * t.element_size() for t in tensors]
    return list(accumulate((-(-n // ALIGNED) * ALIGNED for n in sizes), initial=0))


def _copy_to_device(tensors: list[Tensor], device: torch.device, there: Tensor | None) -> list[Tensor]:
    sizes, starts = [t.numel() * t.element_size() for t in tensors], _place_tensors(tensors)
    pinned = torch.empty(starts.pop(), dtype=torch.uint8, pin_memory=device.type == "cuda")

    def within(buffer: Tensor, i: int) -> Tensor:
        return buffer[starts[i] : starts[i] + sizes[i]].view(tensors[i].dtype).view(tensors[i].shape)

    for i, t in enumerate(tensors):
        within(pinned, i).copy_(t)
    there = pinned.to(device, non_blocking=True) if there is None else there.copy_(pinned, non_blocking=True)
    return [within(there, i) for i in range(len(tensors))]


def copy_all(targets: Sequence[Tensor], sources: Sequence[Tensor]) -> None:
    """Copy tensors into others, those that lie alike in one launch for each type."""
    kinds: dict[object, tuple[list[Tensor], list[Tensor]]] = defaultdict(lambda: ([], []))
    with torch.no_grad():
        for target, source in zip(targets, sources, strict=True):
            alike = (target.dtype, target.device) == (source.dtype, source.device)
            if alike and target.is_contiguous() and source.is_contiguous():
                for some, t in zip(kinds[target.dtype], (target, source), strict=True):
                    some.append(t)
            elif target.numel():
                target.copy_(source)
        for into, of in kinds.values():
            torch._foreach_copy_(into, of)


def clone_all(tensors: Sequence[Tensor]) -> list[Tensor]:
    """Copy tensors to memory of their own, each in torch's usual order."""
    made = [torch.empty_like(t, memory_format=torch.contiguous_format) for t in tensors]
    copy_all(made, tensors)
    return made
