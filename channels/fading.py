"""The links `ideal`, `awgn` and `rayleigh`."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from channels.link import Link, Rows, complex_normal, one_of
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
        shape = fading_shape(self.coherence, sizes, d // 2)
        return rows | {"fading": spread(complex_normal(shape, generator, dtype), self.coherence, sizes)}

    def gain(self, rows: Rows) -> Tensor:
        """h."""
        return rows["fading"]


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
