"""CUDA graphs: the launches of a step on a GPU are recorded once, and then replayed all at once."""

from __future__ import annotations

import gc
import logging
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache, partial
from typing import Any

import torch

logger = logging.getLogger(__name__)

LEAST = 3
"""Least number of replays of a recording, which costs about as much as a step."""
_refused: set[str] = set()
"""Streams of phases whose steps could not be recorded in this process."""
_last: list[Any] = []
"""The last graph, which keeps the memory of all of them."""


@cache
def _stream(device: torch.device) -> Any:
    return torch.cuda.Stream(device)


@cache
def _pool() -> Any:
    return torch.cuda.graph_pool_handle()


def replay_steps(
    step: Callable[..., object], shapes: Sequence[object], first: int, what: str, device: torch.device
) -> None:
    """Take steps on a GPU: after the `first` ones of a shape one is recorded, and the others replay it.

    Args:
        step: takes the step of a number, also of a number on the device, `[1]`.
        shapes: of all steps in order; steps of equal shapes launch the same.
        first: number of steps of each shape before the recording.
        what: names the steps, for `record_graph`.
        device: the GPU.
    """
    total, taken = Counter(shapes), Counter[object]()
    replays: dict[object, Callable[[int], object]] = {}
    with _record_in_own_stream(device):
        for number, shape in enumerate(shapes):
            if taken[shape] == first and total[shape] - first >= LEAST:
                replays[shape] = _record_step(step, number, what, device)
            replays.get(shape, step)(number)
            taken[shape] += 1


def _record_step(step: Callable[..., object], number: int, what: str, device: torch.device) -> Callable[[int], object]:
    """Record a step, and return a function that carries out any step of its shape, by number."""
    on_device = torch.full((1,), number, device=device)
    again = record_graph(partial(step, number, on_device), what)

    def replay(number: int) -> None:
        on_device.fill_(number)
        again()

    return replay


@contextmanager
def _record_in_own_stream(device: torch.device) -> Iterator[None]:
    """Let a GPU work in a stream of its own, which recording needs, apart from all work before and after."""
    stream, usual = _stream(device), torch.cuda.current_stream(device)
    stream.wait_stream(usual)
    try:
        with torch.cuda.stream(stream):
            yield
    finally:
        usual.wait_stream(stream)


def record_graph(work: Callable[[], object], what: str) -> Callable[[], object]:
    """Record the launches of some work without carrying it out, and return a function that launches them.

    All tensors that the work reads must stay in place, and it must write its results in place. Work that cannot be
    recorded, as it waits for the GPU, is returned itself; `what` names it in the log.
    """
    if what in _refused:
        return work
    graph = torch.cuda.CUDAGraph()
    collecting = gc.isenabled()
    gc.disable()  # freeing what belongs to the GPU's library would spoil the recording
    try:
        graph.capture_begin(pool=_pool(), capture_error_mode="thread_local")
        try:
            work()
        finally:
            graph.capture_end()
    except RuntimeError as error:
        _refused.add(what)
        logger.info("steps of %s are launched one operation after the other: %s", what, str(error).splitlines()[0])
        return work
    finally:
        if collecting:
            gc.enable()
    _last[:] = [graph]
    return graph.replay
