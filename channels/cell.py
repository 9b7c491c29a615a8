"""A cell: clients at random places in a disc around the base station, and the mean SNR of each.

    SNR = transmit power - path loss - shadowing - (-174 dBm/Hz + 10 log10(bandwidth) + noise figure),  in dB

Path loss `umi` is that of 3GPP TR 38.901, Table 7.4.1-1, UMi - Street Canyon, with or without a line of sight, which
Table 7.4.2-1 gives a probability; a base station 10 m high, clients at 1.5 m. `exponent` is
`20 log10(4 pi f / c) + 10 n log10(d)`: free space up to 1 m, and the exponent n from there (Tse and Viswanath,
Fundamentals of Wireless Communication, 2005, Section 2.1). Shadowing is log-normal.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from channels.options import POSITIVE, one_of, require

PathLoss = Literal["umi", "exponent"]
LIGHT = 299_792_458.0
"""Speed of light in m/s."""
NOISE_DBM_HZ = -174.0
"""Thermal noise at 290 K."""
HEIGHTS = 10.0, 1.5
"""Of the base station and of clients, in m."""
NEAREST_M = 10.0
"""Least distance of a client on the ground, from which on the table holds."""
SHADOWING_DB = {"los": 4.0, "nlos": 7.82, "exponent": 8.0}
"""Standard deviations: the table's, and a usual one."""


@dataclass(frozen=True)
class Cell:
    """Places of K clients, and the attenuation between them and the base station.

    Attributes:
        x_m, y_m: coordinates with the base station at 0, `[K]`.
        los: whether the client has a line of sight, bool `[K]`.
        path_loss_db: mean loss at the distance, `[K]`.
        shadowing_db: further loss, of mean 0, `[K]`.
    """

    x_m: np.ndarray
    y_m: np.ndarray
    los: np.ndarray
    path_loss_db: np.ndarray
    shadowing_db: np.ndarray

    @property
    def distance_m(self) -> np.ndarray:
        """Distances on the ground."""
        return np.hypot(self.x_m, self.y_m)

    def snr_db(self, power_dbm: float, bandwidth_hz: np.ndarray | float, noise_figure_db: float) -> np.ndarray:
        """Compute the mean SNR of each client, `[K]`, for a transmit power over a bandwidth."""
        noise_dbm = NOISE_DBM_HZ + 10 * np.log10(bandwidth_hz) + noise_figure_db
        return power_dbm - self.path_loss_db - self.shadowing_db - noise_dbm


def place_clients(
    clients: int,
    rng: np.random.Generator,
    *,
    radius_m: float = 250.0,
    path_loss: PathLoss = "umi",
    exponent: float = 3.5,
    shadowing_db: float | None = None,
    carrier_ghz: float = 3.5,
) -> Cell:
    """Drop clients uniformly in a disc, no nearer than 10 m, and draw their path loss and shadowing.

    Args:
        clients: K.
        rng: the only source of randomness.
        radius_m: radius of the disc.
        path_loss: path-loss model.
        exponent: n of the model `exponent`.
        shadowing_db: standard deviation (None: 4 with and 7.82 without a line of sight, or 8 with `exponent`).
        carrier_ghz: f.

    Raises:
        ValueError: one line that begins with the name of the invalid argument.

    Example:
        >>> import numpy as np
        >>> from channels.cell import place_clients
        >>> cell = place_clients(4, np.random.default_rng(0), radius_m=200)
        >>> cell.snr_db(power_dbm=23, bandwidth_hz=250e3, noise_figure_db=5).round().tolist()
        [...]
    """
    one_of("path_loss", path_loss, ("umi", "exponent"))
    for name, value in (("exponent", exponent), ("carrier_ghz", carrier_ghz)):
        require(name, value, POSITIVE)
    if radius_m <= NEAREST_M:
        raise ValueError(f"radius_m: {radius_m:g} is not above {NEAREST_M:g}, the least distance of a client")
    # All four are drawn whatever the model, so that clients keep their places when it changes.
    u, angle, seen, normal = rng.random(clients), rng.random(clients), rng.random(clients), rng.normal(size=clients)
    distance = np.sqrt(NEAREST_M**2 + u * (radius_m**2 - NEAREST_M**2))  # uniform in area, not in radius
    los = seen < los_probability(distance) if path_loss == "umi" else np.zeros(clients, dtype=bool)
    if path_loss == "umi":
        loss = np.where(los, *(umi_path_loss_db(distance, carrier_ghz, sight) for sight in (True, False)))
        usual = np.where(los, SHADOWING_DB["los"], SHADOWING_DB["nlos"])
    else:
        loss = exponent_path_loss_db(distance, carrier_ghz, exponent)
        usual = np.full(clients, SHADOWING_DB["exponent"])
    deviation = usual if shadowing_db is None else shadowing_db
    turn = 2 * np.pi * angle
    return Cell(distance * np.cos(turn), distance * np.sin(turn), los, loss, deviation * normal)


def los_probability(distance_m: np.ndarray) -> np.ndarray:
    """Compute the probability of a line of sight at distances on the ground (TR 38.901, Table 7.4.2-1, UMi)."""
    far = np.maximum(distance_m, 18.0)  # nearer clients are always in sight
    return 18 / far + np.exp(-far / 36) * (1 - 18 / far)


def umi_path_loss_db(distance_m: np.ndarray, carrier_ghz: float, los: bool) -> np.ndarray:
    """Compute the path loss at distances on the ground (TR 38.901, Table 7.4.1-1, UMi - Street Canyon)."""
    base, client = HEIGHTS
    log = np.log10(np.hypot(distance_m, base - client))
    bend = 4 * (base - 1) * (client - 1) * carrier_ghz * 1e9 / LIGHT
    near = 32.4 + 21 * log + 20 * np.log10(carrier_ghz)
    far = 32.4 + 40 * log + 20 * np.log10(carrier_ghz) - 9.5 * np.log10(bend**2 + (base - client) ** 2)
    seen = np.where(distance_m <= bend, near, far)
    if los:
        return seen
    return np.maximum(seen, 35.3 * log + 22.4 + 21.3 * np.log10(carrier_ghz) - 0.3 * (client - 1.5))


def exponent_path_loss_db(distance_m: np.ndarray, carrier_ghz: float, exponent: float) -> np.ndarray:
    """Compute the path loss: that of free space up to 1 m, and with `exponent` beyond."""
    return 20 * np.log10(4 * np.pi * carrier_ghz * 1e9 / LIGHT) + 10 * exponent * np.log10(distance_m)


def watts(dbm: float) -> float:
    """Convert a power from dBm to W."""
    return 10 ** ((dbm - 30) / 10)
