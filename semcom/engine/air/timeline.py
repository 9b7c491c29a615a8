"""The simulated time of a round: each client computes and sends, one after the other, and the slowest sets it.

A client computes its passes over images at a speed of its own, in FLOP/s; the base station's computing takes no time.
Transmissions take their airtime. With a deadline a round ends there at the latest, without later uploads.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.func import functional_call

from semcom.config import Resolved
from semcom.engine.air.registry import DOING, SPEEDS
from semcom.engine.store.population import Population, Prefix, list_trained_parameters
from semcom.models.snr import find_snr_inputs

TRIED = 2
"""Images of a pass in which operations are counted."""


@dataclass
class Timeline:
    """The time of a round.

    Attributes:
        speeds: of the clients, FLOP/s `[K]`.
        parts: of a model that run on the client, in order.
        deadline_s: latest end of a round.
        spent: seconds of this round so far, `[K]`.
        doing: these by activity, receiving, computing and sending: `DOING`.
        since_s: time of the run at which the round began.
        starts_s: these times of all rounds so far.
    """

    speeds: np.ndarray
    parts: Sequence[str]
    deadline_s: float | None
    spent: np.ndarray
    doing: dict[str, np.ndarray] = field(default_factory=dict)
    since_s: float = 0.0
    starts_s: list[float] = field(default_factory=list)
    _per_image: dict[tuple[nn.Module, tuple[int, ...], Prefix], float] = field(default_factory=dict)

    @classmethod
    def of(cls, config: Resolved, split: bool) -> Timeline | None:
        """Build the timeline of a run; None if time is not counted. A split method's head is the base station's."""
        speeds = SPEEDS.get(config.network.speeds)(config.network.options).draw(config.clients, config.seed)
        if speeds is None:
            return None
        parts = ("encoder.",) if split else ("encoder.", "head.")
        return cls(speeds, parts, config.train.deadline_s, np.zeros(config.clients))

    def __post_init__(self) -> None:
        self._clear()

    def begin(self, round_: int) -> None:
        """Begin a round, where the last one ended, or begin one again."""
        end = self.since_s + self.length_s()
        self.starts_s += [end] * (round_ - len(self.starts_s))
        self.since_s = self.starts_s[round_ - 1]
        self._clear()

    def _clear(self) -> None:
        self.spent = np.zeros_like(self.spent)
        self.doing = {name: np.zeros_like(self.spent) for name in DOING}

    def find_start_s(self, round_: int) -> float:
        """Find the time of the run at which a round begins, be it past, this one, or the next; 0 before the first."""
        if round_ > len(self.starts_s):
            return self.since_s + self.length_s()
        return self.starts_s[round_ - 1] if round_ else 0.0

    def counters(self) -> dict[str, Any]:
        """Return the beginnings of the rounds so far, and the end of this one."""
        return {"starts_s": list(self.starts_s), "end_s": self.since_s + self.length_s()}

    def resume(self, counters: Mapping[str, Any]) -> None:
        """Continue from the result of `counters`."""
        self.starts_s, self.since_s = list(counters["starts_s"]), counters["end_s"]
        self._clear()

    def spend(self, ids: np.ndarray, seconds: np.ndarray, name: str = "compute_s") -> None:
        """Add seconds of clients to one of `DOING`."""
        self.spent[ids] += seconds
        self.doing[name][ids] += seconds

    def compute(self, pop: Population, images: np.ndarray, shape: torch.Size, train: Prefix) -> None:
        """Add the time of passes over `images`, `[n]`: forward, and backward where a part is in training.

        Args:
            pop: n models.
            images: how many each client visits.
            shape: of an image.
            train: prefixes of the parts in training; () for none.
        """
        for c in pop.cohorts:
            key = (c.network, tuple(shape), train if isinstance(train, str) else tuple(train))
            if key not in self._per_image:
                self._per_image[key] = count_flops_per_image(c.network, shape, train, self.parts)
            self.spend(c.ids, images[pop.at(c)] * self._per_image[key] / self.speeds[c.ids])

    def find_late(self, ids: np.ndarray) -> np.ndarray:
        """Find the clients that are beyond the deadline by now, bool `[n]`."""
        return self.spent[ids] > (np.inf if self.deadline_s is None else self.deadline_s)

    def length_s(self) -> float:
        """Compute the length of the round so far."""
        return float(min(self.spent.max(), np.inf if self.deadline_s is None else self.deadline_s))

    def list_clients(self) -> dict[str, list[float]]:
        """List the active clients of this round, `client`, and their seconds by `DOING`."""
        ids = self.spent.nonzero()[0]
        return {"client": ids.tolist(), **{name: seconds[ids].tolist() for name, seconds in self.doing.items()}}


def count_flops_per_image(network: nn.Module, shape: torch.Size, train: Prefix, parts: Sequence[str]) -> float:
    """Count the floating-point operations of some parts of a network per image, by torch's `FlopCounterMode`.

    It counts products: convolutions and matrices, two operations for each multiplication and addition.

    Args:
        network: a `SplitModel`; it is run on the host, in evaluation mode.
        shape: of an image.
        train: prefixes of the parts in training: with any, the pass goes back, too, as far as these need it.
        parts: prefixes of the parts that are run, in order.
    """
    from torch.utils.flop_counter import FlopCounterMode, conv_flop_count  # here, as it takes a while to import

    def count_back(out: torch.Size, x: torch.Size, weight: torch.Size, *more: Any, **_: Any) -> int:
        """Count each gradient of a convolution as its forward pass; torch counts that of weights as without groups."""
        transposed, wanted = more[4], more[7]
        return sum(wanted[:2]) * conv_flop_count(list(x), list(weight), list(out), transposed=transposed)

    formulas = {torch.ops.aten.convolution_backward: count_back}
    learns = set(list_trained_parameters(network, train))
    # Zeros on the host, as the network may lie on the meta device; only shapes are counted.
    tensors = {name: torch.zeros(t.shape, dtype=t.dtype) for name, t in network.state_dict().items()}
    was = network.training
    network.eval()
    with torch.enable_grad(), FlopCounterMode(display=False, custom_mapping=formulas) as counter:
        x = torch.zeros(TRIED, *shape)
        for part in parts:
            of = {n.removeprefix(part): t for n, t in tensors.items() if n.startswith(part)}
            own = {n: t.requires_grad_(part + n in learns) if t.is_floating_point() else t for n, t in of.items()}
            module = network.get_submodule(part.rstrip("."))
            own |= {name: torch.zeros(1) for name in find_snr_inputs(module)}
            x = functional_call(module, own, (x,))
        # Autograd itself goes back only as far as the parts in training need it.
        if x.requires_grad:
            x.sum().backward()
    network.train(was)
    return counter.get_total_flops() / TRIED
