"""Statistics of a client's fading: means after equalisation and channel inversion, and rates in outage.

They describe the client's own link, since clients have different channels. If |h|^2 has no law in closed form
(`Link.law`), they come from many realisations, the same at every call.

A block of data that meets a single h is lost at a rate r if log2(1 + s |h|^2) < r. A block that spans many fades, as
with `coherence symbol` or on the resource elements of `ofdm`, is lost if the mean of that logarithm over the block is
below r (Tse and Viswanath, Fundamentals of Wireless Communication, 2005, Sections 5.4.4 and 5.4.5). With more and more
fades this mean approaches the ergodic capacity, e^(1/s) E1(1/s) / ln 2 over Rayleigh fading.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from semcom.channels.equalise import Estimate
from semcom.channels.law import Law, Listed, Scaled
from semcom.channels.link import SAMPLES, Link, Realisation, complex_normal

ROUNDING = 1e-6
"""Relative difference up to which two rates count as equal: h is drawn in the precision of the run."""
CACHED = {
    "shrink": 256,
    "invert": 4,
    "find_limit": 1024,
    "find_outage": 1024,
    "_draw_blocks": 2,
    "_information": 2,
    "_centre": 256,
}
"""Methods of `Statistics`, and the number of cached results of each."""


@dataclass(frozen=True)
class Sender:
    """Sender whose rate follows its mean SNR.

    Attributes:
        snr: mean SNR, a ratio.
        backoff: gap of its code to the limit, a ratio of SNRs.
        uses: symbols of its blocks.
    """

    snr: float
    backoff: float = 1.0
    uses: float = 1.0


class Statistics:
    """Statistics of the link of one client.

    Args:
        link: of the client, `link.of(client)`.
        others: powers of the other users of its resource over its own.

    Example:
        >>> from semcom.channels import make_link
        >>> from semcom.channels.statistics import Sender, Statistics
        >>> fading = Statistics(make_link("rayleigh", coherence="symbol"))
        >>> [round(fading.find_limit(Sender(snr=10.0, uses=uses), outage=0.1), 1) for uses in (1, 100_000)]
        [1.0, 2.9]
    """

    def __init__(self, link: Link, others: tuple[float, ...] = ()) -> None:
        self.link, self.others = link, others or (1.0,) * (link.users - 1)
        for name, size in CACHED.items():  # of each by itself: clients that differ would push each other out
            setattr(self, name, lru_cache(size)(getattr(self, name)))

    @cached_property
    def fades(self) -> bool:
        """True if some h differs from 1."""
        return self.link.gain(self.link.draw([1], 2, _make_generator(), torch.float64)) is not None

    @cached_property
    def law(self) -> Law:
        """Law of |h|^2, or of g^2 at a noise variance of 1 for several users. Without fading |h|^2 is 1."""
        known = self.link.law()
        if known is not None or not self.fades:
            return known or Listed(np.ones(1))
        gain = self.link.gain(self._symbols)
        assert gain is not None
        return Listed.of(gain.abs().square().numpy())

    @cached_property
    def _known(self) -> Law | None:
        """The law of the power that arrives: of |h|^2 if that has one in closed form, the receiver knows h, and senders
        do not adapt to it."""
        return self.link.law() if type(self.link).amplitude is Link.amplitude and not self.link.estimates else None

    def shrink(self, no: float) -> float:
        """Compute E[a] of an MMSE equaliser at a noise variance, a = w h: the fraction of a symbol in its estimate."""
        if not self.fades:
            return 1.0
        if self._known is not None:
            return self.law.mean(lambda g: np.divide(g, g + no, out=np.zeros_like(g), where=g > 0))
        if no and (law := self._find_sinr_law(Sender(1 / no))) is not None and self.link.users > 1:
            return law.mean(lambda sinr: sinr / (1 + sinr))
        at = torch.full((1, 1), no, dtype=torch.float64)
        _, _, effective = self.link.gains_at(self._symbols, at, at.sqrt())
        assert effective is not None
        return float(effective.real.mean())

    def invert(self, threshold: float, csi_error: float) -> tuple[float, float]:
        """Compute E[1 / |g|^2] and Re E[h / g], both for |g|^2 of at least a threshold: c and q of channel inversion.

        Args:
            threshold: |g|^2 below which the sender stays silent.
            csi_error: variance of the error g - h of the sender's estimate.
        """
        if not self.fades:
            return 1.0, 1.0
        if not csi_error:
            return self.law.mean(lambda g: 1 / g, threshold), self.law.mean(np.ones_like, threshold)
        if (means := self.link.inversion_means(threshold, csi_error)) is not None:
            return means
        h = self.link.gain(self._symbols)
        assert h is not None
        h = h.flatten().repeat(max(1, SAMPLES // 4 // h.numel()))  # of few, each meets many errors
        known = h + csi_error**0.5 * complex_normal(h.shape, _make_generator(), torch.float64)
        strength = known.abs().square()
        power, mean = (
            float(torch.where(strength >= threshold, t, 0.0).mean()) for t in (1 / strength, (h / known).real)
        )
        return power, mean

    def find_limit(self, sender: Sender, outage: float) -> float:
        """Find the rate, bits per use, that all but a fraction `outage` of the blocks carry."""
        if (law := self._find_sinr_law(sender)) is not None:
            return math.log1p(law.quantile(outage) / sender.backoff) / math.log(2)
        return self._information(sender).quantile(outage)

    def find_outage(self, sender: Sender, rate: float) -> float:
        """Find the fraction of the blocks that are lost at a rate in bits per use."""
        if math.isinf(rate):
            return 0.0
        least = rate * (1 - ROUNDING)
        if (law := self._find_sinr_law(sender)) is not None:
            return law.below(math.expm1(least * math.log(2)) * sender.backoff)
        return self._information(sender).below(least)

    def draw_information(self, sender: Sender, generator: torch.Generator, seconds: float = 0.0) -> float:
        """Draw a block that spans many fades, at a time of the run, and return the bits per use that it carries."""
        drawn, share = self.link.at(seconds).draw_blocks(sender.uses, 1, generator, self._powers)
        return float(self._spread(self.measure(drawn, sender).numpy(), sender, share)[0])

    def measure(self, drawn: Realisation, sender: Sender) -> Tensor:
        """Compute the bits per use that symbols `[blocks, n]` carry, the mean over each block, `[blocks]`.

        Other users' symbols count as noise. A receiver that estimates h decodes by its estimate: `measure_mismatched`.
        """
        no = torch.full((1, 1), 1 / sender.snr, dtype=torch.float64)
        gain, others = self.link.sent_gain(drawn, no), self.link.interference(drawn, no)
        assert gain is not None
        if (estimate := self.link.estimate(drawn, no.sqrt())) is not None:
            noise = sender.backoff * (estimate.variance + no) - estimate.variance
            return measure_mismatched(gain, estimate, noise)
        power = gain.abs().square().double()
        sinr = torch.where(power > 0, power / (no if others is None else no + others), 0.0)  # of nothing, without noise
        return torch.log1p(sinr / sender.backoff).mean(1) / math.log(2)

    @cached_property
    def _symbols(self) -> Realisation:
        return self.link.draw_symbols(_make_generator()) if self.link.estimates else self._draw_blocks(1.0)[0]

    def _find_sinr_law(self, sender: Sender) -> Law | None:
        """Find the law of the SINR of a block that meets a single h, if it has a closed form."""
        if self.link.users > 1:
            return self.link.sinr_law(1 / sender.snr, self.others)
        one_fade = not self.fades or (self.link.block_fading and self._known is not None)
        return Scaled(self.law, sender.snr) if one_fade else None

    @cached_property
    def _powers(self) -> Tensor | None:
        return torch.tensor([1.0, *self.others], dtype=torch.float64) if self.link.users > 1 else None

    def _draw_blocks(self, uses: float) -> tuple[Realisation, float]:
        return self.link.draw_blocks(uses, None, _make_generator(), self._powers)

    def _information(self, sender: Sender) -> Listed:
        """Find the law of the bits per use that a block carries."""
        drawn, share = self._draw_blocks(sender.uses)
        return Listed.of(self._spread(self.measure(drawn, sender).numpy(), sender, share))

    def _spread(self, means: np.ndarray, sender: Sender, share: float) -> np.ndarray:
        """Scale means over some symbols of blocks to means over whole blocks; their deviations are proportional."""
        if share == 1:
            return means
        centre = self._centre(sender)
        return centre + (means - centre) * share**0.5

    def _centre(self, sender: Sender) -> float:
        """Compute the ergodic capacity."""
        if self._known is not None:
            return self.law.mean(lambda g: np.log1p(g * (sender.snr / sender.backoff))) / math.log(2)
        return float(self.measure(self._draw_blocks(sender.uses)[0], sender).mean())


def measure_mismatched(h: Tensor, estimate: Estimate, no: Tensor) -> Tensor:
    """Compute the bits per use that blocks carry whose receiver decodes by an estimate, `[blocks]`.

    This is the generalised mutual information of Gaussian symbols with the metric |y - m x|^2 / (v + no), m and v the
    mean and the variance of h by the estimate: the largest value, over s, of the mean of

        log(1 + s t |m|^2) + s t (|h|^2 + no) / (1 + s t |m|^2) - s t (|h - m|^2 + no),      t = 1 / (v + no).

    With s = 1 it is `log(1 + t |m|^2)` on average over h (A. Lapidoth and S. Shamai, IEEE Trans. Inf. Theory 48(5),
    2002, Section IV).

    Args:
        h: `[blocks, n]`.
        estimate: of it.
        no: noise variance, broadcastable to h.
    """
    t, m = 1 / (estimate.variance + no).clamp_min(1e-30), estimate.mean  # 0 where h is known without noise
    known, heard, apart = (t * p for p in (m.abs().square(), h.abs().square() + no, (h - m).abs().square() + no))
    low, high = (torch.full((len(h), 1), power, dtype=known.dtype) for power in (-20.0, 4.0))
    for _ in range(12):  # concave in s, so its slope has one zero, here found for log2 s
        middle = (low + high) / 2
        down = 1 + middle.exp2() * known
        rises = (known / down + heard / down.square() - apart).mean(1, keepdim=True) > 0
        low, high = torch.where(rises, middle, low), torch.where(rises, high, middle)
    s = low.exp2()
    information = (s * known).log1p() + s * heard / (1 + s * known) - s * apart
    return information.mean(1).clamp_min(0) / math.log(2)


class ClientStatistics:
    """Statistics of each client of a run. Clients with the same channel share them.

    Args:
        link: of the run.
        powers_beside: `(direction, client) -> [U]`, the powers of the users of a client's resource over its own, or
            None for equal powers.
        clock: the time of the run, s.
    """

    def __init__(
        self,
        link: Link,
        powers_beside: Callable[[Any, int], Tensor | None] = lambda direction, client: None,
        clock: Callable[[], float] = lambda: 0.0,
    ) -> None:
        self.powers_beside, self.clock = powers_beside, clock
        self._own, self._whole = link, link.broadcast()

    def choose_link(self, broadcast: bool = False) -> Link:
        """Return the run's link, or that of a broadcast."""
        return self._whole if broadcast else self._own

    def of(self, direction: str, client: int, broadcast: bool = False) -> Statistics:
        """Find the statistics of a client's uplink or downlink, or of what it hears of a broadcast."""
        return self._make(*self._find_key(direction, client, broadcast))

    def compute_now(
        self, what: Literal["shrink", "invert"], direction: str, client: int, broadcast: bool, *options: float
    ) -> Any:
        """Compute means at the time of the run, of a link whose frames follow it, by a method of `Statistics`.

        A rate, which is chosen without that knowledge, is not among them.
        """
        moment = self.choose_link(broadcast).find_moment(self.clock())
        if moment is None:
            return getattr(self.of(direction, client, broadcast), what)(*options)
        return self._compute_at(moment, what, self._find_key(direction, client, broadcast), *options)

    def _find_key(self, direction: str, client: int, broadcast: bool) -> tuple[int, tuple[float, ...], bool]:
        powers = None if broadcast else self.powers_beside(direction, client)
        others = () if powers is None else tuple(powers.tolist()[1:])
        return self.choose_link(broadcast).like(client), others, broadcast

    @lru_cache(maxsize=512)  # noqa: B019 (a run has one)
    def _make(self, client: int, others: tuple[float, ...], broadcast: bool) -> Statistics:
        return Statistics(self.choose_link(broadcast).of(client), others)

    @lru_cache(maxsize=2**14)  # noqa: B019 - of the numbers alone, as draws would take much memory
    def _compute_at(self, moment: int, what: str, key: tuple[int, tuple[float, ...], bool], *options: float) -> Any:
        client, others, broadcast = key
        return getattr(Statistics(self.choose_link(broadcast).at(self.clock()).of(client), others), what)(*options)


def _make_generator() -> torch.Generator:
    return torch.Generator().manual_seed(0)
