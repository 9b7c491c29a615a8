"""`semcom bench scale`: what a round costs when very many clients exist and few take part."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from statistics import median
from typing import Any

from semcom.bench.contest import entered, take_turns
from semcom.bench.machine import machine
from semcom.bench.measurement import Measurement
from semcom.bench.names import chosen
from semcom.bench.text import Cells, aligned, mebibytes, plural
from semcom.bench.variants import Variant
from semcom.bench.workloads import Workload
from semcom.config import ConfigError
from semcom.config.checks import COUNT, require

FEW, MANY, ACTIVE, POOL, SAMPLES = 100, 100_000, 20, 60_000, 50
"""Clients, those that take part in a round, images overall, images per client."""
SLOWER, MEMORY_BYTES = 1.2, 3 * 2**30
"""Targets: a round with many clients over one with few, and the resident memory of the process."""

WORKLOADS: Mapping[str, Workload] = {
    "fedavg": Workload("FedAvg, 5x5 CNN 32-64-512", "fedavg", "cnn", 512, FEW, SAMPLES, 10, active=ACTIVE, pool=POOL),
    "fedproto": Workload(
        "FedProto, DCGAN 32-64-128", "fedproto", "dcgan-narrow", 64, FEW, SAMPLES, 10, ways=3, active=ACTIVE, pool=POOL
    ),
    "fedcl": Workload(
        "FedCL, DCGAN 32-64-128, AWGN 10 dB both ways",
        "fedcl",
        "dcgan-narrow",
        64,
        FEW,
        SAMPLES,
        10,
        ways=3,
        through_link=True,
        active=ACTIVE,
        pool=POOL,
    ),
}
"""Method -> what is measured, with few clients: one method without personal models, and two with them."""


@dataclass(frozen=True)
class Pair:
    """A method with few and with many clients, of which equally many take part."""

    method: str
    few: Measurement
    many: Measurement

    @property
    def ratio(self) -> float | None:
        """Median round with many clients over that with few; None where one failed."""
        if self.few.rate is None or self.many.rate is None:
            return None
        return median(self.many.seconds) / median(self.few.seconds)

    @property
    def met(self) -> bool:
        """Whether both targets are met."""
        memory = self.many.resident_bytes
        return self.ratio is not None and self.ratio <= SLOWER and (memory is None or memory < MEMORY_BYTES)


@dataclass(frozen=True)
class ScaleReport:
    """A whole invocation."""

    machine: Mapping[str, Any]
    rounds: int
    pairs: Sequence[Pair]

    def failures(self) -> list[str]:
        """One line for each measurement that failed."""
        both = [(pair, m) for pair in self.pairs for m in (pair.few, pair.many)]
        return [f"{pair.method}, K = {m.workload.clients}: {m.error}" for pair, m in both if m.error]


def bench(
    methods: str = "fedavg,fedproto,fedcl", clients: int = MANY, rounds: int | None = None, quick: bool = False
) -> ScaleReport:
    """Measures one method after the other; rounds with few and with many clients take turns.

    Args:
        methods: names of `WORKLOADS`, separated by commas.
        clients: how many are very many.
        rounds: that count (None: 50).
        quick: 20 against 200 clients, 3 rounds.

    Raises:
        ConfigError: a method that is not measured, or a number that makes no sense.
    """
    names = chosen("methods", methods, list(WORKLOADS))
    rounds = (3 if quick else 50) if rounds is None else rounds
    require("rounds", rounds, COUNT)
    if clients < FEW:
        raise ConfigError(f"clients: {clients} is less than the {FEW} that it is measured against")
    facts, pairs = machine(), []
    for name in names:
        few = WORKLOADS[name]
        many = few.grown(clients)
        if quick:
            few, many = (replace(few, clients=k, active=2, samples=10, pool=600) for k in (20, 200))
        with entered([few, many], [Variant("loop")]) as entries:
            take_turns(entries, [], rounds)
            pairs.append(Pair(name, *(entry.result() for entry in entries)))
    return ScaleReport(facts, rounds, pairs)


def table(report: ScaleReport) -> str:
    """A row per method and number of clients."""
    rows: list[Cells] = [("method", "clients", "s/round: min", "median", "max", "ratio", "memory MiB", "start s")]
    for pair in report.pairs:
        for m, ratio in ((pair.few, None), (pair.many, pair.ratio)):
            rows.append(_row(pair.method, m, ratio))
    w = report.pairs[0].few.workload
    who = f"{w.active} clients take part in a round, each with {w.samples} of {w.pool:,} images"
    missed = [pair.method for pair in report.pairs if not pair.met]
    aims = f"targets, a ratio of {SLOWER} and {mebibytes(MEMORY_BYTES)} MiB: "
    aims += f"missed by {', '.join(missed)}" if missed else "met"
    return "\n".join([f"{who}; {plural(report.rounds, 'round')}", *aligned(rows), aims])


def _row(method: str, m: Measurement, ratio: float | None) -> tuple[str, ...]:
    """One measurement."""
    clients = f"{m.workload.clients:,}"
    if m.rate is None:
        return (method, clients, f"failed: {m.error}")
    seconds = (min(m.seconds), median(m.seconds), max(m.seconds))
    cost = "" if ratio is None else f"{ratio:.2f}"
    return (method, clients, *(f"{s:.3g}" for s in seconds), cost, mebibytes(m.resident_bytes), f"{m.setup_s:.1f}")


def as_json(report: ScaleReport) -> dict[str, Any]:
    """Everything as plain values."""
    return {
        "benchmark": "scale",
        "machine": dict(report.machine),
        "rounds": report.rounds,
        "targets": {"ratio": SLOWER, "resident_bytes": MEMORY_BYTES},
        "methods": [
            {"method": p.method, "few": asdict(p.few), "many": asdict(p.many), "ratio": p.ratio, "met": p.met}
            for p in report.pairs
        ],
    }
