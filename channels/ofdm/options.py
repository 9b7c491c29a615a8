"""Options of the grid of OFDM, and of the receiver's knowledge."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeVar, get_args

from semcom.channels.ofdm.grid import SLOT
from semcom.channels.options import COUNT, MEASURE, PART, POSITIVE, NoEffect, one_of, require
from semcom.channels.users import Combined

T = TypeVar("T", int, float)

Knowledge = Literal["perfect", "ls"]
KNOWLEDGE = get_args(Knowledge)


@dataclass(frozen=True)
class GridOptions(Combined.Options):
    """Options of the grid, of the base station, and of the receiver's knowledge."""

    csi: Knowledge = "perfect"
    """Knowledge of h at the receiver: h itself ("perfect"), or what it estimates from the pilots ("ls")."""
    pilots: int | tuple[int, ...] = (2, 11)
    """Pilot symbols of a slot, of 0 to 13; they take uses and energy with either `csi`."""
    subcarriers: int | None = None
    """Subcarriers of the whole band (None: as many as each client's mini-batch needs in one slot)."""
    shares: float | tuple[float, ...] | None = None
    """Part of each client, summing to 1 (None: those that take part share the band equally)."""
    spacing_khz: float = 15.0
    """Spacing of the subcarriers, kHz."""
    cyclic_prefix: float = 1 / 14
    """Length of the cyclic prefix over that of a symbol without it; with 1/14 a slot of 15 kHz lasts 1 ms."""

    def check(self) -> None:
        """Check that the values make a grid, and that every option has an effect."""
        super().check()
        one_of("csi", self.csi, KNOWLEDGE)
        if self.csi == "ls" and self.equaliser == "none":
            raise NoEffect("csi: 'ls' does nothing without an equaliser; choose mmse or zf")
        _check_pilots(list_values(self.pilots), self.csi)
        require("spacing_khz", self.spacing_khz, MEASURE)
        require("cyclic_prefix", self.cyclic_prefix, PART)
        require("subcarriers", self.subcarriers, COUNT)
        if self.shares is not None:
            _check_shares(list_values(self.shares))
        if self.users > 1 and self.shares is not None:
            raise ValueError(f"shares: groups of {self.users} users share the band equally; leave shares out")

    def settled(self) -> GridOptions:
        """Fill in the options that follow from others."""
        return self


def list_values(values: T | Sequence[T]) -> tuple[T, ...]:
    """Convert a value, or several values, to a tuple."""
    return tuple(values) if isinstance(values, Sequence) else (values,)


def warn_of_cyclic_prefix(cause: str, name: str, last_path_s: float, options: GridOptions) -> None:
    """Warn of paths beyond the cyclic prefix."""
    prefix_s = options.cyclic_prefix / (1e3 * options.spacing_khz)
    if last_path_s > prefix_s:
        warnings.warn(
            f"{cause} puts the last path of {name} at {1e6 * last_path_s:.3g} us, beyond the cyclic prefix of "
            f"{1e6 * prefix_s:.3g} us; the interference that this causes is left out",
            stacklevel=5,
        )


def _check_pilots(pilots: tuple[int, ...], csi: str) -> None:
    """Raise ValueError unless the pilot symbols leave data, and suffice for an estimate."""
    wrong = [i for i in pilots if i not in range(SLOT)]
    if wrong or len(set(pilots)) < len(pilots):
        raise ValueError(f"pilots: {pilots} are not different symbols of a slot, 0 to {SLOT - 1}")
    if len(pilots) == SLOT:
        raise ValueError(f"pilots: all {SLOT} symbols of a slot are pilots, which leaves none for data")
    if csi == "ls" and not pilots:
        raise ValueError("pilots: there are none to estimate the channel from; csi ls needs one")


def _check_shares(shares: tuple[float, ...]) -> None:
    """Raise ValueError unless the shares are positive and sum to 1."""
    require("shares", shares, POSITIVE)
    if abs(sum(shares) - 1) > 1e-6:
        raise ValueError(f"shares: {', '.join(f'{share:g}' for share in shares)} sum to {sum(shares):g} and not to 1")
