"""The rate of error-free exchange: the bits that each client sends per channel use, and the losses at that rate.

A fixed rate is `bits_per_use`. Others follow the client's SNR: over fading a fraction `outage` of the blocks meets a
channel that is too bad for the rate. A client for which even 5G's slowest scheme is too fast repeats it, until all
repetitions together carry a block; with incremental redundancy, as is assumed, the rate is then the limit itself.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, replace
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from semcom.channels import Link
from semcom.channels.coding.mcs import TABLE, capacity
from semcom.channels.options import MEASURE, BaseOptions, Rule, require
from semcom.channels.statistics import ROUNDING, ClientStatistics, Sender
from semcom.config import ConfigError
from semcom.engine.air.part import NO_CHANNEL, NO_NOISE, Part, Planned

logger = logging.getLogger(__name__)

Direction = Literal["up", "down"]
EFFICIENCIES = np.array(sorted(scheme.efficiency for scheme in TABLE))
"""Bits per channel use of 5G's schemes."""
SLOW = 1e-6
"""Bits per channel use below which a block is as long as with so many."""


@dataclass
class Rates(Part):
    """The rates of a run; the base of all.

    Attributes:
        options: of the air.
        link, draw, key, snr_db, logs: as of an `Air`.
        statistics: of the link's fading.
        clock: the time of the run at which the round begins, s.
    """

    options: Any
    link: Link
    draw: Callable[[str, str, int, int, bool], dict[str, Tensor]]
    key: Callable[[str, str, int], torch.Generator]
    snr_db: Callable[[Direction, np.ndarray, bool], Tensor]
    statistics: ClientStatistics
    clock: Callable[[], float]
    logs: bool

    @property
    def repeats(self) -> bool:
        """Say whether lost blocks are repeated until they arrive."""
        return True

    @property
    def covers_all(self) -> bool:
        """Say whether all clients are within reach."""
        return True

    @classmethod
    def list_unused(cls, run: Planned) -> Iterator[tuple[str, str]]:
        """Yield the rate and its options if no number is sent at a rate."""
        names = ["", *(f.name for f in fields(cls.Options))]
        if not run.link.radio:
            yield from ((name, NO_CHANNEL) for name in names)
        if not (run.error_free or run.method.split):
            yield from ((name, "nothing is sent error-free") for name in names)
        if not run.link.noisy:
            yield "", NO_NOISE

    def choose(self, direction: Direction, ids: np.ndarray, bits: np.ndarray, broadcast: bool = False) -> np.ndarray:
        """Choose the bits per channel use of each client, `[n]`.

        Args:
            direction: up or down.
            ids: the clients, `[n]`.
            bits: of each client's block, `[n]`.
            broadcast: whether all clients get the same block, over the whole band.
        """
        raise NotImplementedError(f"{type(self).__name__} has no `choose`")

    def measure(self, direction: Direction, ids: np.ndarray, bits: np.ndarray, broadcast: bool = False) -> np.ndarray:
        """Compute the bits that arrive per channel use of each client, `[n]`, repetitions included.

        Arguments as of `choose`.
        """
        return self.choose(direction, ids, bits, broadcast)

    def cover(self, ids: np.ndarray, bits: np.ndarray) -> np.ndarray:
        """Find the clients within reach both ways, bool `[n]`; arguments as of `choose`."""
        return np.ones(len(ids), dtype=bool)

    def draw_losses(self, direction: Direction, ids: np.ndarray, bits: np.ndarray, name: str = "") -> np.ndarray:
        """Draw the clients that lose their block, at their own rate up, at the slowest rate of all down; bool `[n]`."""
        return np.zeros(len(ids), dtype=bool)


class Fixed(Rates):
    """The same rate for all, whatever the SNR."""

    @dataclass(frozen=True)
    class Options(BaseOptions):
        """Options of the rate."""

        bits_per_use: float = 2.0
        """The fixed rate, bit per complex channel use (2: uncoded QPSK)."""

        def check(self) -> None:
            """Check the range."""
            require("bits_per_use", self.bits_per_use, MEASURE)

    def choose(self, direction: Direction, ids: np.ndarray, bits: np.ndarray, broadcast: bool = False) -> np.ndarray:
        """Return the rate; warn if it is too high for the SNR of a client that sends or gets anything."""
        if self.logs and self.link.noisy and (bits > 0).any():
            heard_db = float(self.snr_db(direction, ids[bits > 0], broadcast).amin())
            self._check_rate(heard_db + 10 * math.log10(self.link.antennas))
        return np.full(len(ids), self.options.bits_per_use)

    def _check_rate(self, snr_db: float) -> None:
        """Warn, once in a run, of a fixed rate above the capacity at an SNR."""
        if self.options.bits_per_use > capacity(snr_db):
            self.logs = False
            logger.warning(
                "air.bits-per-use: %g bit per use are more than the capacity at %g dB, %.2g; with air.rate capacity or "
                "mcs the rate follows the SNR",
                *(self.options.bits_per_use, snr_db, capacity(snr_db)),
            )


class Capacity(Rates):
    """What each client's SNR allows, less a backoff."""

    @dataclass(frozen=True)
    class Options(BaseOptions):
        """Options of rates that follow the SNR."""

        backoff_db: float = 3.0
        """Backoff of the rates `capacity` and `mcs` in dB: what a code of finite length lacks to Shannon's limit."""
        outage: float = 0.1
        """Share of the blocks over fading that the rate `capacity` loses, and `mcs` at most, see `repeat`: their fades
        then carry less than the rate."""
        repeat: bool = True
        """Whether transmissions that the rates `capacity` and `mcs` lose are repeated until they arrive. Otherwise the
        base station goes on without what a client sent, and a client that lost what came down takes no part in the
        round; over a channel without fading with the probability `outage`."""

        def check(self) -> None:
            """Check the ranges."""
            require("backoff_db", self.backoff_db, Rule(lambda v: 0 <= v <= 60, "a number from 0 to 60 dB"))
            require("outage", self.outage, Rule(lambda v: 1e-12 <= v < 1, "a number in [1e-12, 1)"))

    @classmethod
    def list_unused(cls, run: Planned) -> Iterator[tuple[str, str]]:
        """Yield settings of losses if no block is lost."""
        yield from super().list_unused(run)
        if run.config.air.options.repeat and not run.fades:
            yield "outage", "{kind} does not fade"
        if not run.error_free:
            yield "repeat", "no number is sent error-free"

    @property
    def repeats(self) -> bool:
        """As the option says."""
        return bool(self.options.repeat)

    def choose(self, direction: Direction, ids: np.ndarray, bits: np.ndarray, broadcast: bool = False) -> np.ndarray:
        """Compute the bits per use that all but a fraction `outage` of the clients' blocks carry, `[n]`.

        Raises:
            ConfigError: that is nothing, as of a client whose way is blocked for longer.
        """
        limits = self.find_limits(direction, ids, bits, broadcast)
        if (blocked := ids[(limits <= 0) & (bits > 0)]).size:
            raise ConfigError(
                f"air.rate: nothing gets through to or from client {blocked[0]} in {self.options.outage:g} of the time "
                "or more; raise air.outage, or leave the client out (air.rate mcs with air.coverage none)"
            )
        return limits

    def find_limits(
        self, direction: Direction, ids: np.ndarray, bits: np.ndarray, broadcast: bool = False
    ) -> np.ndarray:
        """Find what `choose` computes, which is 0 where nothing gets through."""
        senders = zip(ids.tolist(), self._list_senders(direction, ids, bits, broadcast), strict=True)
        of = self.statistics.of
        return np.array([of(direction, k, broadcast).find_limit(s, self.options.outage) for k, s in senders], float)

    def measure(self, direction: Direction, ids: np.ndarray, bits: np.ndarray, broadcast: bool = False) -> np.ndarray:
        """Compute the rates less the losses at them; see `Rates.measure`.

        A block that is repeated in another fade arrives or not as if it were another one, and a broadcast is repeated
        until all have it. Where a block meets the same h again, all repetitions together carry it at last: at the rate
        that this h carries.
        """
        rates, senders = self._choose_for_senders(direction, ids, bits, broadcast)
        each = list(zip(ids.tolist(), senders, rates.tolist(), strict=True))
        if self.link.same_again:
            return np.minimum(rates, [self._draw_block(direction, "", *one, broadcast) for one in each])
        outages = np.array([self.statistics.of(direction, k, broadcast).find_outage(s, rate) for k, s, rate in each])
        return rates / count_sends(outages) if broadcast and len(ids) else rates * (1 - outages)

    def _choose_for_senders(
        self, direction: Direction, ids: np.ndarray, bits: np.ndarray, broadcast: bool
    ) -> tuple[np.ndarray, list[Sender]]:
        """Choose rates, and list the senders of blocks at these: of a broadcast one block, at the slowest rate."""
        rates = self.choose(direction, ids, bits, broadcast)
        senders = self._list_senders(direction, ids, bits, broadcast)
        if not broadcast or not len(ids):
            return rates, senders
        longest = max(sender.uses for sender in senders)
        return np.full(len(ids), rates.min()), [replace(sender, uses=longest) for sender in senders]

    def draw_losses(self, direction: Direction, ids: np.ndarray, bits: np.ndarray, name: str = "") -> np.ndarray:
        """Draw the clients that lose their block, see `Rates.draw_losses`.

        A block is lost if it meets a channel too bad for the rate; without fading a fraction `outage` is, by chance.
        """
        down = direction == "down"  # one block for all
        rates, senders = self._choose_for_senders(direction, ids, bits, down)
        each = zip(ids.tolist(), senders, rates.tolist(), strict=True)
        kept = [self._draw_block(direction, name, *one, down) >= one[2] * (1 - ROUNDING) for one in each]
        return ~np.array(kept, dtype=bool)

    def _draw_block(
        self, direction: Direction, name: str, client: int, sender: Sender, rate: float, broadcast: bool
    ) -> float:
        """Draw the bits per use that a client's block carries: without fading the rate itself, or by chance 0."""
        statistics, named = self.statistics.of(direction, client, broadcast), f"lost {name}"
        if not statistics.fades:
            generator = self.key("lost" if direction == "up" else "lost down", name, client)
            return 0.0 if float(torch.rand((), generator=generator)) < self.options.outage else rate
        if self.link.block_fading and not self.link.estimates:  # estimates differ within the block
            return float(statistics.measure(self.draw(direction, named, client, 2, broadcast), sender)[0])
        return statistics.draw_information(sender, self.key(direction, named, client), self.clock())

    def _list_senders(self, direction: Direction, ids: np.ndarray, bits: np.ndarray, broadcast: bool) -> list[Sender]:
        """List the senders of blocks, whose lengths follow from the rates, in steps of half an octave."""
        ratios = torch.pow(10.0, self.snr_db(direction, ids, broadcast).double() / 10).tolist()
        backoff, of = 10 ** (self.options.backoff_db / 10), self.statistics.of
        senders = [Sender(snr, backoff) for snr in ratios]
        if self.link.block_fading and not self.link.estimates:
            return senders
        # A block's length follows from its rate, and the rate from the length: Shannon's rate comes first, and one
        # correction suffices. Lengths in steps keep the number of cached statistics small.
        for rates in ([math.log1p(snr / backoff) / math.log(2) for snr in ratios], None):
            each = zip(ids.tolist(), senders, bits.tolist(), strict=True)
            known = rates or [of(direction, k, broadcast).find_limit(s, self.options.outage) for k, s, _ in each]
            uses = [max(1.0, n / max(rate, SLOW)) for n, rate in zip(bits.tolist(), known, strict=True)]
            steps = [round(2 * math.log2(n)) / 2 for n in uses]
            senders = [Sender(snr, backoff, 2**step) for snr, step in zip(ratios, steps, strict=True)]
        return senders


def count_sends(outages: np.ndarray) -> float:
    """Compute how often a block is sent on average until all receivers have it, which lose it with `outages`, `[n]`.

    This is the mean of the largest of geometric numbers: the sum over n of the probability that somebody has lost the
    first n, `1 - prod(1 - outages^n)`. Where hardly anything arrives it becomes an integral.

    Example:
        >>> import numpy as np
        >>> from semcom.engine.air.rates import count_sends
        >>> [round(count_sends(np.full(k, 0.1)), 3) for k in (1, 5, 20)]
        [1.111, 1.464, 2.083]
    """
    worst = float(outages.max())
    if worst >= 1:
        return math.inf
    last = math.log(len(outages) / 1e-15) / -math.log(worst) if worst > 0 else 0.0
    n = np.linspace(0, last, 10_001) if last > 10_000 else np.arange(math.ceil(last) + 1.0)
    somebody = -np.expm1(np.log1p(-np.power.outer(outages, n).clip(max=1 - 1e-16)).sum(0))
    return float(np.trapezoid(somebody, n)) + 0.5 if last > 10_000 else float(somebody.sum())


class MCS(Capacity):
    """The fastest of 5G's schemes that is not above what each client's SNR allows."""

    @dataclass(frozen=True)
    class Options(Capacity.Options):
        """Options of rates that follow the SNR in steps."""

        coverage: Literal["repetition", "none"] = "repetition"
        """Clients for whom even the slowest scheme of `mcs` is too fast: they repeat it, as often as it takes
        (`repetition`), or take no part in the round (`none`)."""

    @property
    def covers_all(self) -> bool:
        """If those who are too far away repeat the slowest scheme."""
        return bool(self.options.coverage == "repetition")

    def choose(self, direction: Direction, ids: np.ndarray, bits: np.ndarray, broadcast: bool = False) -> np.ndarray:
        """Choose the schemes' rates, `[n]`, and the limit itself if the slowest is too fast."""
        limit = super().choose(direction, ids, bits, broadcast)
        scheme = np.searchsorted(EFFICIENCIES * (1 - ROUNDING), limit, "right") - 1
        if self.logs and (slow := (scheme < 0) & (bits > 0)).any():
            self._tell_of_repetition(direction, ids[slow], limit[slow])
        return np.where(scheme < 0, limit, EFFICIENCIES[scheme])

    def cover(self, ids: np.ndarray, bits: np.ndarray) -> np.ndarray:
        """Find the clients for which 5G's slowest scheme is not too fast, both ways, bool `[n]`."""
        slowest = EFFICIENCIES[0] * (1 - ROUNDING)
        up, down = self.find_limits("up", ids, bits), self.find_limits("down", ids, bits, broadcast=True)
        return (up >= slowest) & (down >= slowest)

    def _tell_of_repetition(self, direction: Direction, ids: np.ndarray, limit: np.ndarray) -> None:
        """Warn, once in a run, of a client for which 5G's slowest scheme is too fast."""
        self.logs = False
        worst = int(limit.argmin())
        logger.warning(
            "air.rate: client %d gets %.2g bit per use through (%s), and 5G's slowest scheme has %.2g: it is repeated, "
            "%.1f times; with air.coverage none such a client takes no part",
            *(int(ids[worst]), limit[worst], direction, EFFICIENCIES[0], EFFICIENCIES[0] / limit[worst]),
        )
