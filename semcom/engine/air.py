"""The air: everything that a method sends goes through here, is counted, and may meet the channel.

Counts come from the host's schedule (shapes and numbers of samples), never from the values of tensors, so counting does
not make an accelerator wait.

Conventions. Split features and gradients: d numbers per sample. Uncoded (analog) exchange of n numbers: one
transmission of n. `Link.cost` says what both take: half a channel use per number, and more where the link sends pilots,
prefixes or redundancy. Error-free exchange: `bits_per_float` bits per number at `bits_per_use` bits per use. Labels
cost log2(C) bits each, error-free. The participating clients share the band, equally unless the link has given shares,
so a client's airtime is its uses over its part of the bandwidth. Energy is that of the link's symbols, and Es for each
use of error-free exchange. Without a channel (the link `none`) floats and bits are counted, and nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from channels import Link
from channels.link import Cost
from semcom.config import AirConfig
from semcom.engine.host.sending import send
from semcom.engine.store.population import Population, Prefix, in_part

Direction = Literal["up", "down"]


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
        snr_db: `(direction, ids) -> [n]`, the clients' SNRs in dB; on the host.
        totals: the traffic of each direction so far.
        client_rounds: participating clients, summed over rounds.
        participants: clients of this round.
    """

    config: AirConfig
    link: Link
    draw: Callable[[str, str, int, int], dict[str, Tensor]]
    snr_db: Callable[[Direction, np.ndarray], Tensor]
    totals: dict[Direction, Traffic] = field(default_factory=lambda: {"up": Traffic(), "down": Traffic()})
    client_rounds: int = 0
    participants: int = 0

    def up(self, pop: Population, part: Prefix, name: str = "") -> Population:
        """Send a part of each model, parameters and buffers, from the clients to the base station.

        Args:
            pop: the clients' models.
            part: prefix or prefixes of what is sent.
            name: names the draws; a second model that goes the same way in a round takes a name, to meet its own noise.

        Returns:
            the models as the base station has them.
        """
        return self._models("up", pop, part, name)

    def down(self, pop: Population, part: Prefix, name: str = "") -> Population:
        """Send a part of each model, parameters and buffers, from the base station to the clients.

        Args:
            pop: the models; a shared part is sent to each client.
            part: prefix or prefixes of what is sent.
            name: names the draws, as for `up`.

        Returns:
            the models as the clients have them; what is shared and arrives without errors stays shared.
        """
        return self._models("down", pop, part, name)

    def send(self, direction: Direction, name: str, values: Tensor, ids: np.ndarray, floats: np.ndarray) -> Tensor:
        """Send one tensor per client, `[n, ...]`, and return the tensors as they arrive.

        Args:
            direction: up or down.
            name: names the draws.
            values: the tensors, zero where nothing is sent.
            ids: the clients, `[n]`.
            floats: how many numbers of each tensor are sent, `[n]`.
        """
        self._count(direction, ids, floats)
        return self._noisy(direction, name, values, ids, floats) if self.config.parameters == "analog" else values

    def features(
        self, ids: np.ndarray, sizes: Sequence[Sequence[int]], d: int, classes: int, back: bool = True
    ) -> None:
        """Count the split traffic of mini-batches: features and labels up and, with `back`, gradients down.

        Args:
            ids: the clients, `[n]`.
            sizes: samples of each mini-batch, for each client.
            d: numbers per sample.
            classes: C, of which a label is one.
            back: whether gradients come down.
        """
        owner = np.repeat(np.arange(len(ids)), [len(batches) for batches in sizes])
        numbers = d * np.array([b for batches in sizes for b in batches], dtype=np.float64)
        cost = self.link.cost(numbers, ids[owner])
        floats, uses, energy = (np.bincount(owner, n, len(ids)) for n in (numbers, cost.uses, cost.energy))
        bits = floats / d * np.log2(classes)
        labels = bits / self.config.bits_per_use
        self._add("up", ids, floats, bits, Cost(uses + labels, energy + labels))
        if back:
            self._add("down", ids, floats, 0 * bits, Cost(uses, energy))

    def begin(self, clients: int) -> None:
        """Begin a round with so many clients."""
        self.client_rounds += clients
        self.participants = clients

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

    def _models(self, direction: Direction, pop: Population, part: Prefix, name: str) -> Population:
        self._count(direction, pop.ids, pop.numbers(part))
        if self.config.parameters == "ideal":
            return pop
        cohorts = []
        for c in pop.spread(part).stacks():  # each client hears its own copy of what they have in common
            crossing = (n for n in c.tensors if in_part(n, part) and not n.endswith("running_var"))
            sent = {n: self._noisy(direction, name + n, c.tensors[n], c.ids) for n in crossing}
            cohorts.append(replace(c, tensors={**c.tensors, **sent}))
        return Population(tuple(cohorts))

    def _noisy(
        self, direction: Direction, name: str, values: Tensor, ids: np.ndarray, floats: np.ndarray | None = None
    ) -> Tensor:
        """Transmit uncoded values, scaled by their r.m.s. (side information, error-free), two numbers per symbol.

        The r.m.s. is that of the `floats` numbers sent (None: all), so that zeros that are not sent lend no power.
        """
        flat = values.reshape(len(values), -1)
        sent = np.full(len(flat), flat.shape[1]) if floats is None else floats.clip(min=1)
        count = send(torch.as_tensor(sent[:, None]).to(flat.dtype), flat.device)
        rms = (flat.square().sum(1, keepdim=True) / count).sqrt()
        unit = torch.where(rms > 0, flat / rms, 0.0)
        unit = torch.nn.functional.pad(unit, (0, unit.shape[1] % 2))
        drawn = [self.draw(direction, name, int(k), unit.shape[1]) for k in ids]
        stacked = {key: torch.stack([d[key] for d in drawn]).squeeze(1) for key in drawn[0]}
        there = send({"drawn": stacked, "snr_db": self.snr_db(direction, ids)}, values.device)
        symbols = torch.view_as_complex(unit.unflatten(1, (-1, 2)).contiguous()) / 2**0.5
        got = self.link.transmit(symbols, there["drawn"], there["snr_db"]) * 2**0.5
        return (torch.view_as_real(got).flatten(1)[:, : flat.shape[1]] * rms).view_as(values)

    def _count(self, direction: Direction, ids: np.ndarray, floats: np.ndarray) -> None:
        if self.config.parameters == "analog":
            self._add(direction, ids, floats, 0 * floats, self.link.cost(floats, ids))
            return
        bits = floats * self.config.bits_per_float
        uses = bits / self.config.bits_per_use
        self._add(direction, ids, floats, bits, Cost(uses, uses))

    def _add(self, direction: Direction, ids: np.ndarray, floats: np.ndarray, bits: np.ndarray, cost: Cost) -> None:
        total = self.totals[direction]
        total.floats += float(floats.sum())
        total.bits += float(bits.sum())
        if not self.link.radio:
            return
        total.uses += float(cost.uses.sum())
        total.airtime_s += float((cost.uses / self._bandwidth(ids)).sum())
        total.energy_j += float(cost.energy.sum()) * self.config.symbol_energy

    def _bandwidth(self, ids: np.ndarray) -> np.ndarray | float:
        """Return each client's part of the band in Hz.

        Equal parts are those of the round's clients, not of the `ids`.
        """
        shares, whole = self.link.shares, self.config.bandwidth_hz
        assert whole is not None, "semcom.resolve fills it"
        return whole * (1 / self.participants if shares is None else np.array(shares)[ids])
