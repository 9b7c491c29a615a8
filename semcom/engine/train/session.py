"""The session: draws, counters, and this process's place among those of the run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from semcom.engine.host.clock import Clock
from semcom.engine.host.ranks import Team
from semcom.engine.store.population import Population, Prefix
from semcom.engine.train.arena import Arenas
from semcom.engine.train.draws import Draws
from semcom.engine.train.tally import Tally


@dataclass
class Session:
    """A run as one of its processes carries it out; training and evaluation work with it.

    Attributes:
        draws: images, channel, randomness.
        tally: the run's counters.
        clock: seconds by section.
        chunk: clients trained at once (None: not chosen yet).
        arenas: tensors that stay in place on a GPU.
    """

    draws: Draws
    tally: Tally
    clock: Clock
    chunk: int | None
    arenas: Arenas = field(default_factory=Arenas)

    @property
    def team(self) -> Team:
        """The processes that share this run's clients."""
        return self.tally.team

    def chunk_of(self, n: int) -> int:
        """Choose how many of n clients to take at a time: as few chunks as possible, of nearly equal size."""
        chunks = -(-n // (self.chunk or n))
        return -(-n // chunks)

    def compute(self, pop: Population, images: np.ndarray, train: Prefix) -> None:
        """Count the time that clients take for passes of their models over images, `[n]`: `Timeline.compute`."""
        if self.tally.air.timeline is not None:
            self.tally.air.timeline.compute(pop, images, self.draws.federation.images.shape[1:], train)

    def counters(self) -> dict[str, Any]:
        """Return the counters and the chosen chunk as plain numbers."""
        cuda = int(self.draws.device.type == "cuda")
        return {"chunk": self.chunk or 0, "chosen_for_cuda": cuda, **self.tally.counters()}

    def resume(self, counters: Mapping[str, Any]) -> None:
        """Continue from the result of `counters`."""
        self.tally.resume(counters)
        on_cuda = self.draws.device.type == "cuda"
        if self.draws.config.chunk == "auto" and counters["chosen_for_cuda"] == on_cuda:
            self.chunk = counters["chunk"]  # with another one, sums would be rounded differently
