"""`bench scale`: the cost of a round when very many clients exist and few take part."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import pandas as pd

from semcom.config import ConfigError
from semcom.methods.registry import METHODS
from semcom_papers.experiments.bench.commands import (
    MIB,
    Bench,
    Outcome,
    choose_bench,
    describe_bench_machine,
    format_bench_cells,
    format_bench_spread,
    format_bench_table,
    spread_bench,
)
from semcom_papers.experiments.bench.rounds import measure_rounds_in_turns
from semcom_papers.experiments.bench.workloads import Variant, Workload

FEW, MANY, ACTIVE, POOL, SAMPLES = 100, 100_000, 20, 60_000, 50
"""Clients, those that take part in a round, images overall, images per client."""
TESTS = 2
"""Test images per client; a test looks at as many clients as there are where there are few."""
SLOWER, MEMORY_BYTES = 1.2, 3 * 2**30
"""Targets: a round with many clients over one with few, and the resident memory of the process."""

_FEDAVG = Workload("FedAvg, 5x5 CNN 32-64-512", "fedavg", "cnn", 512, FEW, SAMPLES, 10, active=ACTIVE, pool=POOL)
_FEDAVG = replace(_FEDAVG, tests=TESTS, tested=FEW)
_PERSONAL = replace(_FEDAVG, encoder="dcgan-narrow", features=64, ways=3)
WORKLOADS: Mapping[str, Workload] = {
    name: replace(_PERSONAL, title=f"{name}, DCGAN 32-64-128", method=name)
    for name in METHODS.names()
    if METHODS.ships(name)
} | {
    "fedavg": _FEDAVG,
    "fedcl": replace(_PERSONAL, title="FedCL, DCGAN 32-64-128, AWGN both ways", method="fedcl", snr_db=10.0),
}
"""Method -> its workload with few clients."""


@dataclass(frozen=True)
class BenchScale(Bench):
    """Cost of a round and of a test of 100 clients when very many exist and 20 of them take part, beside 20 of 100.

    The clients share 60,000 synthetic images through overlapping index tables.
    """

    methods: str = "fedavg,fedproto,fedcl"
    """Methods, separated by commas, or all."""
    clients: int = MANY
    """Number of clients that counts as very many."""
    rounds: int | None = None
    """Rounds that count, after one that does not (None: 50; with --quick 3)."""

    def measure(self) -> Outcome:
        """Measure one method after the other; rounds with few and with many clients take turns."""
        names, rounds = (
            choose_bench("methods", None if self.methods == "all" else self.methods, list(WORKLOADS)),
            self.count("rounds", 50, 3),
        )
        if self.clients < FEW:
            raise ConfigError(f"clients: {self.clients} is less than the {FEW} that it is measured against")
        facts, found = describe_bench_machine(), []
        for few in (WORKLOADS[name] for name in names):
            pair = [few, replace(few, clients=self.clients)]
            if self.quick:
                pair = [replace(few, clients=k, active=2, samples=10, pool=600, tested=20) for k in (20, 1000)]
            found += measure_rounds_in_turns([(workload, Variant("loop")) for workload in pair], rounds)
        rows, targets = compare_scales(pd.DataFrame(found)), {"ratio": SLOWER, "resident_bytes": MEMORY_BYTES}
        settings = {"benchmark": "scale", "machine": facts, "rounds": rounds, "targets": targets}
        return Outcome(format_scale(rows, rounds), rows, settings)


def compare_scales(rows: pd.DataFrame) -> pd.DataFrame:
    """Add the ratio of median rounds to pairs of rows (few clients, many), and whether targets are met."""
    middle, many = spread_bench(rows.seconds)["median"], rows.index % 2 == 1
    ratio = (middle / middle.shift()).where(many)
    met = (ratio <= SLOWER) & ~(rows.resident_bytes >= MEMORY_BYTES)
    return rows.assign(ratio=ratio, met=met.astype(object).where(many, None))


def format_scale(rows: pd.DataFrame, rounds: int) -> str:
    """Format a row per method and number of clients, and the verdict on the targets."""
    first, missed = rows.iloc[0], ", ".join(rows[rows.met.eq(False)].method)
    head = f"{first.active} clients take part in a round, each with {first.samples} of {first.pool:,} images"
    head += f"; a test has {first.tested} clients"
    columns = format_bench_table(
        ("method", rows.method),
        format_bench_cells("clients", rows.clients, ","),
        *format_bench_spread("s/round", rows.seconds, ".3g"),
        format_bench_cells("ratio", rows.ratio, ".2f"),
        format_bench_cells("test s", rows.test_seconds, ".3g"),
        format_bench_cells("memory MiB", rows.resident_bytes / MIB, ",.0f"),
        format_bench_cells("start s", rows.setup_seconds, ".1f"),
    )
    aims = f"targets, a ratio of {SLOWER} and {MEMORY_BYTES / MIB:,.0f} MiB: "
    return f"{head}; rounds: {rounds}\n{columns}\n{aims}" + (f"missed by {missed}" if missed else "met")
