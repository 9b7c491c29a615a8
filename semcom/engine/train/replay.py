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
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from semcom.engine.train.arena import Arena

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
    step: Callable[..., object], shapes: Sequence[object], first: int, what: str, device: torch.device, arena: Arena
) -> None:
    """Take steps on a GPU: after the `first` ones of a shape one is recorded, and the others replay it.

    So do those of later fits in the same arena, in which a step that comes again at all is worth a recording.

    Args:
        step: takes the step of a number, also of a number on the device, `[1]`.
        shapes: of all steps in order; steps of equal shapes launch the same.
        first: number of steps of each shape before the recording.
        what: names the steps, for `record_graph`.
        device: the GPU.
        arena: of the fit.
    """
    total = Counter(shapes)
    arena.fits += 1
    with _record_in_own_stream(device):
        for number, shape in enumerate(shapes):
            worth = arena.fits > 1 or total[shape] - first >= LEAST
            if shape not in arena.replays and arena.taken[shape] >= first and worth and what not in _refused:
                recorded = _record_step(step, number, what, device)
                if recorded is not None:
                    arena.replays[shape] = recorded
            arena.replays.get(shape, step)(number)
            arena.taken[shape] += 1


def _record_step(
    step: Callable[..., object], number: int, what: str, device: torch.device
) -> Callable[[int], object] | None:
    """Record a step, and return a function that carries out any step of its shape, by number, or None if refused."""
    on_device = torch.full((1,), number, device=device)
    again = record_graph(partial(step, number, on_device), what)
    if again is None:
        return None

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


def record_graph(work: Callable[[], object], what: str) -> Callable[[], object] | None:
    """Record the launches of some work without carrying it out, and return a function that launches them.

    All tensors that the work reads must stay in place, and it must write its results in place. For work that cannot be
    recorded, as it waits for the GPU, it is None; `what` names it in the log.
    """
    graph, touched = torch.cuda.CUDAGraph(), Touched()
    collecting = gc.isenabled()
    gc.disable()  # freeing what belongs to the GPU's library would spoil the recording
    try:
        graph.capture_begin(pool=_pool(), capture_error_mode="thread_local")
        try:
            with touched:
                work()
        finally:
            graph.capture_end()
    except RuntimeError as error:
        _refused.add(what)
        logger.info("steps of %s are launched one operation after the other: %s", what, str(error).splitlines()[0])
        return None
    finally:
        if collecting:
            gc.enable()
    _last[:] = [graph]

    def replay(held: object = touched.outside) -> None:
        graph.replay()

    return replay


class Touched(TorchDispatchMode):
    """A mode that notes the memory of others which operations read or write, and so keeps it from being freed.

    Attributes:
        outside: by address.
    """

    def __init__(self) -> None:
        super().__init__()
        self.outside: dict[int, torch.UntypedStorage] = {}
        self._made = set[int]()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Carry out an operation."""
        kwargs = kwargs or {}
        for storage in list_storages([*args, *kwargs.values()]):
            if storage.data_ptr() not in self._made:
                self.outside[storage.data_ptr()] = storage
        result = func(*args, **kwargs)
        self._made.update(s.data_ptr() for s in list_storages([result]) if s.data_ptr() not in self.outside)
        return result


def list_storages(values: Sequence[Any]) -> list[torch.UntypedStorage]:
    """List the memory of the GPU's tensors among values and in lists of them."""
    return [t.untyped_storage() for t in tree_leaves(values) if isinstance(t, torch.Tensor) and t.is_cuda]
