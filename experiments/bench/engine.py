"""`bench engine`: rounds of the engine beside the plain per-client loop, in one invocation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import joblib
import pandas as pd
import torch
import torch.nn.functional as F
from torch.utils.flop_counter import FlopCounterMode

from semcom.channels.options import COUNT
from semcom.config.checks import require_in_config
from semcom.models.meta import build_on_meta
from semcom_papers.experiments.bench.commands import (
    MIB,
    Bench,
    Outcome,
    choose_bench,
    describe_bench_machine,
    format_bench_cells,
    format_bench_spread,
    format_bench_table,
    make_bench_timer,
    spread_bench,
)
from semcom_papers.experiments.bench.plain import Network
from semcom_papers.experiments.bench.rounds import measure_rounds_in_turns
from semcom_papers.experiments.bench.workloads import Workload, list_workload_variants

_FEDCL = "FedCL, DCGAN 64-128-256, 3 classes per client, AWGN 10 dB both ways"
CASES: Mapping[str, Workload] = {
    "a": Workload("FedAvg, 5x5 CNN 32-64-512, no link", "fedavg", "cnn", 512, 20, 300, 16),
    "b": Workload(_FEDCL, "fedcl", "dcgan", 64, 20, 300, 50, ways=3, snr_db=10.0),
    "c": Workload("FedAvg, ResNet-18, no link", "fedavg", "resnet18", 512, 10, 128, 64),
}
SMALL: Mapping[str, Workload] = {
    name: replace(case, title=f"{case.title} (small)", clients=2, samples=4 if name == "c" else 11, batch=4)
    for name, case in CASES.items()
}
"""The same cases, so small that they take a moment."""
GROWING, SIZES = ("a", "b"), {"cpu": 2048, "cuda": 8192}
"""Cases with several numbers of clients; rows and columns of the matrices whose products are a device's peak."""


@dataclass(frozen=True)
class BenchEngine(Bench):
    """Whole training rounds of the engine beside the plain per-client loop, on synthetic images.

    Case a: FedAvg with the 5x5 CNN 32-64-512. b: FedCL with the DCGAN encoder over AWGN. c: FedAvg with ResNet-18. The
    variants take turns, each in a process of its own, so nothing else should be at work on the machine.
    """

    cases: str = "a,b,c"
    """Cases, separated by commas."""
    variants: str | None = None
    """Variants, separated by commas: plain, bare, loop, chunk, processes, bf16, ... (None: all that run here)."""
    repeats: int | None = None
    """Rounds of each variant that count, after one that does not (None: 5; with --quick 2)."""
    growth: tuple[int, ...] | None = None
    """Numbers of clients to measure the best variant with (None: 5 20 80; with --quick 2 4)."""

    def measure(self) -> Outcome:
        """Measure one case after the other, and the peak of each device beside them."""
        names, repeats = choose_bench("cases", self.cases, list(CASES)), self.count("repeats", 5, 2)
        known = {variant.name: variant for variant in list_workload_variants(torch.cuda.is_available())}
        wanted = [known[name] for name in choose_bench("variants", self.variants, list(known))]
        require_in_config("growth", self.growth, COUNT)
        clients = sorted(set(self.growth if self.growth is not None else (2, 4) if self.quick else (5, 20, 80)))
        facts, found = describe_bench_machine(), []
        sizes: dict[str, int] = {v.device: 256 if self.quick else SIZES[v.device] for v in wanted}
        peaks = dict.fromkeys(sizes, 0.0)
        raise_engine_peaks(dict(peaks), sizes)  # starts the processes
        for name in names:
            workload = (SMALL if self.quick else CASES)[name]
            rows = measure_rounds_in_turns(
                [(workload, variant) for variant in wanted], repeats, lambda: raise_engine_peaks(peaks, sizes)
            )
            for best in find_fastest_engine(rows) if name in GROWING else ():
                grown = measure_rounds_in_turns([(replace(workload, clients=k), known[best]) for k in clients], repeats)
                rows += [{**row, "growing": True} for row in grown]
            found += [
                {"case": name, "flops_per_sample": count_engine_flops(workload), "growing": False} | r for r in rows
            ]
        rows = compare_engines(pd.DataFrame(found), peaks)
        settings = {"benchmark": "engine", "machine": facts, "repeats": repeats, "peak_flops_per_second": peaks}
        return Outcome(format_engine_cases(rows, settings), rows, settings)


def raise_engine_peaks(best: dict[str, float], sizes: Mapping[str, int]) -> None:
    """Raise each device's peak FLOP/s of matrix products if it is faster now; a CPU runs a process per core."""
    for device, size in sizes.items():
        n = joblib.cpu_count() if device == "cpu" else 1
        speeds = joblib.Parallel(n)(joblib.delayed(measure_product_speed)(size, device) for _ in range(n))
        best[device] = max(best[device], sum(speeds))


def measure_product_speed(size: int, device: str) -> float:
    """Measure the FLOP/s of the fastest product of two square float32 matrices within a second."""
    a, b = torch.randn(2, size, size, device=device)
    product = make_bench_timer(partial(torch.mm, a, b, out=torch.empty_like(a)), device)
    return 2 * size**3 / min(product.blocked_autorange(min_run_time=min(1.0, size / 2048)).times)


def find_fastest_engine(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Find the engine's variants with the fastest round: on a CPU in float32, on CUDA at each precision."""
    ours = [row for row in rows if row["seconds"] and not row["plain"]]
    ours = [row for row in ours if row["device"] == "cuda" or row["precision"] == "float32"]
    ours.sort(key=lambda row: min(row["seconds"]), reverse=True)
    return list({(row["device"], row["precision"]): row["variant"] for row in ours}.values())


def count_engine_flops(workload: Workload) -> float:
    """Count the floating-point operations of a training step per sample; a product and its sum are two.

    Counted on the plain network, on the meta device. Operations other than matrix products (normalisation, ReLU, link,
    optimiser) count nothing, so the share of the peak that follows is a lower bound.
    """
    with build_on_meta(), torch.random.fork_rng(devices=[]):
        network = Network(workload)
        images = torch.empty(workload.batch, 3, 32, 32)
        labels = torch.zeros(workload.batch, dtype=torch.int64)
    with FlopCounterMode(display=False) as counter:
        F.cross_entropy(network(images)[1], labels).backward()
    return counter.get_total_flops() / workload.batch


def compare_engines(rows: pd.DataFrame, peaks: Mapping[str, float]) -> pd.DataFrame:
    """Add rates (samples/s), also over the plain loop's on the device, FLOP/s and costs of growing to the rows.

    The plain loop is that at the row's precision, or in float32 where there is none. Peaks are those of float32.
    """
    rows = rows.assign(rate=spread_bench(rows.rates)["median"])
    plain = rows[rows.plain & ~rows.bare].set_index(["case", "device", "precision"]).rate
    alike, usual = (
        plain.reindex(pd.MultiIndex.from_frame(rows[["case", "device"]].assign(precision=precision)))
        for precision in (rows.precision, "float32")
    )
    plain = alike.fillna(usual.set_axis(alike.index))
    flops = rows.rate * rows.flops_per_sample
    fewest = rows.groupby(["case", "variant", "growing"], sort=False).rate.transform("first")
    return rows.assign(
        times_plain=(rows.rate / plain.to_numpy()).where(~rows.growing),  # the plain loop has the case's clients
        flops_per_second=flops,
        share_of_peak=(flops / rows.device.map(peaks)).where(rows.precision == "float32"),
        cost_over_fewest=(fewest / rows.rate).where(rows.growing),
    )


def format_engine_cases(rows: pd.DataFrame, settings: Mapping[str, Any]) -> str:
    """Format all cases below a line about the machine."""
    head = f"{settings['machine']['title']}; rounds of each after a warm-up: {settings['repeats']}"
    peaks = ", ".join(f"{name} {flops / 1e9:,.0f} GFLOP/s" for name, flops in settings["peak_flops_per_second"].items())
    return "\n\n".join([head, *(format_engine_case(case, peaks) for _, case in rows.groupby("case", sort=False))])


def format_engine_case(case: pd.DataFrame, peaks: str) -> str:
    """Format a case: its description, a row per variant, and the cost of growing."""
    found, first = case[~case.growing], case.iloc[0]
    on_gpu = (
        [format_bench_cells("GPU MiB", found.device_bytes / MIB, ",.0f")] if found.device_bytes.notna().any() else []
    )
    columns = format_bench_table(
        ("variant", found.variant),
        *format_bench_spread("samples/s", found.rates, ",.0f"),
        format_bench_cells("x plain", found.times_plain, ".2f"),
        format_bench_cells("GFLOP/s", found.flops_per_second / 1e9, ",.1f"),
        format_bench_cells("% of peak", 100 * found.share_of_peak, ".1f"),
        format_bench_cells("memory MiB", found.resident_bytes / MIB, ",.0f"),
        *on_gpu,
    )
    lines = [
        f"{first.case}: {first.title}",
        f"   {first.clients} clients x {first.samples} samples, batch {first.batch}; "
        f"{first.flops_per_sample / 1e6:,.1f} MFLOP per sample; peak of products: {peaks}",
        columns,
    ]
    rates = found.set_index("variant").rate
    for row in found[found.rounded_from.isin(found.variant)].itertuples():
        times = row.rate / rates[row.rounded_from]
        lines.append(f"   {row.variant} is {row.rounded_from} at another precision: {times:.2f} times as fast")
    if {"bare", "loop"} <= set(found.variant):
        lines.append(f"   loop takes {rates['bare'] / rates['loop']:.2f} times as long as bare")
    for variant, grown in case[case.growing].groupby("variant", sort=False):
        columns = format_bench_table(
            format_bench_cells("K", grown.clients, ","),
            format_bench_cells("samples/s", grown.rate, ",.0f"),
            format_bench_cells("us/sample", 1e6 / grown.rate, ",.1f"),
            format_bench_cells("x smallest K", grown.cost_over_fewest, ".2f"),
            format_bench_cells("memory MiB", grown.resident_bytes / MIB, ",.0f"),
        )
        lines += [f"   growing K, {variant}:", columns]
    return "\n".join(lines)
