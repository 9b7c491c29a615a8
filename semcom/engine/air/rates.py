"""The rate of error-free exchange: the bits that each client sends per channel use, and what is lost at that rate.

With `air.rate fixed` it is `bits_per_use`. Otherwise it follows the client's SNR: over fading so that a part `outage`
of the blocks meets a channel that is too bad for it. Whom even 5G's slowest scheme is too fast for repeats it, until
all repetitions together carry a block; with incremental redundancy, as is assumed, the rate is then the limit itself.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from channels import Link
from channels.coding.mcs import TABLE, capacity
from channels.statistics import ROUNDING, ClientStatistics, Sender
from semcom.config import AirConfig

logger = logging.getLogger(__name__)

Direction = Literal["up", "down"]
RATES = np.array(sorted(scheme.efficiency for scheme in TABLE))
"""Bits per channel use of 5G's schemes."""


@dataclass
class Rates:
    """The rates of a run.

    Attributes:
        config, link, draw, key, snr_db, logs: as of an `Air`.
        statistics: of the link's fading.
    """

    config: AirConfig
    link: Link
    draw: Callable[[str, str, int, int], dict[str, Tensor]]
    key: Callable[[str, str, int], torch.Generator]
    snr_db: Callable[[Direction, np.ndarray], Tensor]
    statistics: ClientStatistics
    logs: bool

    def __post_init__(self) -> None:
        self._broadcast = ClientStatistics(self.link.broadcast())

    def measure(self, direction: Direction, ids: np.ndarray, bits: np.ndarray, broadcast: bool = False) -> np.ndarray:
        """Return the bits that arrive per channel use of each client, `[n]`, what has to be sent again included.

        Args:
            direction: up or down.
            ids: the clients, `[n]`.
            bits: of each client's block, `[n]`.
            broadcast: all get the same, over the whole band.
        """
        rates = self.choose(direction, ids, bits, broadcast)
        if self.config.rate == "fixed":
            return rates
        senders = zip(ids.tolist(), self._list_senders(direction, ids, bits, broadcast), rates.tolist(), strict=True)
        of = self._choose_statistics(broadcast).of
        return rates * np.array([1 - of(direction, k).find_outage(sender, rate) for k, sender, rate in senders])

    def choose(self, direction: Direction, ids: np.ndarray, bits: np.ndarray, broadcast: bool = False) -> np.ndarray:
        """Return the bits per channel use that each client sends, or is sent, `[n]`; arguments as of `measure`."""
        own = self.config
        if own.rate == "fixed":
            if self.logs and self.link.noisy and len(ids):
                self._check_rate(float(self.snr_db(direction, ids).amin()))
            return np.full(len(ids), own.bits_per_use)
        limit = self._find_limits(direction, ids, bits, broadcast)
        if own.rate == "mcs":
            scheme = np.searchsorted(RATES * (1 - ROUNDING), limit, "right") - 1
            if self.logs and (scheme < 0).any():
                self._tell_of_repetition(direction, ids, limit)
            limit = np.where(scheme < 0, limit, RATES[scheme])
        return limit

    def cover(self, ids: np.ndarray, bits: np.ndarray) -> np.ndarray:
        """Return for which clients 5G's slowest scheme is not too fast, both ways, bool `[n]`."""
        slowest = RATES[0] * (1 - ROUNDING)
        ways: tuple[Direction, ...] = ("up", "down")
        return np.logical_and.reduce([self._find_limits(way, ids, bits, way == "down") >= slowest for way in ways])

    def draw_losses(self, direction: Direction, ids: np.ndarray, bits: np.ndarray, name: str = "") -> np.ndarray:
        """Draw which clients lose what they send, each at its rate, or what all are sent at the slowest; bool `[n]`.

        Lost is a block that meets a channel too bad for the rate; without fading a part `outage`, by chance.
        """
        down = direction == "down"  # one block for all
        rates = self.choose(direction, ids, bits, down)
        sent = rates if direction == "up" or not len(ids) else np.full(len(ids), rates.min())
        each = zip(ids.tolist(), self._list_senders(direction, ids, bits, down), sent.tolist(), strict=True)
        return np.array([self._draw_block(direction, name, *one) < one[2] * (1 - ROUNDING) for one in each], dtype=bool)

    def _draw_block(self, direction: Direction, name: str, client: int, sender: Sender, rate: float) -> float:
        """Draw the bits per use that a client's block carries; without fading the rate itself, or nothing by chance."""
        alone, named = direction == "down" and self.link.users > 1 and not self.link.lasting, f"lost {name}"
        statistics = self._choose_statistics(direction == "down").of(direction, client)
        if not statistics.fades:
            generator = self.key("lost" if direction == "up" else "lost down", name, client)
            return 0.0 if float(torch.rand((), generator=generator)) < self.config.outage else rate
        if self.link.block_fading and not alone:
            return float(statistics.measure(self.draw(direction, named, client, 2), sender)[0])
        return statistics.draw_information(sender, self.key(direction, named, client))

    def _choose_statistics(self, broadcast: bool) -> ClientStatistics:
        return self._broadcast if broadcast else self.statistics

    def _find_limits(self, direction: Direction, ids: np.ndarray, bits: np.ndarray, broadcast: bool) -> np.ndarray:
        """Return the bits per use that all but a part `outage` of the clients' blocks carry, `[n]`."""
        senders = zip(ids.tolist(), self._list_senders(direction, ids, bits, broadcast), strict=True)
        of = self._choose_statistics(broadcast).of
        return np.array([of(direction, k).find_limit(s, self.config.outage) for k, s in senders], dtype=float)

    def _list_senders(self, direction: Direction, ids: np.ndarray, bits: np.ndarray, broadcast: bool) -> list[Sender]:
        """Return the senders of blocks, each as long as its rate makes it, by steps of half an octave."""
        ratios = torch.pow(10.0, self.snr_db(direction, ids).double() / 10).tolist()
        backoff, of = 10 ** (self.config.backoff_db / 10), self._choose_statistics(broadcast).of
        senders = [Sender(snr, backoff) for snr in ratios]
        if self.link.block_fading:
            return senders
        for rates in ([math.log1p(snr / backoff) / math.log(2) for snr in ratios], None):
            each = zip(ids.tolist(), senders, bits.tolist(), strict=True)
            known = rates or [of(direction, k).find_limit(s, self.config.outage) for k, s, _ in each]
            uses = [max(1.0, n / rate) for n, rate in zip(bits.tolist(), known, strict=True)]
            steps = [round(2 * math.log2(n)) / 2 for n in uses]
            senders = [Sender(snr, backoff, 2**step) for snr, step in zip(ratios, steps, strict=True)]
        return senders

    def _tell_of_repetition(self, direction: Direction, ids: np.ndarray, limit: np.ndarray) -> None:
        """Say, once in a run, that 5G's slowest scheme is too fast for a client."""
        self.logs = False
        worst = int(limit.argmin())
        logger.warning(
            "air.rate: client %d gets %.2g bit per use through (%s), and 5G's slowest scheme has %.2g: it is repeated, "
            "%.1f times; with air.coverage none such a client takes no part",
            *(int(ids[worst]), limit[worst], direction, RATES[0], RATES[0] / limit[worst]),
        )

    def _check_rate(self, snr_db: float) -> None:
        """Warn, once in a run, of a fixed rate that cannot be had at an SNR."""
        if self.config.bits_per_use > capacity(snr_db):
            self.logs = False
            logger.warning(
                "air.bits-per-use: %g bit per use are more than the capacity at %g dB, %.2g; with air.rate capacity or "
                "mcs the rate follows the SNR",
                *(self.config.bits_per_use, snr_db, capacity(snr_db)),
            )
