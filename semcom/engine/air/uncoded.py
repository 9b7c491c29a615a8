"""The errors of each client's numbers that are sent uncoded."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from semcom.channels.power import PAIR, to_features, to_pairs
from semcom.channels.statistics import ClientStatistics
from semcom.engine.air.rates import Direction
from semcom.engine.host.sending import send_to_device


@dataclass(eq=False)
class Uncoded:
    """Uncoded transmissions of a run.

    Attributes:
        draw, key, snr_db: as of an `Air`.
        statistics: of the link's fading.
    """

    draw: Callable[[str, str, int, int, bool], dict[str, Tensor]]
    key: Callable[[str, str, int], torch.Generator]
    snr_db: Callable[[Direction, np.ndarray, bool], Tensor]
    statistics: ClientStatistics

    def draw_error(
        self,
        direction: Direction,
        name: str,
        values: Tensor,
        ids: np.ndarray,
        floats: np.ndarray | None = None,
        broadcast: bool = False,
    ) -> Tensor:
        """Draw the error of uncoded values that are sent to or by each client, two numbers per symbol.

        They are scaled by their r.m.s. (side information, error-free): that of the `floats` numbers sent (None: all),
        so that zeros that are not sent lend no power.
        """
        symbols, rms = _scale_for_air(values, floats)
        drawn = [self.draw(direction, name, int(k), 2 * symbols.shape[1], broadcast) for k in ids]
        snr_db, link = self.snr_db(direction, ids, broadcast), self.statistics.choose_link(broadcast)
        host: Any = {"drawn": stack_realisations(drawn), "snr_db": snr_db}
        if shrinks := link.equaliser == "mmse":
            noise = zip(ids.tolist(), torch.pow(10.0, snr_db.double() / -10).tolist(), strict=True)
            parts = [[self.statistics.compute_now("shrink", direction, k, broadcast, no)] for k, no in noise]
            host["mean"] = torch.tensor(parts, dtype=snr_db.dtype)
        there = send_to_device(host, values.device)
        got = link.transmit(symbols, there["drawn"], there["snr_db"])
        error = got / there["mean"] - symbols if shrinks else got - symbols
        return weigh_values(rms.squeeze(1), unpair_numbers(error, values))


def weigh_values(weights: Tensor, values: Tensor) -> Tensor:
    """Multiply weights `[n]` by values `[n or 1, ...]`: `[n, ...]`."""
    return weights.to(values.dtype).view(-1, *[1] * (values.ndim - 1)) * values


def _scale_for_air(values: Tensor, floats: np.ndarray | None) -> tuple[Tensor, Tensor]:
    """Scale values `[n, ...]` to complex symbols of unit power `[n, s]`, and return their r.m.s. `[n, 1]` too."""
    flat = values.reshape(len(values), -1)
    sent = np.full(len(flat), flat.shape[1]) if floats is None else floats.clip(min=1)
    count = send_to_device(torch.as_tensor(sent[:, None]).to(flat.dtype), flat.device)
    rms = (flat.square().sum(1, keepdim=True) / count).sqrt()
    return pair_numbers(torch.where(rms > 0, flat / rms, 0.0)) / PAIR, rms * PAIR


def pair_numbers(values: Tensor) -> Tensor:
    """Pair numbers `[n, ...]` as complex ones, `[n, s]`; an odd last number is paired with 0."""
    flat = values.reshape(len(values), -1)
    return to_pairs(torch.nn.functional.pad(flat, (0, flat.shape[1] % 2)))


def unpair_numbers(pairs: Tensor, like: Tensor) -> Tensor:
    """Split complex numbers `[n, s]` into real numbers, in the shape of `like` `[n, ...]`."""
    return to_features(pairs)[:, : like[0].numel()].reshape(like.shape)


def stack_realisations(drawn: Sequence[Mapping[str, Tensor]]) -> dict[str, Tensor]:
    """Stack realisations of one sample each: `[n, ...]`."""
    return {key: torch.stack([d[key] for d in drawn]).squeeze(1) for key in drawn[0]}
