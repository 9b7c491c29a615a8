"""The errors of numbers that are sent uncoded: of each client's by themselves, and of the sum when all send at once."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

from channels import Link
from channels.power import PAIR, to_features, to_pairs
from channels.statistics import ClientStatistics
from channels.superposition import Inversion
from semcom.config import AirConfig
from semcom.engine.air.rates import Direction
from semcom.engine.host.sending import send_to_device


@dataclass(eq=False)
class Uncoded:
    """Uncoded transmissions of a run.

    Attributes:
        config, link, draw, key, snr_db: as of an `Air`.
        statistics: of the link's fading.
    """

    config: AirConfig
    link: Link
    draw: Callable[[str, str, int, int], dict[str, Tensor]]
    key: Callable[[str, str, int], torch.Generator]
    snr_db: Callable[[Direction, np.ndarray], Tensor]
    statistics: ClientStatistics

    def draw_error(
        self, direction: Direction, name: str, values: Tensor, ids: np.ndarray, floats: np.ndarray | None = None
    ) -> Tensor:
        """Return the error of uncoded values that are sent to or by each client, two numbers per symbol.

        They are scaled by their r.m.s. (side information, error-free): that of the `floats` numbers sent (None: all),
        so that zeros that are not sent lend no power.
        """
        symbols, rms = _scale_for_air(values, floats)
        drawn = [self.draw(direction, name, int(k), 2 * symbols.shape[1]) for k in ids]
        snr_db = self.snr_db(direction, ids)
        host: Any = {"drawn": _stack_realisations(drawn), "snr_db": snr_db}
        if shrinks := self.link.equaliser == "mmse":
            noise = zip(ids.tolist(), torch.pow(10.0, snr_db.double() / -10).tolist(), strict=True)
            parts = [[self.statistics.of(direction, k).shrink(no)] for k, no in noise]
            host["mean"] = torch.tensor(parts, dtype=snr_db.dtype)
        there = send_to_device(host, values.device)
        got = self.link.transmit(symbols, there["drawn"], there["snr_db"])
        error = got / there["mean"] - symbols if shrinks else got - symbols
        return weigh(rms.squeeze(1), _unpair_numbers(error, values))

    def superpose(self, name: str, values: Tensor, ids: np.ndarray, shares: int = 1) -> tuple[Tensor, Tensor | None]:
        """Return the error of the sum of `values` `[n, ...]` when all send at once, and which symbols each sends.

        `shares`: how many times the band of one client they send over, which so many times the noise fills.
        """
        symbols = _pair_numbers(values)
        drawn = _stack_realisations([self.draw("up", name, int(k), 2 * symbols.shape[1]) for k in ids])
        gains, sent, inversion = self.link.gain(drawn), None, self._inversion(tuple(ids.tolist()))
        snr_db = self.snr_db("up", ids) - 10 * math.log10(shares)
        host: Any = {"loudness": inversion.measure_loudness(snr_db)}
        if gains is not None:
            host["arrives"], kept = inversion.invert(gains, self.key("csi", name, 0))
            sent = kept.to(snr_db.dtype)
        if "noise" in drawn:
            host["noise"] = drawn["noise"][0]
        there = send_to_device(host, values.device)
        error = inversion.error(symbols, there.get("arrives"), there.get("noise"), there["loudness"])
        return _unpair_numbers(error[None], values[:1])[0], sent

    @lru_cache(maxsize=4)  # noqa: B019 (all tensors of a round have it in common)
    def _inversion(self, clients: tuple[int, ...]) -> Inversion:
        threshold, csi_error = 10 ** (self.config.truncation_db / 10), self.config.csi_error
        means = torch.tensor(
            [self.statistics.of("up", k).invert(threshold, csi_error) for k in clients], dtype=torch.float64
        )
        return Inversion(threshold, csi_error, *means.unbind(1))


def weigh(weights: Tensor, values: Tensor) -> Tensor:
    """Return weights `[n]` times values `[n or 1, ...]`, `[n, ...]`."""
    return weights.to(values.dtype).view(-1, *[1] * (values.ndim - 1)) * values


def _scale_for_air(values: Tensor, floats: np.ndarray | None) -> tuple[Tensor, Tensor]:
    """Return values `[n, ...]` as complex symbols of unit power `[n, s]`, and their r.m.s. `[n, 1]`."""
    flat = values.reshape(len(values), -1)
    sent = np.full(len(flat), flat.shape[1]) if floats is None else floats.clip(min=1)
    count = send_to_device(torch.as_tensor(sent[:, None]).to(flat.dtype), flat.device)
    rms = (flat.square().sum(1, keepdim=True) / count).sqrt()
    return _pair_numbers(torch.where(rms > 0, flat / rms, 0.0)) / PAIR, rms * PAIR


def _pair_numbers(values: Tensor) -> Tensor:
    """Return numbers `[n, ...]` two by two as complex ones, `[n, s]`; an odd one has 0 beside it."""
    flat = values.reshape(len(values), -1)
    return to_pairs(torch.nn.functional.pad(flat, (0, flat.shape[1] % 2)))


def _unpair_numbers(pairs: Tensor, like: Tensor) -> Tensor:
    """Return complex numbers `[n, s]` as real ones, in the shape of `like` `[n, ...]`."""
    return to_features(pairs)[:, : like[0].numel()].reshape(like.shape)


def _stack_realisations(drawn: Sequence[Mapping[str, Tensor]]) -> dict[str, Tensor]:
    """Return realisations of one sample each, stacked: `[n, ...]`."""
    return {key: torch.stack([d[key] for d in drawn]).squeeze(1) for key in drawn[0]}
