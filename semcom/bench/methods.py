"""`semcom bench methods`: what a round of each method costs beside FedAvg's, by passes counted and by time measured.

A backward pass, of a convolution's input and of its weights, is about two forward passes; so work = forward + 2 x
backward, and FedAvg's is 3 for each of the clients' samples. An engine that adds nothing of its own to a method takes
as many times as long as it has work.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import pandas as pd

from semcom import resolve
from semcom.bench.commands import Bench, Outcome, cells, chosen, machine, seconds, spread, spread_cells, table
from semcom.bench.rounds import Rounds, counted
from semcom.bench.workloads import Workload, synthetic
from semcom.config import ChannelConfig, ModelConfig, RunConfig, TrainConfig
from semcom.engine.host import ranks
from semcom.methods.registry import METHODS

logger = logging.getLogger(__name__)

WARM = 3  # rounds before those that count, the passes of the last: FedALA's first learning is in the second
MOST = 1.3  # target: time over FedAvg's by work over FedAvg's


@dataclass(frozen=True)
class BenchMethods(Bench):
    """Cost of a round of each method beside FedAvg's: passes through the encoder by count, time by measurement.

    Synthetic images: the small network with dropout, 300 images per client, batch 16, SGD, an ideal link. Rounds of
    FedAvg and of a method take turns on one thread of a processor.
    """

    methods: str | None = None
    """Methods, separated by commas (None: all; see: semcom list methods)."""
    clients: int | None = None
    """Number of clients (None: 20; with --quick 2)."""
    repeats: int | None = None
    """Pairs of rounds that count, after three that do not (None: 5; with --quick 2)."""

    def measure(self) -> Outcome:
        """Measure one method after the other, with one FedAvg beside all of them, on one thread."""
        names = chosen("methods", self.methods, METHODS.names())
        clients, repeats = self.count("clients", 20, 2), self.count("repeats", 5, 2)
        workload = Workload(
            "methods", "fedavg", "cnn-dropout", 128, clients, 32 if self.quick else 300, batch=16, ways=2
        )
        facts = machine()
        with ranks.alone():
            base, passes = warmed_up("fedavg", workload)
            rows = compared(pd.DataFrame([beside(base, name, workload, repeats) for name in names]), passes)
        settings = {"benchmark": "methods", "machine": facts, "repeats": repeats, "target": MOST, "base": passes}
        return Outcome(text(rows, workload, settings), rows, settings | {"workload": asdict(workload)})


def warmed_up(method: str, workload: Workload) -> tuple[Rounds, dict[str, int]]:
    """Return rounds of a method with its default hyperparameters, after the first ones, and the last one's passes."""
    config = RunConfig(
        method=method,
        clients=workload.clients,
        model=ModelConfig(encoder=workload.encoder, features=workload.features),
        channel=ChannelConfig(kind="ideal"),
        train=TrainConfig(optimizer="sgd", lr=0.005, batch_size=workload.batch),
        device="cpu",
    )
    play = Rounds(resolve(config), synthetic(workload))
    for _ in range(WARM):
        with counted() as passes:
            play()
    return play, passes


def beside(base: Rounds, method: str, workload: Workload, repeats: int) -> dict[str, Any]:
    """Return a method's passes, and its seconds in turns with FedAvg, in one order and then the other.

    Seconds are those of the processor, so that what others do in between does not count.
    """
    own, passes = warmed_up(method, workload)
    took: dict[Rounds, list[float]] = {base: [], own: []}
    for turn in range(repeats):
        for play in (base, own) if turn % 2 == 0 else (own, base):
            took[play].append(seconds(play, time.process_time))
        logger.info("%s: %.3g s beside %.3g s of FedAvg", method, took[own][-1], took[base][-1])
    return {"method": method, **passes, "seconds": took[own], "base_seconds": took[base]}


def compared(rows: pd.DataFrame, base: Mapping[str, int]) -> pd.DataFrame:
    """Return the rows with work over FedAvg's, time over FedAvg's in each pair, and the median of that by work."""
    work = (rows.forward + 2 * rows.backward) / (base["forward"] + 2 * base["backward"])
    pairs = zip(rows.seconds, rows.base_seconds, strict=True)
    times = pd.Series([[own / base for own, base in zip(*pair, strict=True)] for pair in pairs])
    return rows.assign(work=work, times=times, time_over_work=spread(times)["median"] / work)


def text(rows: pd.DataFrame, w: Workload, settings: Mapping[str, Any]) -> str:
    """Return a row per method, after two lines about the machine and the workload."""
    missed = ", ".join(rows[rows.time_over_work > MOST].method)
    columns = table(
        ("method", rows.method),
        cells("forward", rows.forward / w.visited, ".2f"),
        cells("backward", rows.backward / w.visited, ".2f"),
        cells("work/FedAvg", rows.work, ".2f"),
        *spread_cells("time/FedAvg", rows.times, ".2f"),
        cells("time/work", rows.time_over_work, ".2f"),
    )
    head = f"{settings['machine']['title']}; one thread; pairs of rounds: {settings['repeats']}"
    work = f"{w.encoder}, d = {w.features}, {w.clients} clients x {w.samples} samples, batch {w.batch}, ideal link"
    what = "forward, backward: passes through an encoder per sample; work: forward + 2 x backward"
    aims = f"target, a time/work of {MOST}: " + (f"missed by {missed}" if missed else "met")
    return "\n".join([head, work, columns, what, aims])
