"""A deterministic part of a grid, for one job of a batch system's array."""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeVar

from semcom.config import ConfigError

T = TypeVar("T")


@dataclass(frozen=True)
class Shard:
    """Part `number` of `count`, counted from 1."""

    number: int
    count: int

    def __str__(self) -> str:
        return f"{self.number}/{self.count}"

    def of(self, runs: Mapping[str, T]) -> dict[str, T]:
        """Return every `count`-th of the runs, so that parts of a grid with the longest runs first take alike."""
        return dict(itertools.islice(runs.items(), self.number - 1, None, self.count))


def read_shard(text: str) -> Shard:
    """Return the part of "3/16". Raises ConfigError for any other text."""
    found = re.fullmatch(r"(\d{1,9})/(\d{1,9})", str(text))
    shard = Shard(*map(int, found.groups())) if found else Shard(0, 0)
    if not 1 <= shard.number <= shard.count:
        raise ConfigError(f"shard: {text!r} is no part of a grid; write 3/16 for the third of sixteen")
    return shard
