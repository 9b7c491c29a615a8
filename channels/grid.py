"""The resource grid of OFDM: which symbols of a slot carry pilots, and who has which subcarriers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

SLOT = 14
"""OFDM symbols of a slot."""


@dataclass(frozen=True)
class Grid:
    """A frame in time: slots of 14 OFDM symbols, some of which are pilots on all subcarriers (Kronecker pattern).

    Attributes:
        pilots: pilot symbols of a slot, ascending, of 0 to 13.
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

    def slots(self, symbols: np.ndarray, width: np.ndarray | int) -> np.ndarray:
        """Slots that data `symbols` need on `width` subcarriers: whole ones."""
        return np.ceil(symbols / (len(self.data) * width))

    def width(self, symbols: int) -> int:
        """Subcarriers on which data `symbols` fit into one slot; at least 1."""
        return max(1, math.ceil(symbols / len(self.data)))

    def times(self, slots: int, within: Sequence[int]) -> list[int]:
        """Numbers of the symbols `within` each slot, over a frame of some slots."""
        return [SLOT * slot + i for slot in range(slots) for i in within]

    def interpolation(self, slots: int) -> Tensor:
        """Matrix `[data symbols, pilot symbols]` of a frame that interpolates linearly in time, float64.

        Before the first pilot symbol and after the last one the line through the nearest two goes on; a single one is
        repeated.
        """
        at = np.array(self.times(slots, self.pilots))
        t = np.array(self.times(slots, self.data))
        weights = np.zeros((len(t), len(at)))
        if len(at) == 1:
            return torch.ones(len(t), 1, dtype=torch.float64)
        left = (np.searchsorted(at, t) - 1).clip(0, len(at) - 2)
        part = (t - at[left]) / (at[left + 1] - at[left])
        weights[np.arange(len(t)), left] = 1 - part
        weights[np.arange(len(t)), left + 1] = part
        return torch.from_numpy(weights)


@dataclass(frozen=True)
class Band:
    """Subcarriers in contiguous blocks, one block per client.

    Attributes:
        subcarriers: of all blocks.
        active: clients that share them equally, where no shares are given.
        shares: part of each client, summing to 1, or None.

    Raises:
        ValueError: where a client is left without a subcarrier.
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
        """Subcarriers of the clients `[n]`; what equal blocks leave over stays unused."""
        if self.shares is None:
            return np.full(len(clients), self.subcarriers // self.active)
        return self._blocks()[clients]

    def parts(self, clients: np.ndarray) -> np.ndarray:
        """Each client's part of the band, `[n]`."""
        return np.full(len(clients), 1 / self.active) if self.shares is None else np.array(self.shares)[clients]

    def _blocks(self) -> np.ndarray:
        """Subcarriers of all clients, from shares: block borders are rounded, so that no subcarrier is lost."""
        assert self.shares is not None
        borders = np.rint(np.cumsum([0.0, *self.shares]) * self.subcarriers).astype(int)
        return np.diff(borders)
