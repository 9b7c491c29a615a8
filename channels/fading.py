"""The links `ideal`, `awgn`, `rayleigh` and `rician`."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from channels.link import Link, Rows, complex_normal
from channels.options import one_of
from channels.power import check_even

COHERENCES = ("symbol", "sample", "batch", "round")


class Ideal(Link):
    """`y = x`: power normalisation, then identity, in both directions."""

    def __init__(self) -> None:
        super().__init__(equaliser="none")

    def draw(
        self, sizes: Sequence[int], d: int, generator: torch.Generator, dtype: torch.dtype = torch.float32
    ) -> dict[str, Tensor]:
        """Nothing is random. Raises ValueError when `d` is odd."""
        check_even(d)
        return {}


class AWGN(Link):
    """`y = x + n`, no equaliser."""

    def __init__(self, *, downlink: str = "noisy") -> None:
        super().__init__(equaliser="none", downlink=downlink)


class Rayleigh(Link):
    """`y = h x + n` with circular complex Gaussian h, E|h|^2 = 1, known to the receiver.

    Args:
        equaliser, downlink: as `Link`.
        coherence: how long one h lasts: "symbol", "sample", "batch" or "round".
    """

    def __init__(self, *, equaliser: str = "mmse", coherence: str = "sample", downlink: str = "noisy") -> None:
        super().__init__(equaliser=equaliser, downlink=downlink)
        self.coherence = one_of("coherence", coherence, COHERENCES)

    def draw(
        self, sizes: Sequence[int], d: int, generator: torch.Generator, dtype: torch.dtype = torch.float32
    ) -> dict[str, Tensor]:
        """As `Link.draw`, and "fading": complex `[sum(sizes), d/2]` (coherence "symbol") or `[sum(sizes), 1]`."""
        rows = super().draw(sizes, d, generator, dtype)
        blocks = self.gains(fading_shape(self.coherence, sizes, d // 2), generator, dtype)
        return rows | {"fading": spread(blocks, self.coherence, sizes)}

    def gains(self, shape: Sequence[int], generator: torch.Generator, dtype: torch.dtype) -> Tensor:
        """Independent h of `shape`, complex."""
        return complex_normal(shape, generator, dtype)

    def gain(self, rows: Rows) -> Tensor:
        """h."""
        return rows["fading"]


class Rician(Rayleigh):
    """`y = h x + n` with a line of sight: a part of fixed power and uniform phase beside a scattered one.

    h = sqrt(K / (K + 1)) exp(j theta) + sqrt(1 / (K + 1)) z, z circular complex Gaussian, E|h|^2 = 1, as in Tse and
    Viswanath, Fundamentals of Wireless Communication, 2005, Eq. 2.55. Each block has a theta of its own.

    Args:
        equaliser, coherence, downlink: as `Rayleigh`.
        k_factor_db: K in dB, line of sight over scattered power. 9 dB is the median over 3GPP's urban cells with a line
            of sight (TR 38.901, Table 7.5-6).
    """

    def __init__(
        self,
        *,
        equaliser: str = "mmse",
        coherence: str = "sample",
        downlink: str = "noisy",
        k_factor_db: float = 9.0,
    ) -> None:
        super().__init__(equaliser=equaliser, coherence=coherence, downlink=downlink)
        if not -100 <= k_factor_db <= 100:
            raise ValueError(f"k_factor_db: {k_factor_db!r} is not a number from -100 to 100 dB")
        self.k_factor_db = k_factor_db

    def gains(self, shape: Sequence[int], generator: torch.Generator, dtype: torch.dtype) -> Tensor:
        """As `Rayleigh.gains`, with the line of sight."""
        scattered = super().gains(shape, generator, dtype)
        angle = 2 * torch.pi * torch.rand(*shape, generator=generator, dtype=dtype, device=generator.device)
        k = 10 ** (self.k_factor_db / 10)
        return (k / (k + 1)) ** 0.5 * torch.polar(torch.ones_like(angle), angle) + scattered / (k + 1) ** 0.5


def fading_shape(coherence: str, sizes: Sequence[int], s: int) -> tuple[int, int]:
    """Independent gains of a round, (blocks, gains per block), for mini-batches of `sizes` with s symbols a sample."""
    blocks = {"symbol": sum(sizes), "sample": sum(sizes), "batch": len(sizes), "round": 1}[coherence]
    return blocks, s if coherence == "symbol" else 1


def spread(gains: Tensor, coherence: str, sizes: Sequence[int]) -> Tensor:
    """Gains per block `[blocks, ...]` as rows per sample `[sum(sizes), ...]`."""
    if coherence == "batch":
        repeats = torch.tensor(sizes, dtype=torch.int64, device=gains.device)
        return gains.repeat_interleave(repeats, dim=0, output_size=sum(sizes))
    return gains.repeat(sum(sizes), 1) if coherence == "round" else gains
