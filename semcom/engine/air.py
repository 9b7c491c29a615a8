"""The air: everything that a method sends goes through here, is counted, and may meet the channel.

Counts come from the host's schedule (shapes and numbers of samples), never from the values of tensors, so counting does
not make an accelerator wait.

Conventions. Split features and gradients: d numbers per sample. Uncoded (analog) exchange of n numbers: one
transmission of n. `Link.cost` says what both take: half a channel use per number, and more where the link sends
pilots, prefixes or redundancy. Error-free exchange: `bits_per_float` bits per number at the rate `air.rate`. Labels
cost log2(C) bits each, error-free. The participating clients share the band, equally unless the link has given shares,
so a client's airtime is its uses over its part of the bandwidth. What all clients get is one broadcast, and what they
send at once one transmission: each has the whole band, and its uses count once. Energy is that of the link's symbols,
and Es for each use of error-free exchange. Without a channel (the link `none`) floats and bits are counted, and nothing
else.

An error-free update may be compressed, and what goes up may be lost, or late. `arrived` says who got through, and
averages are over those.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property, lru_cache, partial
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor

from channels import Link
from channels.coding.mcs import TABLE, capacity
from channels.link import Cost
from channels.power import PAIR, to_features, to_pairs
from channels.superposition import Inversion, average_superposed_gain, draw_superposed_gains
from semcom.config import AirConfig
from semcom.engine.compression import (
    count_kept,
    count_quantised_bits,
    count_sparse_bits,
    is_compressed,
    keep_largest,
    quantise,
)
from semcom.engine.host.sending import send_to_device
from semcom.engine.store.population import Cohort, Order, Population, Prefix, StoredCohort, average, in_part
from semcom.engine.timeline import Timeline

logger = logging.getLogger(__name__)

Direction = Literal["up", "down"]
RATES = np.array(sorted(scheme.efficiency for scheme in TABLE))
"""Bits per channel use of 5G's schemes."""


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
        config: how things are sent and counted.
        link: the run's channel, for uncoded exchange.
        draw: `(kind, name, client, numbers) -> realisation`, keyed, for one client's tensor; on the host.
        key: `(kind, name, client) -> generator`, of such a realisation.
        snr_db: `(direction, ids) -> [n]`, the clients' SNRs in dB; on the host.
        totals: the traffic of each direction so far.
        client_rounds: participating clients, summed over rounds.
        participants: clients of this round.
        report: logs a value for each client of the round.
        logs: whether this process logs warnings.
        powers_w: transmit powers in a cell, which a client spreads over its part of the band, or alone with others over
            all of it when they send at once.
        timeline: the time of the round; None: it is not counted.
        residual: what `top-k` has left out of each client's updates so far; None: nothing is left out.
        through: whether a client got through in this round, by the name of what it sent.
        late: clients that were beyond the deadline when they had sent.
        lost: transmissions of this round that were lost.
    """

    config: AirConfig
    link: Link
    draw: Callable[[str, str, int, int], dict[str, Tensor]]
    key: Callable[[str, str, int], torch.Generator]
    snr_db: Callable[[Direction, np.ndarray], Tensor]
    totals: dict[Direction, Traffic] = field(default_factory=lambda: {"up": Traffic(), "down": Traffic()})
    client_rounds: int = 0
    participants: int = 0
    report: Callable[[str, Tensor], None] = lambda name, values: None
    logs: bool = False
    powers_w: Mapping[Direction, float] | None = None
    timeline: Timeline | None = None
    residual: Population | None = None
    through: dict[str, dict[int, bool]] = field(default_factory=dict)
    late: set[int] = field(default_factory=set)
    lost: int = 0

    def up(self, pop: Population, part: Prefix, name: str = "", since: Population | None = None) -> Population:
        """Send a part of each model, parameters and buffers, from the clients to the base station.

        Args:
            pop: the clients' models.
            part: prefix or prefixes of what is sent.
            name: names the draws; a second model that goes the same way in a round takes a name, to meet its own noise.
            since: what `down` gave, where these models began: uncoded or compressed, the difference to it is sent, and
                the base station adds what it had sent itself (None: the models themselves are sent). Only updates
                without a name are compressed.

        Returns:
            the models as the base station has them; those that did not get through too, see `arrived`.
        """
        if self.config.compress != "none" and since is not None and not name:
            return self._send_compressed(pop, part, since)
        self._count("up", pop.ids, pop.numbers(part))
        return pop if self.config.parameters == "ideal" else self._models("up", pop, part, name, since)

    def down(self, pop: Population, part: Prefix, name: str = "") -> Population:
        """Send a part of each model, parameters and buffers, from the base station to the clients.

        What is shared is one broadcast over the whole band, and counted once; the clients' own goes to each of them.

        Args:
            pop: the models.
            part: prefix or prefixes of what is sent.
            name: names the draws, as for `up`.

        Returns:
            the models as the clients have them; what is shared and arrives without errors stays shared.
        """
        self._count_models_down(pop, part)
        if self.config.parameters == "ideal":
            return pop
        return Received(self._models("down", pop, part, name, None).cohorts, pop)

    def average(
        self, pop: Population, part: Prefix, weights: Tensor, since: Population | None = None, name: str = ""
    ) -> dict[str, Tensor]:
        """Send a part of the clients' models up, and return its weighted mean as the base station has it.

        With `air.access superposed` all clients send at once and the channel adds: see `channels.superposition`. The
        mean is over the clients that `arrived`; if there are none, it is what `since` began with.

        Args:
            pop, part, since, name: as for `up`.
            weights: `[K]`, in the order of `pop.ids`, summing to 1.

        Returns:
            name -> `[1, ...]`, ready for `Population.share`.
        """
        at_once = self.config.access == "superposed"
        if at_once:
            floats = pop.numbers(part)
            cost = self.link.cost(floats[:1].astype(np.float64), pop.ids[:1])
            together = Cost(cost.uses, cost.energy * len(floats))  # all of them send
            self._add("up", pop.ids, floats, 0 * floats, together, once=True)
        else:
            pop = self.up(pop, part, name, since)
        here = self.arrived(pop.ids, name)
        if not here.any():
            return _read_shared_start(since, part)
        if not here.all():
            weights, ids = Order(np.flatnonzero(here), weights.device)(weights), pop.ids[here]
            pop, since, weights = pop.select(ids), since and since.select(ids), weights / weights.sum()
        return self._average_superposed(pop, part, weights, since, name) if at_once else average(pop, part, weights)

    def _average_superposed(
        self, pop: Population, part: Prefix, weights: Tensor, since: Population | None, name: str
    ) -> dict[str, Tensor]:
        mean, starts, silent = average(pop, part, weights), _map_update_starts(since, pop), []
        for tensor in [n for n, t in mean.items() if t.is_floating_point() and not n.endswith("running_var")]:
            held = [(c, start(tensor)) for c, start in zip(pop.stacks(), starts, strict=True)]
            each = [_weighted(weights[pop.at(c)], c.tensors[tensor] - start.received) for c, start in held]
            missed = [_weighted(weights[pop.at(c)], start.missed) for c, start in held]
            ids = np.concatenate([c.ids for c, _ in held])
            error, sent = self._superpose(name + tensor, torch.cat(each), ids)
            if sent is not None:
                silent.append(1 - sent)
            mean[tensor] = mean[tensor] + (torch.cat(missed).sum(0) + error)
        if silent:
            self.report("cut-off", torch.cat(silent, 1).mean(1))
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
            values: the tensors, zero where nothing is sent.
            ids: the clients, `[n]`.
            floats: how many numbers of each tensor are sent, `[n]`.
            broadcast: the tensors are one and the same, which all clients hear at once: counted once.
        """
        self._count(direction, ids, floats, broadcast)
        if self.config.parameters == "ideal":
            return values
        return values + self._error(direction, name, values, ids, floats)

    def features(
        self, ids: np.ndarray, sizes: Sequence[Sequence[int]], d: int, target_bits: float, back: bool = True
    ) -> None:
        """Count the split traffic of mini-batches: features and labels up and, with `back`, gradients down.

        Args:
            ids: the clients, `[n]`.
            sizes: samples of each mini-batch, for each client.
            d: numbers per sample.
            target_bits: of what a client sends with the features of a sample, error-free: its label.
            back: whether gradients come down.
        """
        owner = np.repeat(np.arange(len(ids)), [len(batches) for batches in sizes])
        numbers = d * np.array([b for batches in sizes for b in batches], dtype=np.float64)
        cost = self.link.cost(numbers, ids[owner])
        floats, uses, energy = (np.bincount(owner, n, len(ids)) for n in (numbers, cost.uses, cost.energy))
        bits = floats / d * target_bits
        labels = bits / self._rate("up", ids)
        self._add("up", ids, floats, bits, Cost(uses + labels, energy + labels))
        if back:
            self._add("down", ids, floats, 0 * bits, Cost(uses, energy))

    def arrived(self, ids: np.ndarray, name: str = "") -> np.ndarray:
        """Return which clients got through with what they have just sent up as `name`, bool `[n]` on the host.

        In a round the answer to a name stays.
        """
        if self.timeline is None and self.config.repeat:
            return np.ones(len(ids), dtype=bool)
        known = self.through.setdefault(name, {})
        if not (new := np.array([k for k in ids.tolist() if k not in known], dtype=np.int64)).size:
            return np.array([known[k] for k in ids.tolist()], dtype=bool)
        late = np.zeros(len(new), dtype=bool) if self.timeline is None else self.timeline.find_late(new)
        lost = np.zeros(len(new), dtype=bool) if self.config.repeat else self._draw_losses(new, name)
        self.late |= set(new[late].tolist())
        self.lost += int(lost.sum())
        known |= dict(zip(new.tolist(), (~late & ~lost).tolist(), strict=True))
        return np.array([known[k] for k in ids.tolist()], dtype=bool)

    def summarize_round(self) -> dict[str, float]:
        """Return how long the round took, and how many clients were late and transmissions lost, where that happens."""
        found: dict[str, float] = {}
        if self.timeline is not None:
            found["round_s"] = self.timeline.length_s()
            if self.timeline.deadline_s is not None:
                found["late"] = len(self.late)
        return found if self.config.repeat else {**found, "lost": self.lost}

    def begin(self, clients: int) -> None:
        """Begin a round with so many clients."""
        self.client_rounds += clients
        self.participants = clients
        self.through, self.late, self.lost = {}, set(), 0
        if self.timeline is not None:
            self.timeline.begin()

    def per_client_round(self) -> dict[str, dict[str, float]]:
        """Return the traffic per participating client and round: {"up": {"floats": ..}, "down": ..}."""
        n = max(self.client_rounds, 1)
        return {way: {k: v / n for k, v in asdict(total).items()} for way, total in self.totals.items()}

    def counters(self) -> dict[str, Any]:
        """Return the totals as plain numbers."""
        return {"client_rounds": self.client_rounds, **{way: asdict(total) for way, total in self.totals.items()}}

    def resume(self, counters: Mapping[str, Any]) -> None:
        """Continue from what `counters` returned."""
        self.client_rounds = counters["client_rounds"]
        self.totals = {"up": Traffic(**counters["up"]), "down": Traffic(**counters["down"])}

    def _models(
        self, direction: Direction, pop: Population, part: Prefix, name: str, since: Population | None
    ) -> Population:
        cohorts = []
        # Each client hears its own copy of what they have in common.
        for c, start in zip(pop.spread(part).stacks(), _map_update_starts(since, pop), strict=True):
            arrived = {}
            for n in [n for n in c.tensors if in_part(n, part) and not n.endswith("running_var")]:
                received, missed = start(n)
                error = self._error(direction, name + n, c.tensors[n] - received, c.ids)
                arrived[n] = c.tensors[n] + (missed + error)
            cohorts.append(replace(c, tensors={**c.tensors, **arrived}))
        return Population(tuple(cohorts))

    def _send_compressed(self, pop: Population, part: Prefix, since: Population) -> Population:
        """Return the models as the base station has them after compressed updates; remember what these left out."""
        floats, bits = self._count_compressed(pop, part)
        self._add_error_free("up", pop.ids, floats, bits)
        before = None if self.residual is None else self.residual.select(pop.ids)
        memory = [None] * len(pop.cohorts) if before is None else before.stacks()
        cohorts, rest = [], []
        for c, start, left in zip(pop.spread(part).stacks(), _map_update_starts(since, pop), memory, strict=True):
            arrived, missing = {}, {}
            for n in _list_compressed(c, part):
                if left is not None and n not in left.tensors:
                    raise ValueError(f"{n}: what top-k leaves out is remembered of parts in `Method.averages` alone")
                received = start(n).received
                update = c.tensors[n] - received
                wanted = update if left is None else update + left.tensors[n]
                sent = self._compress(n, wanted, c.ids)
                arrived[n], missing[n] = received + sent, wanted - sent
            cohorts.append(replace(c, tensors={**c.tensors, **arrived}))
            if left is not None:
                rest.append(replace(left, tensors={**left.tensors, **missing}))
        if self.residual is not None:
            self.residual = self.residual.put(Population(tuple(rest)))
        return Population(tuple(cohorts))

    def _compress(self, name: str, values: Tensor, ids: np.ndarray) -> Tensor:
        if self.config.compress == "top-k":
            return keep_largest(values, self.config.top_fraction)
        generators = [self.key("compress", name, int(k)) for k in ids]
        uniforms = [torch.rand(values[0].numel(), generator=g, dtype=torch.float64) for g in generators]
        return quantise(values, self.config.quantise_bits, send_to_device(torch.stack(uniforms), values.device))

    def _count_compressed(self, pop: Population, part: Prefix) -> tuple[np.ndarray, np.ndarray]:
        """Return how many numbers and bits each client sends of compressed updates, `[K]` both."""
        own, floats = self.config, pop.numbers(part)
        bits = floats * own.bits_per_float
        for c in pop.cohorts:
            for n in [c.tensors[name][0].numel() for name in _list_compressed(c, part)]:
                if own.compress == "quantise":
                    sent, size = n, count_quantised_bits(n, own.quantise_bits, own.bits_per_float)
                else:
                    sent = count_kept(n, own.top_fraction)
                    size = count_sparse_bits(n, own.top_fraction, own.bits_per_float)
                floats[pop.at(c)] += sent - n
                bits[pop.at(c)] += size - n * own.bits_per_float
        return floats, bits

    def _draw_losses(self, ids: np.ndarray, name: str) -> np.ndarray:
        """Draw which clients' transmissions are lost: where the channel is too bad for the rate, or by `outage`."""
        if self._faded is None:
            chances = [torch.rand((), generator=self.key("lost", name, int(k))) for k in ids]
            return np.array([float(chance) < self.config.outage for chance in chances], dtype=bool)
        each = zip(ids, self._compute_noise("up", ids), strict=True)
        powers = [self._measure_power(self.draw("up", f"lost {name}", int(k), 2), no) for k, no in each]
        drawn = [float(power.flatten()[0]) for power in powers]
        return self._compute_limit("up", ids, torch.tensor(drawn, dtype=torch.float64)) < self._choose_rate("up", ids)

    def _error(
        self, direction: Direction, name: str, values: Tensor, ids: np.ndarray, floats: np.ndarray | None = None
    ) -> Tensor:
        """Return the error of uncoded values that are sent to or by each client, two numbers per symbol.

        They are scaled by their r.m.s. (side information, error-free): that of the `floats` numbers sent (None: all),
        so that zeros that are not sent lend no power.
        """
        symbols, rms = _scale_for_air(values, floats)
        drawn = [self.draw(direction, name, int(k), 2 * symbols.shape[1]) for k in ids]
        snr_db = self.snr_db(direction, ids)
        host: Any = {"drawn": _stack_realisations(drawn), "snr_db": snr_db}
        mean = self._mean_gain(tuple(snr_db.tolist())) if self.link.equaliser == "mmse" else None
        if mean is not None:
            host["mean"] = mean.to(snr_db.dtype).unsqueeze(1)
        there = send_to_device(host, values.device)
        got = self.link.transmit(symbols, there["drawn"], there["snr_db"])
        error = got / there["mean"] - symbols if mean is not None else got - symbols
        return _weighted(rms.squeeze(1), _unpair_numbers(error, values))

    def _superpose(self, name: str, values: Tensor, ids: np.ndarray) -> tuple[Tensor, Tensor | None]:
        """Return the error of the sum of `values` `[n, ...]` when all send at once, and which symbols each sends."""
        symbols = _pair_numbers(values)
        drawn = _stack_realisations([self.draw("up", name, int(k), 2 * symbols.shape[1]) for k in ids])
        host: Any = {"snr_db": self.snr_db("up", ids)}
        if self.powers_w is not None:  # over the whole band, not over a part of it
            host["snr_db"] = host["snr_db"] - 10 * math.log10(self.participants)
        gains, sent = self.link.gain(drawn), None
        if gains is not None:
            host["arrives"], kept = self._inversion.invert(gains, self.key("csi", name, 0))
            sent = kept.to(host["snr_db"].dtype)
        if "noise" in drawn:
            host["noise"] = drawn["noise"][0]
        there = send_to_device(host, values.device)
        error = self._inversion.error(symbols, there.get("arrives"), there.get("noise"), there["snr_db"])
        return _unpair_numbers(error[None], values[:1])[0], sent

    @cached_property
    def _typical(self) -> Mapping[str, Tensor]:
        return draw_superposed_gains(self.link)

    @cached_property
    def _mean_gain(self) -> Callable[[tuple[float, ...]], Tensor | None]:
        """SNRs in dB -> `average_superposed_gain`, which all tensors that are sent at these SNRs have in common."""

        @lru_cache(maxsize=4)
        def at(snrs_db: tuple[float, ...]) -> Tensor | None:
            return average_superposed_gain(self.link, self._typical, torch.tensor(snrs_db, dtype=torch.float64))

        return at

    @cached_property
    def _inversion(self) -> Inversion:
        threshold = 10 ** (self.config.truncation_db / 10)
        return Inversion.over(self.link.gain(self._typical), threshold, self.config.csi_error)

    def _count_models_down(self, pop: Population, part: Prefix) -> None:
        """Count models that come down: what the clients of a cohort share once, what they own for each."""
        for c in pop.cohorts:
            shared = sum(t.numel() for n, t in c.common.items() if in_part(n, part))
            each = np.ones(len(c.ids))
            if shared:
                self._count("down", c.ids, shared * each, broadcast=True)
            if own := c.counts(part) - shared:
                self._count("down", c.ids, own * each)

    def _count(self, direction: Direction, ids: np.ndarray, floats: np.ndarray, broadcast: bool = False) -> None:
        if self.config.parameters == "analog":
            self._add(direction, ids, floats, 0 * floats, self.link.cost(floats, ids), broadcast)
            return
        self._add_error_free(direction, ids, floats, floats * self.config.bits_per_float, broadcast)

    def _add_error_free(
        self, direction: Direction, ids: np.ndarray, floats: np.ndarray, bits: np.ndarray, broadcast: bool = False
    ) -> None:
        once = direction == "up" and not self.config.repeat
        uses = bits / (self._choose_rate(direction, ids) if once else self._rate(direction, ids))
        self._add(direction, ids, floats, bits, Cost(uses, uses), broadcast)

    def _rate(self, direction: Direction, ids: np.ndarray) -> np.ndarray:
        """Return the bits that arrive per channel use of each client, what has to be sent again included."""
        rate = self._choose_rate(direction, ids)
        return rate if self.config.rate == "fixed" or self._faded is None else rate * (1 - self.config.outage)

    def _choose_rate(self, direction: Direction, ids: np.ndarray) -> np.ndarray:
        """Return the bits per channel use that each client sends."""
        own = self.config
        if own.rate == "fixed":
            if self.logs and self.link.noisy and len(ids):
                self._check_rate(float(self.snr_db(direction, ids).amin()))
            return np.full(len(ids), own.bits_per_use)
        faded = 1.0 if self._faded is None else self._faded if self.link.users == 1 else self._faded_at(direction, ids)
        limit = self._compute_limit(direction, ids, faded)
        if own.rate == "mcs":
            limit = RATES[(np.searchsorted(RATES, limit, "right") - 1).clip(0)]
        return limit

    def _compute_limit(self, direction: Direction, ids: np.ndarray, gain: Tensor | float) -> np.ndarray:
        """Return the bits per use that arrive with the gain |h|^2."""
        snr = torch.pow(10.0, (self.snr_db(direction, ids).double() - self.config.backoff_db) / 10)
        return torch.log2(1 + torch.as_tensor(gain, dtype=torch.float64) * snr).numpy()

    @cached_property
    def _faded(self) -> float | None:
        """The |h|^2 that is exceeded in all but a part `outage` of the transmissions; None without fading."""
        gain = self.link.gain(self._typical)
        return None if gain is None else float(gain.abs().square().flatten().quantile(self.config.outage))

    def _faded_at(self, direction: Direction, ids: np.ndarray) -> Tensor:
        """Return as `_faded` what takes the place of |h|^2 beside other users at each SNR."""
        powers = [self._measure_power(self._typical, no) for no in self._compute_noise(direction, ids)]
        return torch.stack([power.flatten().quantile(self.config.outage) for power in powers])

    def _compute_noise(self, direction: Direction, ids: np.ndarray) -> Tensor:
        return torch.pow(10.0, self.snr_db(direction, ids).double() / -10).view(-1, 1, 1)

    def _measure_power(self, drawn: Mapping[str, Tensor], no: Tensor) -> Tensor:
        """Return |h|^2 of a channel that fades, or what takes its place beside other users: SINR over SNR."""
        gain, others = self.link.gain_at(drawn, no), self.link.interference(drawn, no)
        assert gain is not None
        return gain.abs().square() / (1 if others is None else 1 + others / no)

    def _check_rate(self, snr_db: float) -> None:
        """Warn, once in a run, of a fixed rate that cannot be had at an SNR."""
        if self.config.bits_per_use > capacity(snr_db):
            self.logs = False
            logger.warning(
                "air.bits-per-use: %g bit per use are more than the capacity at %g dB, %.2g; with air.rate capacity or "
                "mcs the rate follows the SNR",
                *(self.config.bits_per_use, snr_db, capacity(snr_db)),
            )

    def _add(
        self,
        direction: Direction,
        ids: np.ndarray,
        floats: np.ndarray,
        bits: np.ndarray,
        cost: Cost,
        once: bool = False,
    ) -> None:
        """Add what clients send or get; `once`: in one transmission over the whole band, the longest there is."""
        total = self.totals[direction]
        total.floats += float(floats.sum())
        total.bits += float(bits.sum())
        if not self.link.radio or not len(ids):
            return
        uses, energy = (np.array([c.max()]) if once else c for c in cost)
        band = self._whole_hz if once else self._bandwidth(ids)
        powered = self._whole_hz if direction == "down" else band  # what a transmit power is spread over
        symbol = self.config.symbol_energy if self.powers_w is None else self.powers_w[direction] / powered
        if self.timeline is not None:
            self.timeline.spend(ids, uses / band)
        total.uses += float(uses.sum())
        total.airtime_s += float((uses / band).sum()) * (len(ids) if once else 1)  # each client waits for all of it
        total.energy_j += float((energy * symbol).sum())

    @property
    def _whole_hz(self) -> float:
        assert self.config.bandwidth_hz is not None, "semcom.resolve fills it"
        return self.config.bandwidth_hz

    def _bandwidth(self, ids: np.ndarray) -> np.ndarray | float:
        """Return each client's part of the band in Hz.

        Equal parts are those of the round's clients, not of the `ids`.
        """
        shares = self.link.shares
        return self._whole_hz * (self.link.users / self.participants if shares is None else np.array(shares)[ids])


@dataclass(frozen=True)
class Received(Population):
    """Models as clients have received them over the air.

    Attributes:
        sent: the same models as the base station sent them.
    """

    sent: Population | None = None

    def select(self, ids: np.ndarray) -> Received:
        """Return the models of some clients, and as they were sent."""
        return Received(super().select(ids).cohorts, self.sent and self.sent.select(ids))


class Start(NamedTuple):
    """Where a tensor in training began, at the clients, and what the base station has more there: `[1 or k, ...]`."""

    received: Tensor
    missed: Tensor


def _map_update_starts(since: Population | None, pop: Population) -> list[Callable[[str], Start]]:
    """Return for each cohort of `pop`: name of a tensor -> where it began."""

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


def _read_shared_start(since: Population | None, part: Prefix) -> dict[str, Tensor]:
    """Return what clients had in common of a part when they began, as it was sent to them: nothing if that is open."""
    sent = since.sent if isinstance(since, Received) else since
    return {n: t for c in (sent.cohorts if sent else ()) for n, t in c.common.items() if in_part(n, part)}


def _list_compressed(c: Cohort | StoredCohort, part: Prefix) -> list[str]:
    """Return the tensors of a part that are compressed."""
    return [n for n, t in c.tensors.items() if in_part(n, part) and is_compressed(n, t)]


def _weighted(weights: Tensor, values: Tensor) -> Tensor:
    """Return weights `[n]` times values `[n or 1, ...]`, `[n, ...]`."""
    return weights.to(values.dtype).view(-1, *[1] * (values.ndim - 1)) * values


def _scale_for_air(values: Tensor, floats: np.ndarray | None) -> tuple[Tensor, Tensor]:
    """Return values `[n, ...]` as complex symbols of unit power `[n, s]`, and their r.m.s. `[n, 1]`."""
    flat = values.reshape(len(values), -1)
    sent = np.full(len(flat), flat.shape[1]) if floats is None else floats.clip(min=1)
    count = send_to_device(torch.as_tensor(sent[:, None]).to(flat.dtype), flat.device)
    rms = (flat.square().sum(1, keepdim=True) / count).sqrt()
    return _pair_numbers(torch.where(rms > 0, flat / rms, 0.0)) / PAIR, rms * PAIR


def _pair_numbers(values: Tensor) -> Tensor:
    """Return numbers `[n, ...]` two by two as complex ones, `[n, s]`; an odd one has 0 beside it."""
    flat = values.reshape(len(values), -1)
    return to_pairs(torch.nn.functional.pad(flat, (0, flat.shape[1] % 2)))


def _unpair_numbers(pairs: Tensor, like: Tensor) -> Tensor:
    """Return complex numbers `[n, s]` as real ones, in the shape of `like` `[n, ...]`."""
    return to_features(pairs)[:, : like[0].numel()].reshape(like.shape)


def _stack_realisations(drawn: Sequence[Mapping[str, Tensor]]) -> dict[str, Tensor]:
    """Return realisations of one sample each, stacked: `[n, ...]`."""
    return {key: torch.stack([d[key] for d in drawn]).squeeze(1) for key in drawn[0]}
