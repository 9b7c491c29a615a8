"""Updates: the difference between a model in training and the model that its client received over the air."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from semcom.engine.store.population import Cohort, Population, Prefix, in_part


@dataclass(frozen=True)
class Received(Population):
    """Models as clients have received them over the air.

    Attributes:
        sent: the same models as the base station sent them.
    """

    sent: Population | None = None

    def select(self, ids: np.ndarray) -> Received:
        """Select the models of some clients, as received and as sent."""
        return Received(super().select(ids).cohorts, self.sent and self.sent.select(ids))


class Start(NamedTuple):
    """A tensor as training begins: as received, and the difference of the base station's copy, `[1 or k, ...]` both."""

    received: Tensor
    missed: Tensor


def map_update_starts(since: Population | None, pop: Population) -> list[Callable[[str], Start]]:
    """Return a function per cohort of `pop` from the name of a tensor to where it began."""

    def start(name: str, c: Cohort, here: Cohort | None, there: Cohort | None) -> Start:
        nothing = torch.zeros_like(c.tensors[name][:1])
        if here is None:
            return Start(nothing, nothing)
        received = here.tensors[name]
        return Start(received, nothing if there is None else there.tensors[name] - received)

    own: Sequence[Cohort] = pop.stacks()
    here = [None] * len(own) if since is None else since.stacks()
    sent = since.sent if isinstance(since, Received) else None
    there = [None] * len(own) if sent is None else sent.stacks()
    return [partial(start, c=c, here=h, there=t) for c, h, t in zip(own, here, there, strict=True)]


def read_shared_start(since: Population | None, part: Prefix) -> dict[str, Tensor]:
    """Return the shared tensors of a part as they were sent to the clients at first; {} without `since`."""
    sent = since.sent if isinstance(since, Received) else since
    return {n: t for c in (sent.cohorts if sent else ()) for n, t in c.common.items() if in_part(n, part)}
