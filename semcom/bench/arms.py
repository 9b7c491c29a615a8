"""`semcom bench arms`: what a round of each arm costs beside FedAvg's, passes by count and time by measurement.

A backward pass, of a convolution's input and of its weights, is about two forward passes; so work = forward + 2 x
backward, and FedAvg's is 3 for each of the clients' samples. An engine that adds nothing of its own to an arm takes
as many times as long as it has work.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

from semcom import resolve
from semcom.bench.counting import Passes, counted
from semcom.bench.data import synthetic
from semcom.bench.machine import machine, one_thread
from semcom.bench.names import chosen
from semcom.bench.rounds import Rounds
from semcom.bench.text import Cells, aligned, plural
from semcom.bench.workloads import Workload
from semcom.config import ChannelConfig, ModelConfig, RunConfig, TrainConfig
from semcom.config.checks import COUNT, require
from semcom.methods.registry import METHODS

logger = logging.getLogger(__name__)

BASE = "fedavg"
WARM = 3
"""Rounds before those that count: centroids exist from the first one on, and FedALA's first learning is in the second.

The passes are those of the last of them."""
MOST = 1.3
"""Target: time over FedAvg's by work over FedAvg's."""


@dataclass(frozen=True)
class ArmResult:
    """What one arm took.

    Attributes:
        arm: its name.
        passes, base_passes: of one of its rounds, and of one of FedAvg's.
        seconds: of FedAvg's round and of its own, in each pair.
    """

    arm: str
    passes: Passes
    base_passes: Passes
    seconds: tuple[tuple[float, float], ...]

    @property
    def work(self) -> float:
        """Over FedAvg's."""
        return self.passes.work / self.base_passes.work

    @property
    def times(self) -> tuple[float, float, float]:
        """Time over FedAvg's: least, median and most of the pairs."""
        ratios = [own / base for base, own in self.seconds]
        return min(ratios), median(ratios), max(ratios)

    @property
    def time_over_work(self) -> float:
        """1 where it costs what its passes cost in FedAvg."""
        return self.times[1] / self.work


@dataclass(frozen=True)
class ArmsReport:
    """A whole invocation."""

    machine: Mapping[str, Any]
    workload: Workload
    repeats: int
    arms: Sequence[ArmResult]

    @property
    def missed(self) -> list[str]:
        """Arms that miss the target."""
        return [result.arm for result in self.arms if result.time_over_work > MOST]


def bench(
    arms: str | None = None, clients: int | None = None, repeats: int | None = None, quick: bool = False
) -> ArmsReport:
    """Measures one arm after the other, with one FedAvg beside all of them, on one thread.

    Args:
        arms: names of methods, separated by commas (None: all).
        clients: K (None: 20).
        repeats: pairs that count, after three rounds that do not (None: 5).
        quick: 2 clients with 32 samples, 2 pairs.

    Raises:
        ConfigError: a method that does not exist, or a number that makes no sense.
    """
    names = METHODS.names() if arms is None else chosen("arms", arms, METHODS.names())
    clients = (2 if quick else 20) if clients is None else clients
    repeats = (2 if quick else 5) if repeats is None else repeats
    for name, value in (("clients", clients), ("repeats", repeats)):
        require(name, value, COUNT)
    samples = 32 if quick else 300
    workload = Workload("arms-small", BASE, "cnn-dropout", 128, clients, samples, batch=16, ways=2)
    facts = machine()
    with one_thread():
        base = Beside(rounds(BASE, workload))
        return ArmsReport(facts, workload, repeats, [base.measure(name, workload, repeats) for name in names])


def rounds(arm: str, workload: Workload) -> Rounds:
    """Rounds of an arm with its default hyperparameters, on a CPU."""
    rate: dict[str, Any] = {} if "train.lr" in METHODS.get(arm).unused else {"optimizer": "sgd", "lr": 0.005}
    config = RunConfig(
        method=arm,
        clients=workload.clients,
        model=ModelConfig(encoder=workload.encoder, features=workload.features),
        channel=ChannelConfig(kind="ideal"),
        train=TrainConfig(**rate, batch_size=workload.batch),
        device="cpu",
    )
    return Rounds(resolve(config), synthetic(workload))


class Beside:
    """FedAvg, warmed up and counted, beside which arms are measured."""

    def __init__(self, base: Rounds) -> None:
        self.base, self.passes = base, _warmed(base)

    def measure(self, arm: str, workload: Workload, repeats: int) -> ArmResult:
        """One arm: warmed up, counted, and timed in turns with FedAvg, in one order and then the other."""
        own = rounds(arm, workload)
        passes, seconds = _warmed(own), []
        for turn in range(repeats):
            order = (self.base, own) if turn % 2 == 0 else (own, self.base)
            taken = {each: _seconds(each) for each in order}
            seconds.append((taken[self.base], taken[own]))
            logger.info("%s: %.3g s beside %.3g s of FedAvg", arm, taken[own], taken[self.base])
        return ArmResult(arm, passes, self.passes, tuple(seconds))


def _warmed(each: Rounds) -> Passes:
    """The first rounds; returns the passes of the last of them."""
    for _ in range(WARM - 1):
        each.measure()
    with counted() as passes:
        each.measure()
    return passes


def _seconds(each: Rounds) -> float:
    """The next round in seconds of the processor, so that what others do in between does not count."""
    begun = time.process_time()
    each.measure()
    return time.process_time() - begun


def table(report: ArmsReport) -> str:
    """A row per arm, after a line about the machine."""
    m, w = report.machine, report.workload
    samples = w.clients * w.samples
    head = ("arm", "forward", "backward", "work/FedAvg", "time/FedAvg: min", "median", "max", "time/work")
    rows: list[Cells] = [head, *(_row(result, samples) for result in report.arms)]
    return "\n".join(
        [
            f"{m['cpu']}, one thread, torch {m['versions']['torch']}; {plural(report.repeats, 'pair')} of rounds",
            f"{w.encoder}, d = {w.features}, {w.clients} clients x {w.samples} samples, batch {w.batch}, ideal link",
            *aligned(rows),
            "forward, backward: passes through an encoder per sample; work: forward + 2 x backward",
            f"target, a time/work of {MOST}: " + (f"missed by {', '.join(report.missed)}" if report.missed else "met"),
        ]
    )


def _row(result: ArmResult, samples: int) -> Cells:
    """One arm."""
    passes = (result.passes.forward / samples, result.passes.backward / samples)
    return (result.arm, *(f"{value:.2f}" for value in (*passes, result.work, *result.times, result.time_over_work)))


def as_json(report: ArmsReport) -> dict[str, Any]:
    """Everything as plain values."""
    return {
        "benchmark": "arms",
        "machine": dict(report.machine),
        "workload": asdict(report.workload),
        "repeats": report.repeats,
        "target": MOST,
        "arms": [
            asdict(result) | {"work": result.work, "times": result.times, "time_over_work": result.time_over_work}
            for result in report.arms
        ],
    }
