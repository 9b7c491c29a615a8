"""Access to the air: models that are averaged reach the base station one by one, or all at once as a sum."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from semcom.channels.link import Cost
from semcom.channels.options import NOT_NEGATIVE, BaseOptions, Rule, require
from semcom.channels.superposition import Inversion
from semcom.engine.air.compression import is_compressed
from semcom.engine.air.losses import MEANT
from semcom.engine.air.part import NO_CHANNEL, Part, Planned
from semcom.engine.air.uncoded import pair_numbers, stack_realisations, unpair_numbers, weigh_values
from semcom.engine.air.updates import map_update_starts
from semcom.engine.host.sending import send_to_device
from semcom.engine.store.population import Order, Population, Prefix, average


@dataclass(eq=False)
class Access(Part):
    """A way in which the base station obtains the mean of a part of the clients' models; the base of all.

    Attributes:
        options: of the air.
        air: the exchange of the run, an `Air`, which counts traffic.
        adds_up: whether the channel adds up what clients send, so that users of one resource cannot be separated.
    """

    options: Any
    air: Any
    adds_up: ClassVar[bool] = False

    @classmethod
    def list_unused(cls, run: Planned) -> Iterator[tuple[str, str]]:
        """Yield the access if there are no models to average, or no channel."""
        if not run.link.radio:
            yield "", NO_CHANNEL
        if not run.method.averages:
            yield "", "{method} averages no models"

    def send(self, pop: Population, part: Prefix, since: Population | None, name: str) -> Population:
        """Count a part of the clients' models as it is sent, and return the models for `average`.

        Args:
            pop, part, since, name: as for `Air.up`.
        """
        raise NotImplementedError(f"{type(self).__name__} has no `send`")

    def average(
        self, pop: Population, part: Prefix, weights: Tensor, since: Population | None, name: str
    ) -> dict[str, Tensor]:
        """Compute the mean as the base station has it: name -> `[1, ...]`.

        Args:
            pop: the result of `send`, of the clients that got through.
            part, since, name: as for `send`.
            weights: of these clients, in the order of `pop.ids`, summing to 1.
        """
        return average(pop, part, weights)


class Orthogonal(Access):
    """Each client sends for itself, over its own part of the band, and the base station averages."""

    def send(self, pop: Population, part: Prefix, since: Population | None, name: str) -> Population:
        """Send each model by itself."""
        return self.air.send_models(pop, part, name, since)


class Superposed(Access):
    """All clients send at once and the channel adds up: over-the-air computation by truncated channel inversion.

    The formulas are in `semcom.channels.superposition`.
    """

    adds_up = True

    @dataclass(frozen=True)
    class Options(BaseOptions):
        """Options of the inversion."""

        truncation_db: float = -10.0
        """|h|^2 in dB of its mean, below which a client does not take part in a superposed symbol."""
        csi_error: float = 0.0
        """Variance of the error in what a client takes for its h when it inverts it; E|h|^2 is 1."""

        def check(self) -> None:
            """Check the ranges."""
            require("truncation_db", self.truncation_db, Rule(lambda v: -60 <= v <= 10, "a number from -60 to 10 dB"))
            require("csi_error", self.csi_error, NOT_NEGATIVE)

    @cached_property
    def _loads(self) -> list[tuple[int, Tensor]]:
        return []  # of each tensor of a mean: its symbols, and the clients' loads

    @classmethod
    def list_unused(cls, run: Planned) -> Iterator[tuple[str, str]]:
        """Yield the access if parameters are error-free, and its options if the channel does not fade."""
        yield from super().list_unused(run)
        if run.config.air.parameters == "ideal":
            yield "", "air.parameters is not analog"
        if not run.fades:
            yield from (("truncation_db", "{kind} does not fade"), ("csi_error", "{kind} does not fade"))

    def send(self, pop: Population, part: Prefix, since: Population | None, name: str) -> Population:
        """Count one transmission with the energy of all at full power; `average` takes off what they do not need."""
        floats, cost = pop.numbers(part), self._find_cost(pop, part)
        self.air.add("up", pop.ids, floats, 0 * floats, Cost(cost.uses, cost.energy * len(floats)), once=True)
        return pop

    def _find_cost(self, pop: Population, part: Prefix) -> Cost:
        return self.air.whole.cost(pop.numbers(part)[:1].astype(np.float64), pop.ids[:1])

    def average(
        self, pop: Population, part: Prefix, weights: Tensor, since: Population | None, name: str
    ) -> dict[str, Tensor]:
        """Add the error of the summed updates to the mean, and the difference of received models from those sent."""
        self._loads.clear()
        mean, starts, silent = average(pop, part, weights), map_update_starts(since, pop), []
        stacks, ids = pop.stacks(), np.concatenate([c.ids for c in pop.cohorts])
        # A power is spread over the whole band here, and over a client's part of it otherwise.
        parts, shares = [Order(pop.at(c), weights.device)(weights) for c in stacks], self.air.find_shares(ids)
        uncoded, rms = [n for n, t in mean.items() if is_compressed(n, t)], None
        symbols = {n: -(-mean[n].numel() // 2) for n in uncoded}
        norm = self.air.privacy.find_sent_norm(sum(mean[n].numel() for n in uncoded), len(ids))
        if norm is not None:  # powers that followed the numbers would tell of them
            rms = torch.cat(parts) * norm / sum(symbols.values()) ** 0.5
            self.air.privacy.hear(*self._find_noise(torch.cat(parts), rms, ids, shares))
        for tensor in uncoded:
            held = [
                (mine, c.tensors[tensor], start(tensor)) for mine, c, start in zip(parts, stacks, starts, strict=True)
            ]
            each = [weigh_values(mine, t - start.received) for mine, t, start in held]
            missed = [weigh_values(mine, start.missed) for mine, _, start in held]
            bounded = {} if rms is None else {"rms": rms}
            error, sent = self.find_error(name + tensor, torch.cat(each), ids, shares, **bounded)
            if sent is not None:
                silent.append((1 - sent).mean(1, keepdim=True) * symbols[tensor])
            mean[tensor] = mean[tensor] + (torch.cat(missed).sum(0) + error)
        if self._loads:
            whole = sum(n for n, _ in self._loads)
            loads = torch.stack([n / whole * each.sum() for n, each in self._loads]).sum()
            self.air.owe(float(self._find_cost(pop, part).energy[0]), loads - len(ids))
        if silent:
            self.air.report("cut-off", cut := torch.cat(silent, 1).sum(1) / sum(symbols.values()))
            arrivals = self.air.arrivals
            if arrivals.sure:  # otherwise these are among the transmissions that it has counted
                arrivals.losses.add(MEANT, ids.tolist())
            arrivals.losses.add("air.truncation_db", ids.tolist(), cut.tolist())
        return mean

    def _find_noise(self, weights: Tensor, rms: Tensor, ids: np.ndarray, shares: Any) -> tuple[float, float]:
        """Find the deviation of the channel's noise on a number of the sum, over the largest norm of a client's part.

        Args:
            weights, rms: of the clients, in the order of `ids`.
            ids, shares: as of `find_error`.

        Returns:
            the deviation, and the least q: a symbol that is sent counts 1 / q times, and so may an update.
        """
        inversion = self._inversion(tuple(ids.tolist()), self.air.clock())
        reach = float(inversion.mean.where(inversion.mean > 0, 1.0).amin())
        if not self.air.link.noisy:
            return 0.0, reach
        loudness = inversion.measure_loudness(self._find_snr_db(ids, shares)).to(rms)
        return float((rms * loudness).amax() / 2**0.5 / (weights.amax() * self.air.privacy.norm)), reach

    def _find_snr_db(self, ids: np.ndarray, shares: Any) -> Tensor:
        snr_db = self.air.uncoded.snr_db("up", ids, True)
        return snr_db - torch.as_tensor(10 * np.log10(shares)).to(snr_db)

    def find_error(
        self, name: str, values: Tensor, ids: np.ndarray, shares: Any = 1, rms: Tensor | None = None
    ) -> tuple[Tensor, Tensor | None]:
        """Compute the received sum minus the true sum.

        Args:
            name: of the tensor, for the draws.
            values: the summands, updates times their weights, `[n, ...]`.
            ids: the clients, `[n]`.
            shares: width of the band over that of one client's part, or `[n]`; the noise is so many times as strong.
            rms: of the clients' symbols, by which their powers are set, `[n]` (None: as it is).

        Returns:
            the error `[...]`, and the symbols that each client sends, `[n, s]` of 0 and 1 (None: all of them).
        """
        symbols, of = pair_numbers(values), self.air.uncoded
        drawn = stack_realisations([of.draw("up", name, int(k), 2 * symbols.shape[1], True) for k in ids])
        gains, sent = of.statistics.choose_link(True).gain(drawn), None
        inversion = self._inversion(tuple(ids.tolist()), self.air.clock())
        snr_db = self._find_snr_db(ids, shares)
        host: Any = {"loudness": inversion.measure_loudness(snr_db)}
        if gains is not None:
            host["arrives"], kept = inversion.invert(gains, of.key("csi", name, 0))
            sent = kept.to(snr_db.dtype)
        if "noise" in drawn:
            # The base station hears one sum with one noise, whoever sends.
            host["noise"] = drawn["noise"][0]
        there = send_to_device(host, values.device)
        error = inversion.error(symbols, there.get("arrives"), there.get("noise"), there["loudness"], rms)
        if "noise" in there:  # without it alpha is as large as one likes
            self._loads.append((symbols.shape[1], inversion.find_loads(symbols, there["loudness"], rms)))
        return unpair_numbers(error[None], values[:1])[0], sent

    @lru_cache(maxsize=4)  # noqa: B019 (all tensors of a round have it in common)
    def _inversion(self, clients: tuple[int, ...], seconds: float) -> Inversion:
        """Build the inversion of a round, which begins after so many seconds of the run."""
        threshold, csi_error = 10 ** (self.options.truncation_db / 10), self.options.csi_error
        compute = self.air.uncoded.statistics.compute_now
        means = torch.tensor(
            [compute("invert", "up", k, True, threshold, csi_error) for k in clients],
            dtype=torch.float64,
        )
        return Inversion(threshold, csi_error, *means.unbind(1))
