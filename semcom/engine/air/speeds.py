"""Speeds at which clients compute, with which the time of rounds is counted."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from semcom.channels.options import MEASURE, NOT_NEGATIVE, BaseOptions, require
from semcom.engine.air.part import Part, Planned
from semcom.engine.host.keys import keyed


class Speeds(Part):
    """Speeds of the clients' computers; the base of all.

    Attributes:
        options: of the network.
    """

    def __init__(self, options: Any) -> None:
        self.options = options

    def draw(self, clients: int, seed: int) -> np.ndarray | None:
        """Draw the speed of each client in FLOP/s, `[K]`. None: the time of rounds is not counted."""
        raise NotImplementedError(f"{type(self).__name__} has no `draw`")


class LogNormal(Speeds):
    """Log-normal speeds about a mean."""

    @dataclass(frozen=True)
    class Options(BaseOptions):
        """Options of the distribution."""

        flops: float | None = None
        """Mean speed of the clients in FLOP/s, with which the time of rounds is counted, computing and airtime (None:
        it is not)."""
        flops_spread: float = 0.0
        """Standard deviation of the natural logarithm of the clients' speeds, which are log-normal."""

        def check(self) -> None:
            """Check the ranges."""
            require("flops", self.flops, MEASURE)
            require("flops_spread", self.flops_spread, NOT_NEGATIVE)

    @classmethod
    def list_unused(cls, run: Planned) -> Iterator[tuple[str, str]]:
        """Yield the settings of a time that is not counted."""
        if run.config.network.options.flops is None:
            yield from ((name, "network.flops is not given") for name in ("flops_spread", "train.deadline_s"))

    def draw(self, clients: int, seed: int) -> np.ndarray | None:
        """Draw them with the given mean, each once for the run."""
        if self.options.flops is None:
            return None
        normal = [
            float(torch.randn((), generator=keyed(seed, "speed", k), dtype=torch.float64)) for k in range(clients)
        ]
        spread = self.options.flops_spread
        return self.options.flops * np.exp(spread * np.array(normal) - spread**2 / 2)
