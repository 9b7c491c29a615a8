"""The resource grid of OFDM: which symbols of a slot carry pilots, and who has which subcarriers."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

SLOT = 14
"""OFDM symbols of a slot."""


@dataclass(frozen=True)
class Grid:
    """Grid in time: slots of 14 OFDM symbols, some of which are pilots on all subcarriers (Kronecker pattern).

    Attributes:
        pilots: pilot symbols of a slot, ascending, from 0 to 13.
        spacing_hz: between subcarriers.
        prefix: length of the cyclic prefix, over that of a symbol without it.
    """

    pilots: tuple[int, ...]
    spacing_hz: float
    prefix: float

    @property
    def data(self) -> tuple[int, ...]:
        """Symbols of a slot that carry data."""
        return tuple(i for i in range(SLOT) if i not in self.pilots)

    @property
    def symbol_rate(self) -> float:
        """OFDM symbols per second."""
        return self.spacing_hz / (1 + self.prefix)

    @property
    def overhead(self) -> float:
        """Channel uses for each that carries data, with pilots and cyclic prefixes."""
        return SLOT / len(self.data) * (1 + self.prefix)

    def count_times(self, symbols: float, width: int) -> float:
        """Count the OFDM symbols, pilots included, that a block of data `symbols` lasts on `width` subcarriers."""
        return max(1.0, symbols / width * SLOT / len(self.data))

    def slots(self, symbols: np.ndarray, width: np.ndarray | int) -> np.ndarray:
        """Count the whole slots that data `symbols` need on `width` subcarriers."""
        return np.ceil(symbols / (len(self.data) * width))

    def width(self, symbols: int) -> int:
        """Count the subcarriers on which data `symbols` fit into one slot, at least 1."""
        return max(1, math.ceil(symbols / len(self.data)))


@dataclass(frozen=True)
class Frame:
    """Frame of slots one after the other, as positions on a device.

    Attributes:
        data: numbers of the symbols that carry data, `[T]`.
        pilots: numbers of the pilot symbols, `[P]`.
        before, after: for each data symbol the two pilot symbols of its interpolation, of 0 to P - 1, `[T]`.
        part: weight of the latter one, float64 `[T, 1]`.
    """

    data: Tensor
    pilots: Tensor
    before: Tensor
    after: Tensor
    part: Tensor

    def between(self, at_pilots: Tensor) -> Tensor:
        """Interpolate complex `[S, P, width]` at the pilot symbols linearly in time to `[S, T, width]`.

        Symbols before the first and after the last pilot symbol are extrapolated from the nearest two. A single pilot
        symbol is repeated.
        """
        before, after = at_pilots.index_select(1, self.before), at_pilots.index_select(1, self.after)
        return before + self.part.to(at_pilots.real.dtype) * (after - before)


@lru_cache(maxsize=64)
def make_frame(grid: Grid, slots: int, device: torch.device) -> Frame:
    """Build a frame of some slots once, so that its positions stay on the device."""
    starts = SLOT * np.arange(slots)[:, None]
    data, pilots = ((starts + np.array(within, dtype=np.int64)).ravel() for within in (grid.data, grid.pilots))
    heard = pilots if len(pilots) else data[:1]  # without pilots nothing is interpolated
    before = (np.searchsorted(heard, data) - 1).clip(0, max(0, len(heard) - 2))
    after = np.minimum(before + 1, len(heard) - 1)
    part = (after > before) * (data - heard[before]) / np.maximum(heard[after] - heard[before], 1)
    return Frame(*(torch.as_tensor(t, device=device) for t in (data, pilots, before, after, part[:, None])))


@dataclass(frozen=True)
class Band:
    """Subcarriers in contiguous blocks, one block per client.

    Attributes:
        subcarriers: of all blocks.
        active: clients that share them equally if no shares are given.
        shares: fraction of each client, summing to 1, or None.

    Raises:
        ValueError: for a client without a subcarrier.
    """

    subcarriers: int
    active: int
    shares: tuple[float, ...] | None

    def __post_init__(self) -> None:
        users = len(self.shares or ()) or self.active
        if self.subcarriers < users:
            raise ValueError(f"subcarriers: {self.subcarriers} are fewer than the {users} clients that share them")
        if self.shares is not None and not self._blocks().all():
            k = int(self._blocks().argmin())
            raise ValueError(f"shares: {self.shares[k]:g} of {self.subcarriers} subcarriers is none for client {k}")

    def widths(self, clients: np.ndarray) -> np.ndarray:
        """Count the subcarriers of clients `[n]`. The remainder of equal blocks stays unused."""
        if self.shares is None:
            return np.full(len(clients), self.subcarriers // self.active)
        return self._blocks()[clients]

    def parts(self, clients: np.ndarray) -> np.ndarray:
        """Compute each client's fraction of the band, `[n]`."""
        return np.full(len(clients), 1 / self.active) if self.shares is None else np.array(self.shares)[clients]

    def _blocks(self) -> np.ndarray:
        """Divide the subcarriers by shares. The borders of blocks are rounded, so that no subcarrier is lost."""
        assert self.shares is not None
        borders = np.rint(np.cumsum([0.0, *self.shares]) * self.subcarriers).astype(int)
        return np.diff(borders)
