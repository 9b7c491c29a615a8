"""The air: the exchange between a method's clients and base station, which is counted and may meet the channel.

Counts come from the host's schedule (shapes and numbers of samples), not from the values of tensors, so counting does
not make an accelerator wait; the energy of sums over the air is read when the totals are. What is frozen in a network
is the same on both sides, and is never sent.

Conventions. Split features and gradients: d numbers per sample. Uncoded (analog) exchange of n numbers: one
transmission of n. `Link.cost` gives the channel uses of both: half a use per number, and more if the link sends pilots,
prefixes or redundancy. Error-free exchange: `bits_per_float` bits per number at the rate `air.rate`. Labels cost
log2(C) bits each, error-free. The participating clients share the band, equally unless the link has given shares, so a
client's airtime is its uses over its part of the bandwidth. A broadcast to all clients, or their simultaneous
transmission, has the whole band, and its uses count once. Energy is that of the link's symbols, and Es for each use of
error-free exchange. Without a channel (the link `none`) only floats and bits are counted.

Error-free uploads may be compressed, lost or late: averages are over the clients whose `arrivals` are in time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from semcom.channels import Link
from semcom.channels.link import Cost
from semcom.channels.statistics import ClientStatistics
from semcom.config import AirConfig
from semcom.engine.air.arrivals import Arrivals
from semcom.engine.air.compression import is_compressed
from semcom.engine.air.rates import Direction
from semcom.engine.air.registry import ACCESS, COMPRESSIONS, PRIVACY, RATES
from semcom.engine.air.timeline import Timeline
from semcom.engine.air.uncoded import Uncoded
from semcom.engine.air.updates import Received, map_update_starts, read_shared_start
from semcom.engine.store.population import Order, Population, Prefix, in_part


@dataclass
class Traffic:
    """The traffic of one direction, summed over clients and rounds.

    Attributes:
        floats: numbers sent.
        bits: the bits of numbers that are sent error-free (0 for uncoded exchange).
        uses: complex channel uses.
        airtime_s: seconds.
        energy_j: joule.
    """

    floats: float = 0.0
    bits: float = 0.0
    uses: float = 0.0
    airtime_s: float = 0.0
    energy_j: float = 0.0


@dataclass
class Air:
    """The exchange between clients and base station.

    Attributes:
        config: the section `air`.
        link: the run's channel, for uncoded exchange.
        draw: `(kind, name, client, numbers, broadcast) -> realisation`, keyed, for one client's tensor; on the host.
        key: `(kind, name, client) -> generator`, of such a realisation.
        snr_db: `(direction, ids, broadcast) -> [n]`, the clients' SNRs in dB; on the host.
        totals: the traffic of each direction so far.
        client_rounds: participating clients, summed over rounds.
        participants: clients of this round.
        report: logs a value for each client of the round.
        logs: whether this process logs warnings.
        powers_w: transmit powers of clients with places. A client spreads its power over its part of the band, or over
            all of it if clients send at once. None: energies are counted by `air.symbol_energy`.
        sent_s: airtimes up of all clients so far, s `[K]`. None: not counted by client.
        lowering: `(direction, ids) -> [n]`, each client's fraction of its power under power control.
        powers_beside: `(direction, client) -> [U]`, the powers of several users as `Fades` has them.
        clock: the time of the run at which the round begins, s.
        timeline: the time of the round (None: not counted).
        clients: K, and `sampled`, whether a round's are a random choice of them, as privacy counts.
        whole: the channel of a broadcast, or of all clients at once.
        access, compression, privacy, rates: the parts of the exchange that the configuration names.
        uncoded: transmissions of numbers without error correction.
        arrivals: clients that get through.
    """

    config: AirConfig
    link: Link
    draw: Callable[[str, str, int, int, bool], dict[str, Tensor]]
    key: Callable[[str, str, int], torch.Generator]
    snr_db: Callable[[Direction, np.ndarray, bool], Tensor]
    totals: dict[Direction, Traffic] = field(default_factory=lambda: {"up": Traffic(), "down": Traffic()})
    client_rounds: int = 0
    participants: int = 0
    report: Callable[[str, Tensor], None] = lambda name, values: None
    logs: bool = False
    powers_w: Mapping[Direction, float] | None = None
    sent_s: np.ndarray | None = None
    lowering: Callable[[Direction, np.ndarray], np.ndarray] = lambda direction, ids: np.ones(len(ids))
    powers_beside: Callable[[Any, int], Tensor | None] = lambda direction, client: None
    clock: Callable[[], float] = lambda: 0.0
    clients: int = 0
    sampled: bool = False
    timeline: Timeline | None = None

    def __post_init__(self) -> None:
        own, statistics = self.config, ClientStatistics(self.link.carrier, self.powers_beside, self.clock)
        channel = (self.draw, self.key, self.snr_db, statistics)
        self.whole = self.link.broadcast()
        self._owed: list[tuple[float, Tensor]] = []
        self.uncoded = Uncoded(*channel)
        self.rates = RATES.get(own.rate)(own.options, self.link.carrier, *channel, self.clock, self.logs)
        self.access = ACCESS.get(own.access)(own.options, self)
        self.compression = COMPRESSIONS.get(own.compress)(own.options, own.bits_per_float, self.key)
        who = (self.clients, self.participants, self.sampled, not self.access.adds_up)
        self.privacy = PRIVACY.get(own.privacy)(own.options, self.key, *who)
        self.arrivals = Arrivals(own.bits_per_float, self.rates, self.timeline)

    def up(self, pop: Population, part: Prefix, name: str = "", since: Population | None = None) -> Population:
        """Send a part of each model, parameters and buffers, from the clients to the base station.

        Args:
            pop: the clients' models.
            part: prefix or prefixes of the sent tensors.
            name: names the draws; a second model on the same way in a round needs a name, to meet its own noise.
            since: the result of `down` with which training began: uncoded or compressed, the difference to it is sent,
                and the base station adds its own copy (None: the models themselves are sent).

        Returns:
            the models as the base station has them, also of clients that did not get through; see `arrivals`.
        """
        self.privacy.refuse("models of single clients go up")
        return self.send_models(pop, part, name, since)

    def send_models(self, pop: Population, part: Prefix, name: str = "", since: Population | None = None) -> Population:
        """Send models up as `up` does, on their way into an average."""
        part = pop.moving(part)
        if self.compression.compresses_models(since, name):
            self.add_error_free("up", pop.ids, *self.compression.count_models(pop, part), name=name)
            return self.compression.send_models(pop, part, name, since)
        self._count("up", pop.ids, pop.numbers(part), name=name)
        return pop if self.config.parameters == "ideal" else self._models("up", pop, part, name, since)

    def down(self, pop: Population, part: Prefix, name: str = "", only: np.ndarray | None = None) -> Population:
        """Send a part of each model, parameters and buffers, from the base station to the clients.

        Shared tensors are one broadcast over the whole band, counted once; own tensors go to each client.

        Args:
            pop: the models.
            part: prefix or prefixes of the sent tensors.
            name: names the draws, as for `up`.
            only: the clients whose models are returned (None: all); those of the others are counted alone.

        Returns:
            the models as the clients have them; shared tensors that arrive without errors stay shared.
        """
        part = pop.moving(part)
        self._count_models_down(pop, part)
        pop = pop if only is None else pop.select(only)
        if self.config.parameters == "ideal":
            return pop
        return Received(self._models("down", pop, part, name, None).cohorts, pop)

    def average(
        self, pop: Population, part: Prefix, weights: Tensor, since: Population | None = None, name: str = ""
    ) -> dict[str, Tensor]:
        """Send a part of the clients' models up, and compute its weighted mean as the base station has it.

        `air.access` decides how they are sent. The mean is over the clients that got through; without any it is the
        start of `since` ({} without `since`).

        Args:
            pop, part, since, name: as for `up`.
            weights: `[K]`, in the order of `pop.ids`, summing to 1.

        Returns:
            name -> `[1, ...]`, ready for `Population.share`.
        """
        part = pop.moving(part)
        pop, weights = self.privacy.clip(pop, part, since, weights, name)
        pop = self.access.send(pop, part, since, name)
        here = self.arrivals.find(pop.ids, name)
        if not here.any():
            return read_shared_start(since, part)
        if not here.all():
            weights, ids = Order(np.flatnonzero(here), weights.device)(weights), pop.ids[here]
            pop, weights = pop.select(ids), weights / weights.sum()
            since = None if since is None else since.select(ids)
        mean = self.privacy.blur(self.access.average(pop, part, weights, since, name), len(weights), name)
        for told, epsilon in self.privacy.list_epsilons().items():
            self.report(told, torch.tensor([epsilon]))
        return mean

    def send(
        self,
        direction: Direction,
        name: str,
        values: Tensor,
        ids: np.ndarray,
        floats: np.ndarray,
        broadcast: bool = False,
    ) -> Tensor:
        """Send one tensor per client, `[n, ...]`, and return the tensors as they arrive.

        Args:
            direction: up or down.
            name: names the draws.
            values: the tensors, zero where no number is sent.
            ids: the clients, `[n]`.
            floats: number of sent values of each tensor, `[n]`.
            broadcast: whether the tensors are the same and reach all clients at once: counted once.
        """
        if direction == "up":
            self.privacy.refuse(f"{name} goes up")
        if direction == "up" and self.compression.compresses_tensors():
            bits = np.where(floats > 0, self.compression.count_bits(floats), 0)
            self.add_error_free("up", ids, floats, bits, name=name)
            return self.compression.send_tensors(name, values, ids)
        self._count(direction, ids, floats, broadcast, name)
        if self.config.parameters == "ideal":
            return values
        return values + self.uncoded.draw_error(direction, name, values, ids, floats, broadcast)

    def features(
        self, ids: np.ndarray, sizes: Sequence[Sequence[int]], d: int, target_bits: float, back: bool = True
    ) -> None:
        """Count the split traffic of mini-batches: features and labels up and, with `back`, gradients down.

        Args:
            ids: the clients, `[n]`.
            sizes: samples of each mini-batch, for each client.
            d: numbers per sample.
            target_bits: bits of a sample's label, which goes up error-free.
            back: whether gradients come down.
        """
        owner = np.repeat(np.arange(len(ids)), [len(batches) for batches in sizes])
        numbers = d * np.array([b for batches in sizes for b in batches], dtype=np.float64)
        cost = self.link.cost(numbers, ids[owner])
        floats, uses, energy = (np.bincount(owner, n, len(ids)) for n in (numbers, cost.uses, cost.energy))
        bits = floats / d * target_bits
        # Labels of each mini-batch are a block of their own; a client may have no mini-batch.
        batches = np.array([max(1, len(own)) for own in sizes])
        labels = bits / self.rates.measure("up", ids, bits / batches) * self.link.overhead
        self.add("up", ids, floats, bits, Cost(uses + labels, energy + labels))
        if back:
            self.add("down", ids, floats, 0 * bits, Cost(uses, energy))

    def begin(self, round_: int, clients: int) -> None:
        """Begin a round with so many clients."""
        self.client_rounds += clients
        self.participants = clients
        self.arrivals.begin()
        self.privacy.begin()
        if self.timeline is not None:
            self.timeline.begin(round_)

    def owe(self, energy: float, times: Tensor) -> None:
        """Add energy up in units of Es, so many times as a device knows, when the totals are read."""
        self._owed.append((energy, times))

    def _settle(self) -> None:
        symbol = self._find_symbol_j("up", self._whole_hz) if self._owed else 0.0
        for energy, times in self._owed:
            self.totals["up"].energy_j += energy * symbol * float(times)
        self._owed.clear()

    def per_client_round(self) -> dict[str, dict[str, float]]:
        """Compute the traffic per participating client and round: {"up": {"floats": ..}, "down": ..}."""
        self._settle()
        n = max(self.client_rounds, 1)
        return {way: {k: v / n for k, v in asdict(total).items()} for way, total in self.totals.items()}

    def counters(self) -> dict[str, Any]:
        """Return the totals as plain numbers."""
        self._settle()
        found: dict[str, Any] = {"client_rounds": self.client_rounds}
        found |= {way: asdict(total) for way, total in self.totals.items()}
        found |= self.privacy.counters()
        found |= {} if self.timeline is None else {"timeline": self.timeline.counters()}
        return found if self.sent_s is None else {**found, "sent_s": self.sent_s.tolist()}

    def resume(self, counters: Mapping[str, Any]) -> None:
        """Continue from the result of `counters`; what is owed since then is forgotten."""
        self._owed.clear()
        self.client_rounds = counters["client_rounds"]
        self.totals = {"up": Traffic(**counters["up"]), "down": Traffic(**counters["down"])}
        self.privacy.resume(counters)
        if self.timeline is not None:
            self.timeline.resume(counters["timeline"])
        if self.sent_s is not None:
            self.sent_s = np.array(counters["sent_s"])

    def _models(
        self, direction: Direction, pop: Population, part: Prefix, name: str, since: Population | None
    ) -> Population:
        cohorts = []
        # Each client hears its own copy of what they have in common, and that is broadcast.
        each = zip(pop.spread(part).stacks(), pop.cohorts, map_update_starts(since, pop), strict=True)
        for c, sent, start in each:
            arrived, common = {}, {*sent.common} if direction == "down" else {*()}
            for n in [n for n, t in c.tensors.items() if in_part(n, part) and is_compressed(n, t)]:
                received, missed = start(n)
                update = c.tensors[n] - received
                error = self.uncoded.draw_error(direction, name + n, update, c.ids, broadcast=n in common)
                arrived[n] = c.tensors[n] + (missed + error)
            cohorts.append(replace(c, tensors={**c.tensors, **arrived}))
        return Population(tuple(cohorts))

    def _count_models_down(self, pop: Population, part: Prefix) -> None:
        """Count models that come down: shared tensors once, and their own for each client.

        What architectures share, such as a head, is one broadcast to all.
        """
        shared = [{n: t.numel() for n, t in c.common.items() if in_part(n, part)} for c in pop.cohorts]
        if all(sizes == shared[0] for sizes in shared):
            parts = [(pop.ids, sum(shared[0].values()))]
        else:
            parts = [(c.ids, sum(sizes.values())) for c, sizes in zip(pop.cohorts, shared, strict=True)]
        for ids, number in parts:
            if number:
                self._count("down", ids, number * np.ones(len(ids)), broadcast=True)
        for c, sizes in zip(pop.cohorts, shared, strict=True):
            if own := c.counts(part) - sum(sizes.values()):
                self._count("down", c.ids, own * np.ones(len(c.ids)))

    def _count(
        self, direction: Direction, ids: np.ndarray, floats: np.ndarray, broadcast: bool = False, name: str = ""
    ) -> None:
        if self.config.parameters == "analog":
            link = self.whole if broadcast else self.link
            self.add(direction, ids, floats, 0 * floats, link.cost(floats, ids), broadcast)
            return
        self.add_error_free(direction, ids, floats, floats * self.config.bits_per_float, broadcast, name)

    def add_error_free(
        self,
        direction: Direction,
        ids: np.ndarray,
        floats: np.ndarray,
        bits: np.ndarray,
        broadcast: bool = False,
        name: str = "",
    ) -> None:
        """Add error-free traffic of clients: `floats` numbers in `bits` bits each, `[n]` both."""
        uses = bits / self.arrivals.choose_rates(direction, ids, bits, broadcast, name) * self.link.overhead
        self.add(direction, ids, floats, bits, Cost(uses, uses), broadcast)

    def add(
        self,
        direction: Direction,
        ids: np.ndarray,
        floats: np.ndarray,
        bits: np.ndarray,
        cost: Cost,
        once: bool = False,
    ) -> None:
        """Add traffic of clients. `once`: in one transmission over the whole band, as long as the longest of them."""
        total = self.totals[direction]
        total.floats += float(floats.sum())
        total.bits += float(bits.sum())
        if not self.link.radio or not len(ids):
            return
        uses, energy = (np.array([c.max()]) if once else c for c in cost)
        energy = energy if once else energy * self.lowering(direction, ids)
        band = self._whole_hz if once else self._bandwidth(ids)
        # What a transmit power is spread over; the users of a resource have equal parts of the base station's.
        powered = self._whole_hz * self.link.users if direction == "down" and not once else band
        symbol = self._find_symbol_j(direction, powered)
        if self.timeline is not None:
            self.timeline.spend(ids, uses / band, "send_s" if direction == "up" else "receive_s")
        if direction == "up" and self.sent_s is not None:
            self.sent_s[ids] += uses / band
        total.uses += float(uses.sum())
        total.airtime_s += float((uses / band).sum()) * (len(ids) if once else 1)  # each client waits for all of it
        total.energy_j += float((energy * symbol).sum())

    def _find_symbol_j(self, direction: Direction, powered: Any) -> Any:
        """Find the energy of a symbol, J; `powered`: what a transmit power is spread over, Hz."""
        return self.config.symbol_energy if self.powers_w is None else self.powers_w[direction] / powered

    @property
    def _whole_hz(self) -> float:
        assert self.config.bandwidth_hz is not None, "semcom.resolve fills it"
        return self.config.bandwidth_hz

    def _bandwidth(self, ids: np.ndarray) -> np.ndarray | float:
        """Compute each client's part of the band in Hz; equal parts are those of the round's clients, not of `ids`."""
        shares = self.link.shares
        return self._whole_hz * (self.link.users / self.participants if shares is None else np.array(shares)[ids])

    def find_shares(self, ids: np.ndarray) -> np.ndarray | float:
        """Find how many of its parts a client's power is spread over when all send at once, over the whole band.

        1 without powers: an SNR is then that of any band.
        """
        if self.powers_w is None:
            return 1
        return self.participants if self.link.shares is None else 1 / np.array(self.link.shares)[ids]
