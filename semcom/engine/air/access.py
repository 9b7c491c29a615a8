"""Access to the air: how what is averaged reaches the base station, from each client by itself or from all at once."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from channels.options import NOT_NEGATIVE, BaseOptions, Rule, require
from channels.superposition import Inversion
from semcom.engine.air.part import Part, Planned
from semcom.engine.air.uncoded import Uncoded, pair_numbers, stack_realisations, unpair_numbers
from semcom.engine.host.sending import send_to_device


@dataclass(eq=False)
class Access(Part):
    """A way in which the base station comes by a mean of what clients send; the base of all.

    Attributes:
        options: of the air.
        uncoded: the channel, as numbers meet it that are sent uncoded.
        at_once: whether all clients send at once, in one transmission, so that the channel adds up.
    """

    options: Any
    uncoded: Uncoded
    at_once: ClassVar[bool] = False

    def find_error(self, name: str, values: Tensor, ids: np.ndarray, shares: int = 1) -> tuple[Tensor, Tensor | None]:
        """Return what the base station makes of a sum less the sum itself, where all send at once.

        Args:
            name: of the tensor, for the draws.
            values: what is to be summed, updates times their weights, `[n, ...]`.
            ids: the clients, `[n]`.
            shares: how many times the band of one client they send over, which so many times the noise fills.

        Returns:
            the error `[...]`, and which part of its symbols each client sends, `[n, s]` of 0 and 1; None: all of them.
        """
        raise NotImplementedError(f"{type(self).__name__} sends at once and has no `find_error`")


class Orthogonal(Access):
    """Each client sends for itself, over its own part of the band, and the base station averages."""


class Superposed(Access):
    """All clients send at once and the channel adds up: over-the-air computation by truncated channel inversion.

    The formulas are in `channels.superposition`.
    """

    at_once = True

    @dataclass(frozen=True)
    class Options(BaseOptions):
        """Options of the inversion."""

        truncation_db: float = -10.0
        """|h|^2 in dB of its mean, below which a client does not take part in a superposed symbol."""
        csi_error: float = 0.0
        """Variance of the error in what a client takes for its h when it inverts it; E|h|^2 is 1."""

        def check(self) -> None:
            """Check the ranges."""
            require("truncation_db", self.truncation_db, Rule(lambda v: -60 <= v <= 10, "a number from -60 to 10 dB"))
            require("csi_error", self.csi_error, NOT_NEGATIVE)

    @classmethod
    def list_unused(cls, run: Planned) -> Iterator[tuple[str, str]]:
        """Yield what is about fades where there are none."""
        if not run.fades:
            yield from (("truncation_db", "{kind} does not fade"), ("csi_error", "{kind} does not fade"))

    def find_error(self, name: str, values: Tensor, ids: np.ndarray, shares: int = 1) -> tuple[Tensor, Tensor | None]:
        """Return the error of the sum as it arrives, and which symbols each client sends; see `Access.find_error`."""
        symbols, of = pair_numbers(values), self.uncoded
        drawn = stack_realisations([of.draw("up", name, int(k), 2 * symbols.shape[1]) for k in ids])
        gains, sent, inversion = of.link.gain(drawn), None, self._inversion(tuple(ids.tolist()))
        snr_db = of.snr_db("up", ids) - 10 * math.log10(shares)
        host: Any = {"loudness": inversion.measure_loudness(snr_db)}
        if gains is not None:
            host["arrives"], kept = inversion.invert(gains, of.key("csi", name, 0))
            sent = kept.to(snr_db.dtype)
        if "noise" in drawn:
            host["noise"] = drawn["noise"][0]
        there = send_to_device(host, values.device)
        error = inversion.error(symbols, there.get("arrives"), there.get("noise"), there["loudness"])
        return unpair_numbers(error[None], values[:1])[0], sent

    @lru_cache(maxsize=4)  # noqa: B019 (all tensors of a round have it in common)
    def _inversion(self, clients: tuple[int, ...]) -> Inversion:
        threshold, csi_error = 10 ** (self.options.truncation_db / 10), self.options.csi_error
        means = torch.tensor(
            [self.uncoded.statistics.of("up", k).invert(threshold, csi_error) for k in clients], dtype=torch.float64
        )
        return Inversion(threshold, csi_error, *means.unbind(1))
