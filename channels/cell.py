"""A cell: clients at random places in a disc around the base station, and what a signal loses on the way to each.

    SNR = transmit power - path loss - shadowing - (-174 dBm/Hz + 10 log10(bandwidth) + noise figure),  in dB

Path loss `umi` is that of 3GPP TR 38.901, Table 7.4.1-1, UMi - Street Canyon, with or without a line of sight, which
Table 7.4.2-1 gives a probability; a base station 10 m high, clients at 1.5 m. `exponent` is
`20 log10(4 pi f / c) + 10 n log10(d)`: free space up to 1 m, and the exponent n from there (Tse and Viswanath,
Fundamentals of Wireless Communication, 2005, Section 2.1). Shadowing is log-normal.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from semcom.channels.options import MEASURE, BaseOptions, Rule, require

LIGHT = 299_792_458.0
"""Speed of light in m/s."""
NOISE_DBM_HZ = -174.0
"""Thermal noise at 290 K."""
HEIGHTS = 10.0, 1.5
"""Of the base station and of clients, in m."""
NEAREST_M = 10.0
"""Least distance of a client on the ground, from which on the table holds."""


def drop_clients_in_cell(clients: int, rng: np.random.Generator, radius_m: float) -> tuple[np.ndarray, np.ndarray]:
    """Draw uniform places in a disc, no nearer than 10 m: distances in m and directions in radians, `[K]` each.

    Example:
        >>> import numpy as np
        >>> from semcom.channels.cell import drop_clients_in_cell
        >>> distance_m, angle = drop_clients_in_cell(4, np.random.default_rng(0), radius_m=200)
        >>> bool((distance_m >= 10).all() and (distance_m <= 200).all())
        True
    """
    u, angle = rng.random(clients), rng.random(clients)
    # Uniform in area, not in radius.
    return np.sqrt(NEAREST_M**2 + u * (radius_m**2 - NEAREST_M**2)), 2 * np.pi * angle


def noise_dbm(bandwidth_hz: np.ndarray | float, noise_figure_db: float) -> np.ndarray | float:
    """Compute the noise power of a receiver over a bandwidth."""
    return NOISE_DBM_HZ + 10 * np.log10(bandwidth_hz) + noise_figure_db


def convert_dbm_to_watts(dbm: float) -> float:
    """Convert a power to W."""
    return 10 ** ((dbm - 30) / 10)


# -- path losses -----------------------------------------------------------------------------------------------------


class PathLoss:
    """Loss on the way between base station and clients, by their distances on the ground; the base of all.

    Attributes:
        options: an object with the fields of its `Options`.
    """

    @dataclass(frozen=True)
    class Options(BaseOptions):
        """Options of a path loss."""

        shadowing_db: float | None = None
        """Standard deviation of the shadowing (None: 4 with and 7.82 without a line of sight, 8 with `exponent`)."""
        carrier_ghz: float = 3.5
        """Carrier frequency of the path loss."""

        def check(self) -> None:
            """Check the ranges."""
            require("shadowing_db", self.shadowing_db, Rule(lambda v: 0 <= v <= 60, "a number from 0 to 60 dB"))
            require("carrier_ghz", self.carrier_ghz, MEASURE)

    def __init__(self, options: Any) -> None:
        self.options = options

    def find_sight(self, distance_m: np.ndarray) -> np.ndarray:
        """Compute the probability of a line of sight, `[K]`."""
        return np.zeros(len(distance_m))

    def measure_db(self, distance_m: np.ndarray, los: np.ndarray) -> np.ndarray:
        """Compute the mean loss in dB, `[K]`, with a line of sight where `los`, or without."""
        raise NotImplementedError(f"{type(self).__name__} has no `measure_db`")

    def find_deviation_db(self, los: np.ndarray) -> np.ndarray:
        """Compute the standard deviation of the shadowing where no option sets it, `[K]`."""
        return np.full(len(los), 8.0)

    def draw(self, distance_m: np.ndarray, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Draw who has a line of sight, bool, the mean loss, and the shadowing of mean 0 beside it, `[K]` each."""
        # Both are drawn whatever the model, so that two models shadow the same clients.
        seen, normal = rng.random(len(distance_m)), rng.normal(size=len(distance_m))
        los = seen < self.find_sight(distance_m)
        deviation = self.find_deviation_db(los) if self.options.shadowing_db is None else self.options.shadowing_db
        return los, self.measure_db(distance_m, los), deviation * normal


class UMi(PathLoss):
    """3GPP's urban micro cell, street canyon (TR 38.901, Tables 7.4.1-1 and 7.4.2-1)."""

    def find_sight(self, distance_m: np.ndarray) -> np.ndarray:
        """Compute the probability of Table 7.4.2-1."""
        far = np.maximum(distance_m, 18.0)  # nearer clients are always in sight
        return 18 / far + np.exp(-far / 36) * (1 - 18 / far)

    def measure_db(self, distance_m: np.ndarray, los: np.ndarray) -> np.ndarray:
        """Compute the loss of Table 7.4.1-1."""
        (base, client), carrier_ghz = HEIGHTS, self.options.carrier_ghz
        log = np.log10(np.hypot(distance_m, base - client))
        bend = 4 * (base - 1) * (client - 1) * carrier_ghz * 1e9 / LIGHT
        near = 32.4 + 21 * log + 20 * np.log10(carrier_ghz)
        far = 32.4 + 40 * log + 20 * np.log10(carrier_ghz) - 9.5 * np.log10(bend**2 + (base - client) ** 2)
        seen = np.where(distance_m <= bend, near, far)
        hidden = np.maximum(seen, 35.3 * log + 22.4 + 21.3 * np.log10(carrier_ghz) - 0.3 * (client - 1.5))
        return np.where(los, seen, hidden)

    def find_deviation_db(self, los: np.ndarray) -> np.ndarray:
        """Compute the deviation of Table 7.4.1-1."""
        return np.where(los, 4.0, 7.82)


class Exponent(PathLoss):
    """Free space up to 1 m, and a plain exponent from there."""

    @dataclass(frozen=True)
    class Options(PathLoss.Options):
        """Options of the exponent."""

        exponent: float = 3.5
        """Exponent of the path loss `exponent`, from 1 m on."""

        def check(self) -> None:
            """Check the ranges."""
            super().check()
            require("exponent", self.exponent, MEASURE)

    def measure_db(self, distance_m: np.ndarray, los: np.ndarray) -> np.ndarray:
        """Compute the loss, the same with and without a line of sight."""
        free = 20 * np.log10(4 * np.pi * self.options.carrier_ghz * 1e9 / LIGHT)
        return free + 10 * self.options.exponent * np.log10(distance_m)
