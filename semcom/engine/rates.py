"""The rate of error-free exchange: the bits that each client sends per channel use, and what is lost at that rate.

With `air.rate fixed` it is `bits_per_use`. Otherwise it follows the SNR: over fading so that a part `outage` of the
transmissions meets a channel that is too bad for it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from channels import Link
from channels.coding.mcs import TABLE, capacity
from channels.fading import Rayleigh
from channels.superposition import draw_superposed_gains
from semcom.config import AirConfig

logger = logging.getLogger(__name__)

Direction = Literal["up", "down"]
RATES = np.array(sorted(scheme.efficiency for scheme in TABLE))
"""Bits per channel use of 5G's schemes."""


@dataclass
class Rates:
    """The rates of a run.

    Attributes:
        config, link, draw, key, snr_db, logs, powers_beside: as of an `Air`.
    """

    config: AirConfig
    link: Link
    draw: Callable[[str, str, int, int], dict[str, Tensor]]
    key: Callable[[str, str, int], torch.Generator]
    snr_db: Callable[[Direction, np.ndarray], Tensor]
    logs: bool
    powers_beside: Callable[[Direction, int], Tensor | None]

    def measure(self, direction: Direction, ids: np.ndarray) -> np.ndarray:
        """Return the bits that arrive per channel use of each client, `[n]`, what has to be sent again included."""
        rate = self.choose(direction, ids)
        return rate if self.config.rate == "fixed" or self._faded is None else rate * (1 - self.config.outage)

    def choose(self, direction: Direction, ids: np.ndarray) -> np.ndarray:
        """Return the bits per channel use that each client sends, or is sent, `[n]`."""
        own = self.config
        if own.rate == "fixed":
            if self.logs and self.link.noisy and len(ids):
                self._check_rate(float(self.snr_db(direction, ids).amin()))
            return np.full(len(ids), own.bits_per_use)
        faded = 1.0 if self._faded is None else self._faded if self.link.users == 1 else self._faded_at(direction, ids)
        limit = self._compute_limit(direction, ids, faded)
        if own.rate == "mcs":
            limit = RATES[(np.searchsorted(RATES, limit, "right") - 1).clip(0)]
        return limit

    def draw_losses(self, direction: Direction, ids: np.ndarray, name: str = "") -> np.ndarray:
        """Draw which clients lose what they send, each at its rate, or what all are sent at the slowest; bool `[n]`.

        Lost is what meets a channel that is too bad for the rate; without fading a part `outage`, by chance.
        """
        if self._faded is None:
            kind = "lost" if direction == "up" else "lost down"
            chances = [torch.rand((), generator=self.key(kind, name, int(k))) for k in ids]
            return np.array([float(chance) < self.config.outage for chance in chances], dtype=bool)
        each = zip(ids, self._compute_noise(direction, ids), strict=True)
        powers = [self._measure_power(self.draw(direction, f"lost {name}", int(k), 2), no) for k, no in each]
        drawn = [float(power.flatten()[0]) for power in powers]
        rate = self.choose(direction, ids)
        limit = self._compute_limit(direction, ids, torch.tensor(drawn, dtype=torch.float64))
        return limit < (rate if direction == "up" else rate.min())

    def _compute_limit(self, direction: Direction, ids: np.ndarray, gain: Tensor | float) -> np.ndarray:
        """Return the bits per use that arrive with the gain |h|^2."""
        snr = torch.pow(10.0, (self.snr_db(direction, ids).double() - self.config.backoff_db) / 10)
        return torch.log2(1 + torch.as_tensor(gain, dtype=torch.float64) * snr).numpy()

    @cached_property
    def typical(self) -> Mapping[str, Tensor]:
        """Realisations of the link, of which quantiles and means are taken: the same ones in all of the air."""
        return draw_superposed_gains(self.link)

    def find_typical(self, direction: Direction, client: int) -> Mapping[str, Tensor]:
        """Return realisations as `typical` has them, at the powers of those who are heard beside a client."""
        return self._typical_at(self._list_powers(direction, client))

    def _list_powers(self, direction: Direction, client: int) -> tuple[float, ...]:
        powers = self.powers_beside(direction, client)
        return (1.0,) * self.link.users if powers is None else tuple(powers.tolist())

    @cached_property
    def _typical_at(self) -> Callable[[tuple[float, ...]], Mapping[str, Tensor]]:
        return lru_cache(maxsize=32)(lambda powers: draw_superposed_gains(self.link, powers=powers))

    @cached_property
    def _faded(self) -> float | None:
        """The |h|^2 that is exceeded in all but a part `outage` of the transmissions; None without fading."""
        gain = self.link.gain(self.typical)
        return None if gain is None else float(gain.abs().square().flatten().quantile(self.config.outage))

    def _faded_at(self, direction: Direction, ids: np.ndarray) -> Tensor:
        """Return as `_faded` what takes the place of |h|^2 beside other users at each SNR, and at their powers."""
        each = zip(ids, self._compute_noise(direction, ids).flatten().tolist(), strict=True)
        found = [self._find_faded(no, self._list_powers(direction, int(k))) for k, no in each]
        return torch.tensor(found, dtype=torch.float64)

    @cached_property
    def _find_faded(self) -> Callable[[float, tuple[float, ...]], float]:
        """Noise variance and powers of the users -> SINR over SNR, by the closed form where there is one."""
        link, outage = self.link, self.config.outage

        @lru_cache(maxsize=1024)
        def find(no: float, powers: tuple[float, ...]) -> float:
            if type(link) is Rayleigh and no:
                from channels.theory import combined_quantile  # imports SciPy

                own = link.options
                return no * combined_quantile(own.combining, outage, no, own.antennas, powers[1:])
            power = self._measure_power(self._typical_at(powers), torch.tensor(no, dtype=torch.float64).view(1, 1))
            return float(power.flatten().quantile(outage))

        return find

    def _compute_noise(self, direction: Direction, ids: np.ndarray) -> Tensor:
        return torch.pow(10.0, self.snr_db(direction, ids).double() / -10).view(-1, 1, 1)

    def _measure_power(self, drawn: Mapping[str, Tensor], no: Tensor) -> Tensor:
        """Return |h|^2 of a channel that fades, or what takes its place beside other users: SINR over SNR."""
        gain, others = self.link.gain_at(drawn, no), self.link.interference(drawn, no)
        assert gain is not None
        return gain.abs().square() / (1 if others is None else 1 + others / no)

    def _check_rate(self, snr_db: float) -> None:
        """Warn, once in a run, of a fixed rate that cannot be had at an SNR."""
        if self.config.bits_per_use > capacity(snr_db):
            self.logs = False
            logger.warning(
                "air.bits-per-use: %g bit per use are more than the capacity at %g dB, %.2g; with air.rate capacity or "
                "mcs the rate follows the SNR",
                *(self.config.bits_per_use, snr_db, capacity(snr_db)),
            )
