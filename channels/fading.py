"""The links `none`, `ideal`, `awgn`, `rayleigh` and `rician`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
import torch
from torch import Tensor

from channels.equalise import check_equaliser_antennas, combine_antennas
from channels.link import DOWNLINKS, Cost, Downlink, Link, Realisation, complex_normal
from channels.meter import Meter
from channels.options import BaseOptions, Rule, one_of, require
from channels.power import check_even, check_finite

Power = Literal["normalised", "free"]
POWERS = get_args(Power)
Coherence = Literal["symbol", "sample", "batch", "round"]
COHERENCES = get_args(Coherence)
K_FACTORS_DB = Rule(lambda v: -100 <= v <= 100, "a number from -100 to 100 dB")


class NoChannel(Link):
    """`y = x` and no channel: features as they are, exact gradients, nothing on the air; for papers without a radio."""

    noisy = False
    radio = False
    normalises = False

    @dataclass(frozen=True)
    class Options(BaseOptions):
        """No option: there is no channel."""

    def cost(self, numbers: np.ndarray, clients: np.ndarray) -> Cost:
        """Return zeros `[n]`: nothing is sent."""
        return Cost(np.zeros(len(numbers)), np.zeros(len(numbers)))

    def draw(
        self, sizes: Sequence[int], d: int, generator: torch.Generator, dtype: torch.dtype = torch.float32
    ) -> dict[str, Tensor]:
        """Draw nothing; `d` may be odd."""
        return {}

    def __call__(
        self,
        features: Tensor,
        up: Realisation,
        snr_db: Tensor,
        *,
        down: Realisation | None = None,
        down_snr_db: Tensor | None = None,
        mask: Tensor | None = None,
        meter: Meter | None = None,
        down_meter: Meter | None = None,
        check: bool = True,
    ) -> Tensor:
        """Return `features` `[k, b, d]` themselves, unmetered. With a `mask`, padding gets no gradient.

        Raises:
            ValueError: when a feature is not finite and `check` is set.
        """
        if check:
            check_finite(features, mask)
        if mask is None or not features.requires_grad:
            return features
        return torch.where(mask.unsqueeze(-1), features, features.detach())


class Ideal(Link):
    """`y = x`: power normalisation, then identity, in both directions."""

    noisy = False

    @dataclass(frozen=True)
    class Options(BaseOptions):
        """No option: nothing fades, and the gradient is exact."""

    def draw(
        self, sizes: Sequence[int], d: int, generator: torch.Generator, dtype: torch.dtype = torch.float32
    ) -> dict[str, Tensor]:
        """Draw nothing. Raises ValueError when `d` is odd."""
        check_even(d)
        return {}


@dataclass(frozen=True)
class DownlinkOptions(BaseOptions):
    """The option of a link whose receiver equalises nothing."""

    downlink: Downlink = "noisy"
    """Way of the gradients of a split method: through the channel too ("noisy"), or exact ("ideal")."""

    def check(self) -> None:
        """Raise ValueError for an unknown `downlink`."""
        one_of("downlink", self.downlink, DOWNLINKS)


class AWGN(Link):
    """Additive white Gaussian noise: `y = x + n`, which leaves nothing to equalise."""

    @dataclass(frozen=True)
    class Options(DownlinkOptions):
        """Options of a link that does not fade."""

        power: Power = "normalised"
        """Power of the features: scaled to mean square 1 ("normalised"), or as loud as they are over the same noise
        ("free"), so that the received SNR is not the one that is set. Gradients are scaled by their r.m.s. anyway."""

        def check(self) -> None:
            """Raise ValueError for an unknown `power`, or as the parent does."""
            super().check()
            one_of("power", self.power, POWERS)

    def __init__(self, options: BaseOptions) -> None:
        super().__init__(options)
        if getattr(options, "power", None) == "free":
            self.normalises = False


class Rayleigh(Link):
    """`y = h x + n` with circular complex Gaussian h, E|h|^2 = 1 per antenna, known to the receiver."""

    @dataclass(frozen=True)
    class Options(Link.Options):
        """Options of block fading."""

        coherence: Coherence = "sample"
        """Time that one h lasts: a "symbol", a "sample" (an image), a mini-"batch", or a client's "round"."""
        antennas: int = 1
        """Antennas of the base station, which fade independently and are combined (maximum ratio, both ways)."""

        def check(self) -> None:
            """Raise ValueError for an unknown `coherence`, antennas that cannot be combined, or as the parent does."""
            super().check()
            one_of("coherence", self.coherence, COHERENCES)
            check_equaliser_antennas(self.antennas, self.equaliser)

    options: Options

    def draw(
        self, sizes: Sequence[int], d: int, generator: torch.Generator, dtype: torch.dtype = torch.float32
    ) -> dict[str, Tensor]:
        """Draw as `Link` does, and "fading": complex `[sum(sizes), d/2]` (coherence "symbol") or `[sum(sizes), 1]`."""
        drawn, coherence = super().draw(sizes, d, generator, dtype), self.options.coherence
        shape = self.options.antennas, *fading_shape(coherence, sizes, d // 2)
        return drawn | {
            "fading": spread_fading(combine_antennas(self.gains(shape, generator, dtype), 0), coherence, sizes)
        }

    def gains(self, shape: Sequence[int], generator: torch.Generator, dtype: torch.dtype) -> Tensor:
        """Draw independent h of `shape`, complex."""
        return complex_normal(shape, generator, dtype)

    def gain(self, drawn: Realisation) -> Tensor:
        """Return h per symbol."""
        return drawn["fading"]


class Rician(Rayleigh):
    """`y = h x + n` with a line of sight: a part of fixed power and uniform phase beside a scattered one.

    h = sqrt(K / (K + 1)) exp(j theta) + sqrt(1 / (K + 1)) z, z circular complex Gaussian, E|h|^2 = 1, as in Tse and
    Viswanath, Fundamentals of Wireless Communication, 2005, Eq. 2.55. Each block has a theta of its own.
    """

    @dataclass(frozen=True)
    class Options(Rayleigh.Options):
        """Options of block fading with a line of sight."""

        k_factor_db: float = 9.0
        """K in dB, power of the line of sight over that of the rest; 9 dB is the median over 3GPP's urban cells with a
        line of sight (TR 38.901, Table 7.5-6)."""

        def check(self) -> None:
            """Check the names and K."""
            super().check()
            require("k_factor_db", self.k_factor_db, K_FACTORS_DB)

    options: Options

    def gains(self, shape: Sequence[int], generator: torch.Generator, dtype: torch.dtype) -> Tensor:
        """Draw as `Rayleigh` does, with the line of sight."""
        scattered = super().gains(shape, generator, dtype)
        angle = 2 * torch.pi * torch.rand(*shape, generator=generator, dtype=dtype, device=generator.device)
        k = 10 ** (self.options.k_factor_db / 10)
        return (k / (k + 1)) ** 0.5 * torch.polar(torch.ones_like(angle), angle) + scattered / (k + 1) ** 0.5


def fading_shape(coherence: str, sizes: Sequence[int], s: int) -> tuple[int, int]:
    """Return the independent gains of a round, (blocks, gains per block), for mini-batches with s symbols a sample."""
    blocks = {"symbol": sum(sizes), "sample": sum(sizes), "batch": len(sizes), "round": 1}[coherence]
    return blocks, s if coherence == "symbol" else 1


def spread_fading(gains: Tensor, coherence: str, sizes: Sequence[int]) -> Tensor:
    """Return gains per block `[blocks, ...]` sample by sample, `[sum(sizes), ...]`."""
    if coherence == "batch":
        repeats = torch.tensor(sizes, dtype=torch.int64, device=gains.device)
        return gains.repeat_interleave(repeats, dim=0, output_size=sum(sizes))
    return gains.repeat(sum(sizes), 1) if coherence == "round" else gains
