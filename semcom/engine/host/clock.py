"""The clock of a run: seconds by section."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext

import torch

_NOTHING: AbstractContextManager[None] = nullcontext()
"""The fine section of a clock that is not fine: always the same object, so it costs a call and no memory."""


class Clock:
    """A clock that adds up seconds by section: `with clock("evaluate"): ...`.

    A nested section is named by its path, "train/forward", and its seconds are part of the outer section's.

    Args:
        fine: whether the sections inside a local epoch (`clock.fine("forward")`) are timed too. They are entered at
            every step, and on CUDA each section then waits for the device, so this slows a run down.
        device: device of the work.

    Attributes:
        seconds: path -> seconds so far.
        is_fine: as `fine`.
    """

    def __init__(self, fine: bool = False, device: torch.device | str = "cpu") -> None:
        self.seconds: dict[str, float] = {}
        self.is_fine, self._path = fine, ""
        self._wait: Callable[[], None] | None = None
        if fine and torch.device(device).type == "cuda":
            self._wait = lambda: torch.cuda.synchronize(device)

    def __call__(self, name: str) -> AbstractContextManager[None]:
        """Time a section from beginning to end, also if an exception ends it."""
        return _Section(self, name)

    def fine(self, name: str) -> AbstractContextManager[None]:
        """Time a section only if the clock is fine."""
        return _Section(self, name) if self.is_fine else _NOTHING

    def add(self, seconds: Mapping[str, float]) -> None:
        """Add the seconds of another clock: that of the process from which a run is taken up again."""
        for path, value in seconds.items():
            self.seconds[path] = self.seconds.get(path, 0.0) + value

    def _now(self) -> float:
        """Read the time in seconds, after waiting for a device that works ahead of the host."""
        if self._wait is not None:
            self._wait()
        return time.perf_counter()


class _Section:
    __slots__ = ("begun", "clock", "name", "outer")

    def __init__(self, clock: Clock, name: str) -> None:
        self.clock, self.name = clock, name

    def __enter__(self) -> None:
        clock = self.clock
        self.outer = clock._path
        clock._path = f"{self.outer}/{self.name}" if self.outer else self.name
        self.begun = clock._now()

    def __exit__(self, *error: object) -> None:
        clock = self.clock
        clock.seconds[clock._path] = clock.seconds.get(clock._path, 0.0) + clock._now() - self.begun
        clock._path = self.outer
