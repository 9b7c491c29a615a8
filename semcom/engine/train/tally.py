"""The counters of a run: samples, traffic, received SNR, errors and losses."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import copy
from typing import Any

import numpy as np
import torch

from semcom.channels import Meter
from semcom.channels.meter import ratio_db
from semcom.engine.air.air import Air
from semcom.engine.host.ranks import ALONE, Team
from semcom.engine.train.context import Log
from semcom.engine.train.draws import Draws
from semcom.engine.train.plan import plan_batch_sizes


class Tally:
    """The counters of a run, and the clock of its rounds.

    Args:
        draws: of the run.
        air: exchange, which counts its traffic.
        team: the processes that share the run's clients.

    Attributes:
        visited: training samples visited so far.
        log: per-client means that training reported in this round, name -> `[n]`.
        warnings: the method's warnings in this round, name -> text.
        tests: names of the meters of tests, at each test SNR; of a single test "test".
        meters: received SNR and errors by "train_up", "train_down" and those of `tests`, since the last `settle`.
        measured: the sums before that, over all ranks.
    """

    def __init__(self, draws: Draws, air: Air, team: Team) -> None:
        self.draws, self.air, self.team = draws, air, team
        self.visited, self.log, self.warnings = 0, Log(), dict[str, str]()
        snrs = draws.test_snrs
        self.tests = ["test"] if len(snrs) == 1 else [f"test at {snr:g} dB" for snr in snrs]
        self.meters = {name: Meter() for name in ("train_up", "train_down", *self.tests)}
        self.measured = dict.fromkeys(self.meters, 6 * (0.0,))

    def alone(self) -> Tally:
        """Return the same counters in a process that shares its clients with no other."""
        made = copy(self)
        made.team, made.log, made.meters = ALONE, dict(self.log), {name: Meter() for name in self.meters}
        return made

    def begin(self, round_: int) -> None:
        """Begin a round, which is the clock of every keyed draw."""
        self.draws.round, self.log, self.warnings = round_, {}, {}
        self.air.begin(round_, self.draws.config.participants)

    @contextmanager
    def uncounted(self) -> Iterator[None]:
        """Count nothing inside the context: round, samples, traffic, log and SNR of training are then restored.

        So is the remainder of `top-k`.

        The received SNR of tests is kept: an evaluation here is one of the run.
        """
        before, round_, log, warnings = self.counters(), self.draws.round, dict(self.log), dict(self.warnings)
        residual = self.air.compression.residual
        yield  # after an exception the world is not used any more
        self.settle()
        tests = {name: self.measured[name] for name in self.tests}
        self.resume(before)
        self.air.compression.residual = residual
        self.draws.round, self.log, self.warnings = round_, log, warnings
        self.measured |= tests

    def features(self, ids: np.ndarray, sizes: Sequence[Sequence[int]], back: bool) -> None:
        """Count the clients' mini-batches in training, `sizes` of each, and their traffic if the method is split.

        Args:
            ids: the clients, `[n]`.
            sizes: samples of each mini-batch, for each client.
            back: whether gradients come down.
        """
        self.visited += sum(map(sum, sizes))
        if self.draws.split:
            self._traffic(ids, sizes, back)

    def uplink(self, ids: np.ndarray) -> None:
        """Count a pass of the clients' training features over the uplink, which a split method's base station hears."""
        if self.draws.split:
            batch, owned = self.draws.config.train.batch_size, self.draws.federation.train.sizes[ids]
            self._traffic(ids, [plan_batch_sizes(int(n), batch) for n in owned], back=False)

    def _traffic(self, ids: np.ndarray, sizes: Sequence[Sequence[int]], back: bool) -> None:
        bits = self.draws.task.target_bits(self.draws.federation)
        self.air.features(ids, sizes, self.draws.config.model.features, bits, back)

    def settle(self) -> None:
        """Add the measurements of all ranks on the air since the last call; this waits for the device: once a round."""
        sums = [m.take(self.draws.device) for m in self.meters.values()]
        for name, more in zip(self.meters, self.team.sum(torch.stack(sums)).tolist(), strict=True):
            self.measured[name] = tuple(a + b for a, b in zip(self.measured[name], more, strict=True))

    def snr_received_db(self) -> dict[str, Any]:
        """Compute the received SNR in dB so far, by meter (see `_group_tests`); None for a meter without signals."""
        found = {name: ratio_db(*sums[:2]) for name, sums in self.measured.items()}
        return self._group_tests({name: value if math.isfinite(value) else None for name, value in found.items()})

    def _group_tests(self, found: Mapping[str, Any]) -> dict[str, Any]:
        """Group values by meter; several tests give `test`, the value of the first, and `test_at`, by their SNRs."""
        if self.tests == ["test"] or self.tests[0] not in found:
            return dict(found)
        rest = {name: value for name, value in found.items() if name not in self.tests}
        each = {f"{snr:g}": found[name] for snr, name in zip(self.draws.test_snrs, self.tests, strict=True)}
        return {**rest, "test": found[self.tests[0]], "test_at": each}

    def list_silent_meters(self) -> list[str]:
        """List the meters that have heard only noise."""
        return [name for name, (signal, noise, *_) in self.measured.items() if signal == 0.0 < noise]

    def list_broken_meters(self, least: float) -> dict[str, float]:
        """List the fraction of lost blocks by meter if it is at least so much, of tests only if it is in all."""
        lost = {name: sums[4] / sums[5] for name, sums in self.measured.items() if sums[5]}
        tests = min((lost[name] for name in self.tests if name in lost), default=0.0)
        lost = {**{name: part for name, part in lost.items() if name not in self.tests}, "test": tests}
        return {name: part for name, part in lost.items() if part >= least}

    def error_rates(self) -> dict[str, Any]:
        """Compute the fractions of wrong bits and of lost blocks so far, by meter as above, if the link sends bits."""
        counted = {name: sums[2:] for name, sums in self.measured.items() if sums[3]}
        return self._group_tests({name: {"bits": a / b, "blocks": c / d} for name, (a, b, c, d) in counted.items()})

    def losses(self) -> dict[str, float]:
        """Average the logged values of training in this round over the clients; one read off the device."""
        means = [values.mean().double().to(self.draws.device) for values in self.log.values()]
        return dict(zip(self.log, torch.stack(means).tolist(), strict=True)) if means else {}

    def counters(self) -> dict[str, Any]:
        """Return all counts and measurements so far, as plain numbers."""
        self.settle()
        meters = {name: list(sums) for name, sums in self.measured.items()}
        losses = self.air.arrivals.losses.counters()
        return {"visited": self.visited, "air": self.air.counters(), "meters": meters, "losses": losses}

    def resume(self, counters: Mapping[str, Any]) -> None:
        """Continue from the result of `counters`."""
        self.visited = counters["visited"]
        self.air.resume(counters["air"])
        self.air.arrivals.losses.resume(counters["losses"])
        self.measured = {name: tuple(sums) for name, sums in counters["meters"].items()}
