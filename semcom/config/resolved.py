"""A run without open fields: `semcom.resolve` makes it of a request, and everything after works with it."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Literal

from semcom.config.fields import RunConfig, TrainConfig


@dataclass(frozen=True)
class Schedule(TrainConfig):
    """A training schedule without open fields, in which either `local_epochs` or `local_steps` is None."""

    rounds: int = field(kw_only=True)
    batch_size: int = field(kw_only=True)
    lr: float | tuple[float, ...] = field(kw_only=True)
    lr_milestones: tuple[int, ...] = field(kw_only=True)
    lr_decay: float | tuple[float, ...] = field(kw_only=True)
    optimizer: Literal["adam", "adamw", "sgd"] = field(kw_only=True)
    momentum: float = field(kw_only=True)
    weight_decay: float = field(kw_only=True)
    participation: float = field(kw_only=True)

    @property
    def part_factors(self) -> tuple[tuple[str, float], ...]:
        """The names of parts in `lr_parts` and the factors of their rates, the longest name first."""
        pairs = (part.partition("=") for part in self.lr_parts)
        return tuple(sorted(((name.strip(), float(factor)) for name, _, factor in pairs), key=lambda p: -len(p[0])))

    def rate_factor(self, round_: int) -> float:
        """Compute the factor of every rate in a round: the product over the milestones reached, or a cosine's.

        The cosine is that of torch's `CosineAnnealingLR` with a step per round. Before the first and after the last
        round the rate stays at its end of the curve.
        """
        if self.lr_schedule == "cosine":
            done = min(max(round_, 1), self.rounds) - 1
            return (1 + math.cos(math.pi * done / self.rounds)) / 2
        decay = self.lr_decay if isinstance(self.lr_decay, tuple) else (self.lr_decay,) * len(self.lr_milestones)
        reached = (f for start, f in zip(self.lr_milestones, decay, strict=True) if start <= round_)
        return math.prod(reached, start=1.0)


@dataclass(frozen=True)
class Resolved(RunConfig):
    """A run without open fields, which has passed the checks."""

    train: Schedule = field(kw_only=True)
    processes: int = 1

    @property
    def participants(self) -> int:
        """Number of clients that take part in a round, at least 1."""
        return max(1, round(self.train.participation * self.clients))
