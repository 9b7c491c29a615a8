"""The links `none`, `ideal`, `awgn`, `rayleigh` and `rician`."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass, replace
from typing import Literal, get_args

import numpy as np
import torch
from torch import Tensor

from semcom.channels.equalise import combine_antennas
from semcom.channels.law import Continuous, Law
from semcom.channels.link import DOWNLINKS, SAMPLES, Cost, Downlink, Link, Realisation, SenderOptions, complex_normal
from semcom.channels.meter import Meter
from semcom.channels.options import NOT_NEGATIVE, BaseOptions, Rule, one_of, require
from semcom.channels.power import check_even, check_finite
from semcom.channels.users import PATHS, Combined, Fades, separate_users, sum_waves

Power = Literal["normalised", "free"]
POWERS = get_args(Power)
Coherence = Literal["symbol", "sample", "batch", "round"]
COHERENCES = get_args(Coherence)
SYMBOLS = 64
"""Symbols of a block that are drawn, at most, where each has an h of its own."""
SLOTS = 64
"""Blocks of a user's fading that are drawn in one piece: the first are the same, however many follow."""
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
        """Count no uses and no energy, zeros `[n]`."""
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
        """Return `features` `[k, b, d]` unchanged and unmetered. With a `mask`, padding gets no gradient.

        Raises:
            ValueError: if a feature is not finite and `check` is set.
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
        """Draw nothing. Raises ValueError for odd `d`."""
        check_even(d)
        return {}


@dataclass(frozen=True)
class DownlinkOptions(SenderOptions):
    """Options of a link whose receiver does not equalise."""

    downlink: Downlink = "noisy"
    """Way of the gradients of a split method: through the channel too ("noisy"), or exact ("ideal")."""

    def check(self) -> None:
        """Raise ValueError for an unknown `downlink`, or as the parent does."""
        super().check()
        one_of("downlink", self.downlink, DOWNLINKS)


class AWGN(Link):
    """Additive white Gaussian noise: `y = x + n`, without a gain to equalise."""

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
            if self.feature_noise and self.power == "free":
                raise ValueError("feature_noise: it is relative to features of mean square 1; choose power normalised")

    def __init__(self, options: BaseOptions) -> None:
        super().__init__(options)
        if getattr(options, "power", None) == "free":
            self.normalises = False


class Rayleigh(Combined):
    """`y = h x + n` with circular complex Gaussian h, E|h|^2 = 1 per antenna, known to the receiver."""

    @dataclass(frozen=True)
    class Options(Combined.Options):
        """Options of block fading."""

        coherence: Coherence = "sample"
        """Time that one h lasts: a "symbol", a "sample" (an image), a mini-"batch", or a client's "round" of training,
        or of tests; each tensor on the air has one of its own, as has each phase, second batch or frozen model of a
        method that trains with several. With round_doppler all of a round have one."""
        round_doppler: float | None = None
        """Doppler frequency times the time from a round to the next, by which h of a round ("round" coherence) depends
        on that of others: correlation J0(2 pi n round_doppler) after n rounds (None: independent)."""

        def check(self) -> None:
            """Raise ValueError for a value that makes no sense, or as the parent does."""
            super().check()
            one_of("coherence", self.coherence, COHERENCES)
            require("round_doppler", self.round_doppler, NOT_NEGATIVE)
            if self.round_doppler is not None and self.coherence != "round":
                raise ValueError(
                    f"round_doppler: h of coherence {self.coherence} does not last for a round; choose coherence round"
                )

    options: Options

    def __init__(self, options: BaseOptions) -> None:
        super().__init__(options)
        self.lasting = self.same_again = getattr(options, "round_doppler", None) is not None
        self.block_fading = getattr(options, "coherence", None) != "symbol"

    def law(self) -> Law | None:
        """Find the law of |h|^2 summed over the antennas, for a single user."""
        if self.users > 1 or type(self) not in (Rayleigh, Rician):  # a subclass may fade in another way
            return None
        from semcom.channels.theory import power_law  # takes long to import, and few runs ask

        return Continuous(power_law(self.k_factor, self.options.antennas))

    def inversion_means(self, threshold: float, csi_error: float) -> tuple[float, float] | None:
        """Compute `semcom.channels.theory.inversion_means`, for a single user on one antenna."""
        if self.law() is None or self.options.antennas > 1:
            return None
        from semcom.channels.theory import inversion_means

        return inversion_means(threshold, csi_error, self.k_factor)

    @property
    def k_factor(self) -> float:
        """K, the power of the line of sight over that of the rest."""
        return 0.0

    def draw_blocks(
        self, uses: float, blocks: int | None, generator: torch.Generator, powers: Tensor | None = None
    ) -> tuple[Realisation, float]:
        """Draw as `Link` does, at most `SYMBOLS` symbols of blocks whose symbols fade independently."""
        free, n = copy(self), 1 if self.block_fading else max(1, round(min(uses, SYMBOLS)))
        if self.block_fading:  # independent blocks are wanted, which one draw of coherence "batch" or "round" has not
            free.options = replace(self.options, coherence="sample", round_doppler=None)
        count = blocks or SAMPLES // max(1, n // 4) // (1 if self.users == 1 else 16)  # of several, each takes longer
        fades = None if powers is None else Fades((), 0, powers=powers)
        drawn = free.draw([1] * count, 2 * n, generator, torch.float64, fades)
        return drawn, 1.0 if self.block_fading else n / max(uses, n)

    def sinr_law(self, no: float, others: Sequence[float]) -> Law | None:
        """Find the law of the SINR of a user among several, as `Link` does."""
        if self.users == 1 or type(self) is not Rayleigh or not self.block_fading or not no:
            return None
        from semcom.channels.theory import CombinedLaw

        return CombinedLaw(self.combining, no, self.options.antennas, tuple(others))

    def draw(
        self,
        sizes: Sequence[int],
        d: int,
        generator: torch.Generator,
        dtype: torch.dtype = torch.float32,
        fades: Fades | None = None,
    ) -> dict[str, Tensor]:
        """Draw as `Link` does, and "fading": complex `[sum(sizes), d/2]` (coherence "symbol") or `[sum(sizes), 1]`.

        Several users have the entries of `semcom.channels.users.separate_users`, from the gains of all of them. `fades`
        gives their generators, their powers and the round. Without it `generator` draws all gains, independently of
        other rounds.
        """
        drawn, coherence = super().draw(sizes, d, generator, dtype), self.options.coherence
        blocks, n = fading_shape(coherence, sizes, d // 2)
        antennas, users = self.options.antennas, self.users
        if fades is None or not fades.generators:
            gains = self.gains((users * antennas, blocks, n), generator, dtype).unflatten(0, (users, antennas))
        else:
            others = [self._as_of(j) for j in fades.clients[1:]] or [self] * (users - 1)
            each = zip([self, *others], fades.generators, strict=True)
            gains = torch.stack([link._of_user(g, fades.round, (antennas, blocks, n), dtype) for link, g in each])
        if users == 1:
            return drawn | {"fading": repeat_gains(combine_antennas(gains[0], 0), coherence, sizes)}
        powers = None if fades is None else fades.powers
        apart = separate_users(gains.permute(2, 3, 1, 0), self.combining, powers)
        return drawn | {name: repeat_gains(t, coherence, sizes) for name, t in apart.items()}

    def _of_user(
        self, generator: torch.Generator, round_: int, shape: tuple[int, int, int], dtype: torch.dtype
    ) -> Tensor:
        """Draw the gains of one user, `[antennas, blocks, n]`. Fewer blocks are the first of more."""
        antennas, blocks, n = shape
        if self.options.round_doppler is not None:
            return self.moving(round_ * self.options.round_doppler, antennas, generator).to(dtype.to_complex())
        # In pieces of fixed size, as a generator's numbers depend on the shape that is drawn at once.
        pieces = [self.gains((antennas, SLOTS, n), generator, dtype) for _ in range(0, blocks, SLOTS)]
        return torch.cat(pieces, 1)[:, :blocks] if pieces else self.gains(shape, generator, dtype)

    def draw_all(
        self,
        clients: Sequence[int],
        sizes: Sequence[Sequence[int]],
        d: int,
        generators: Sequence[torch.Generator],
        dtype: torch.dtype = torch.float32,
        device: torch.device | None = None,
        fades: Sequence[Fades] | None = None,
    ) -> list[dict[str, Tensor]]:
        """Draw as `Link` does, each client with its `fades` if they are given."""
        if fades is None:
            return super().draw_all(clients, sizes, d, generators, dtype, device)
        each = zip(clients, sizes, generators, fades, strict=True)
        return [self._as_of(client).draw(own, d, generator, dtype, fade) for client, own, generator, fade in each]

    def _as_of(self, client: int) -> Rayleigh:
        """Return this link as seen by a client; one outside the run (below 0) has no link of its own."""
        link = self.of(client) if client >= 0 else self
        if not isinstance(link, Rayleigh):
            raise ValueError(
                f"of: the link of client {client} has no gains that go on; give it one of Rayleigh's family"
            )
        return link

    def gains(self, shape: Sequence[int], generator: torch.Generator, dtype: torch.dtype) -> Tensor:
        """Draw independent h of `shape`, complex."""
        return complex_normal(shape, generator, dtype)

    def moving(self, turns: float, antennas: int, generator: torch.Generator) -> Tensor:
        """Draw h of each antenna after some turns by `sum_waves`, complex128 `[antennas, 1, 1]`."""
        return sum_waves(turns, antennas, PATHS, generator)

    def strength(self, generator: torch.Generator, round_: int) -> float:
        """Compute the sum of |h|^2 over the antennas in a round."""
        assert self.options.round_doppler is not None
        h = self.moving(round_ * self.options.round_doppler, self.options.antennas, generator)
        return float(h.abs().square().sum())


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

    @property
    def k_factor(self) -> float:
        """K, the power of the line of sight over that of the rest."""
        return float(10 ** (self.options.k_factor_db / 10))

    def gains(self, shape: Sequence[int], generator: torch.Generator, dtype: torch.dtype) -> Tensor:
        """Draw as `Rayleigh` does, with the line of sight."""
        scattered, k = super().gains(shape, generator, dtype), self.k_factor
        angle = 2 * torch.pi * torch.rand(*shape, generator=generator, dtype=dtype, device=generator.device)
        return (k / (k + 1)) ** 0.5 * torch.polar(torch.ones_like(angle), angle) + scattered / (k + 1) ** 0.5

    def moving(self, turns: float, antennas: int, generator: torch.Generator) -> Tensor:
        """Draw as `Rayleigh` does, with a line of sight as one more wave from a random direction."""
        scattered, sight = super().moving(turns, antennas, generator), sum_waves(turns, antennas, 1, generator)
        k = self.k_factor
        return (k / (k + 1)) ** 0.5 * sight + scattered / (k + 1) ** 0.5


def fading_shape(coherence: str, sizes: Sequence[int], s: int) -> tuple[int, int]:
    """Count the independent gains of a round, (blocks, gains per block), for mini-batches with s symbols per sample."""
    blocks = {"symbol": sum(sizes), "sample": sum(sizes), "batch": len(sizes), "round": 1}[coherence]
    return blocks, s if coherence == "symbol" else 1


def repeat_gains(gains: Tensor, coherence: str, sizes: Sequence[int]) -> Tensor:
    """Repeat gains per block `[blocks, ...]` for each sample, `[sum(sizes), ...]`."""
    if coherence == "batch":
        # Without `output_size` the host would wait until an accelerator has added up the repeats.
        repeats = torch.tensor(sizes, dtype=torch.int64, device=gains.device)
        return gains.repeat_interleave(repeats, dim=0, output_size=sum(sizes))
    return gains.repeat(sum(sizes), *[1] * (gains.ndim - 1)) if coherence == "round" else gains
