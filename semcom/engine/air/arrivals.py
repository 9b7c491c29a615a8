"""Arrivals of a round: clients that decode the broadcast, and those of them whose uploads arrive.

Error-free uploads may be lost or late. A client that loses the broadcast, or is out of coverage, takes no part.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from semcom.engine.air.losses import MEANT, Losses
from semcom.engine.air.rates import Direction, Rates
from semcom.engine.air.timeline import Timeline


@dataclass
class Arrivals:
    """Arrivals of the current round.

    Attributes:
        bits_per_float, timeline: as of an `Air` and its configuration.
        rates: of the run.
        through: name of an upload -> client -> whether it arrived.
        late: clients whose uploads ended after the deadline.
        lost: number of lost uploads.
        sent: name of an upload -> client -> bits of its last block.
        down_bits: bits of the broadcast block, assumed to be a whole model.
        called: scheduled clients within coverage. None before the first call of `reach`.
        reached, unreached: those of them that decoded the broadcast, and the number of the other scheduled clients.
        losses: of the run so far, by client.
    """

    bits_per_float: int
    rates: Rates
    timeline: Timeline | None
    through: dict[str, dict[int, bool]] = field(default_factory=dict)
    late: set[int] = field(default_factory=set)
    lost: int = 0
    sent: dict[str, dict[int, float]] = field(default_factory=dict)
    down_bits: float = 1.0
    called: np.ndarray | None = None
    reached: np.ndarray = field(default_factory=lambda: np.arange(0))
    unreached: int = 0
    losses: Losses = field(default_factory=Losses)

    def begin(self) -> None:
        """Begin a round."""
        self.through, self.late, self.lost, self.sent = {}, set(), 0, {}
        self.called, self.reached, self.unreached = None, np.arange(0), 0

    @property
    def sure(self) -> bool:
        """True if all that is sent up error-free arrives, and from all clients."""
        return self.timeline is None and self.everybody

    @property
    def everybody(self) -> bool:
        """True if all clients that are called take part."""
        return self.rates.repeats and self.rates.covers_all

    def reach(self, ids: np.ndarray, numbers: int) -> np.ndarray:
        """Select the scheduled clients that decode the broadcast.

        With repetition these are all clients within coverage.

        Args:
            ids: the scheduled clients.
            numbers: of a whole model, for the length of the broadcast block.
        """
        if self.everybody:
            return ids
        # Drawn once in a round, as a method may ask again.
        if self.called is None:
            self.down_bits = float(numbers * self.bits_per_float)
            bits = np.full(len(ids), self.down_bits)
            covered = ids if self.rates.covers_all else ids[self.rates.cover(ids, bits)]
            lost = np.zeros(len(covered), dtype=bool)
            if not self.rates.repeats:
                lost = self.rates.draw_losses("down", covered, bits[: len(covered)])
            self.called, self.reached = covered, covered[~lost]
            self.unreached = len(ids) - len(self.reached)
            self.losses.add(MEANT, np.setdiff1d(ids, self.reached).tolist())
            self.losses.add("air.coverage", np.setdiff1d(ids, covered).tolist())
            self.losses.add("air.outage", covered[lost].tolist())
        return self.reached

    def choose_rates(
        self, direction: Direction, ids: np.ndarray, bits: np.ndarray, broadcast: bool, name: str
    ) -> np.ndarray:
        """Compute the bits per use, net of repetitions or as sent without them, `[n]`; note the blocks.

        Args:
            direction: up or down.
            ids: the clients, `[n]`.
            bits: of each client's block, `[n]`.
            broadcast: whether all clients get the same block.
            name: of the upload.
        """
        if self.rates.repeats:
            return self.rates.measure(direction, ids, bits, broadcast)
        if broadcast and self.called is not None:  # at the rate of the worst, who may not have heard it
            rates = self.rates.choose(direction, self.called, np.full(len(self.called), self.down_bits), True)
            return np.full(len(ids), rates.min())
        if direction == "up":
            self.sent.setdefault(name, {}).update(zip(ids.tolist(), bits.tolist(), strict=True))
        return self.rates.choose(direction, ids, bits, broadcast)

    def find(self, ids: np.ndarray, name: str = "") -> np.ndarray:
        """Find the clients whose upload `name` arrived, bool `[n]` on the host. The result is fixed for the round."""
        if self.sure:
            return np.ones(len(ids), dtype=bool)
        known = self.through.setdefault(name, {})
        if (new := np.array([k for k in ids.tolist() if k not in known], dtype=np.int64)).size:
            late, lost = np.zeros(len(new), dtype=bool), np.zeros(len(new), dtype=bool)
            if self.timeline is not None:
                late = self.timeline.find_late(new)
            if not self.rates.repeats:
                sent = self.sent.get(name, {})
                bits = np.array([sent.get(k, self.down_bits) for k in new.tolist()])
                lost = self.rates.draw_losses("up", new, bits, name)
            self.late |= set(new[late].tolist())
            self.lost += int(lost.sum())
            self.losses.add(MEANT, new.tolist())
            self.losses.add("train.deadline_s", new[late].tolist())
            # A lost upload that would also have been late counts once.
            self.losses.add("air.outage", new[lost & ~late].tolist())
            known |= dict(zip(new.tolist(), (~late & ~lost).tolist(), strict=True))
        return np.array([known[k] for k in ids.tolist()], dtype=bool)

    def summarize(self) -> dict[str, float]:
        """Summarize the round: its length, and the numbers of late and unreached clients and of lost uploads."""
        found: dict[str, float] = {}
        if self.timeline is not None:
            found["round_s"] = self.timeline.length_s()
            if self.timeline.deadline_s is not None:
                found["late"] = len(self.late)
        if not self.rates.repeats:
            found["lost"] = self.lost
        if not self.everybody:
            found["unreached"] = self.unreached
        return found

    def list_times(self) -> dict[str, list[float]]:
        """List each client's seconds by activity, and the late clients; {} if time is not counted."""
        found = {} if self.timeline is None else self.timeline.list_clients()
        return {**found, "late": sorted(self.late)} if found else {}
