"""Copies from the host to the device of a run, for which neither waits."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import accumulate
from typing import Any

import numpy as np
import torch
from torch import Tensor

ALIGNED = 16
"""Bytes that a tensor's place in a copy is a multiple of: the size of the largest type of numbers, complex128."""


def send_to_device(values: Any, device: torch.device) -> Any:
    """Send tensors of the host to a device, all in one copy; tensors that are there already stay.

    They go out of pinned memory, so that the host does not wait for the work that the device still has to do. On the
    host, tensors are returned unchanged, and share their memory with arrays.

    Args:
        values: a tensor, an array, or a dict of such, dicts of dicts included.
        device: the target.

    Returns:
        the same dicts with tensors on the device.
    """
    flat = list(_list_tensors(values))
    if device.type == "cpu":
        return _replace_tensors(values, iter(flat))
    here = iter(_copy_to_device([t for t in flat if t.is_cpu], device))
    return _replace_tensors(values, iter([next(here) if t.is_cpu else t for t in flat]))


def _list_tensors(values: object) -> Iterator[Tensor]:
    if isinstance(values, Mapping):
        for value in values.values():
            yield from _list_tensors(value)
    else:
        yield values if isinstance(values, Tensor) else torch.from_numpy(np.ascontiguousarray(values))


def _replace_tensors(values: object, leaves: Iterator[Tensor]) -> object:
    if isinstance(values, Mapping):
        return {name: _replace_tensors(value, leaves) for name, value in values.items()}
    return next(leaves)


def _copy_to_device(tensors: list[Tensor], device: torch.device) -> list[Tensor]:
    sizes = [t.numel() * t.element_size() for t in tensors]
    starts = list(accumulate((-(-n // ALIGNED) * ALIGNED for n in sizes), initial=0))
    pinned = torch.empty(starts.pop(), dtype=torch.uint8, pin_memory=device.type == "cuda")

    def within(buffer: Tensor, i: int) -> Tensor:
        return buffer[starts[i] : starts[i] + sizes[i]].view(tensors[i].dtype).view(tensors[i].shape)

    for i, t in enumerate(tensors):
        within(pinned, i).copy_(t)
    there = pinned.to(device, non_blocking=True)
    return [within(there, i) for i in range(len(tensors))]
