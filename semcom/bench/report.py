"""A report of `semcom bench engine` as a table for a terminal, and as plain values for a JSON file."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

from semcom.bench.measurement import CaseResult, Growth, Measurement, Report
from semcom.bench.text import Cells, aligned, mebibytes, number, plural
from semcom.bench.workloads import Workload


def table(report: Report) -> str:
    """All cases, one below the other, after a line about the machine."""
    m = report.machine
    facts = [m["cpu"], f"{m['cores']} cores", m["gpu"], f"torch {m['versions']['torch']}"]
    head = ", ".join(fact for fact in facts if fact) + f"; {plural(report.repeats, 'round')} of each after a warm-up"
    return "\n\n".join([head, *(_case(case) for case in report.cases)])


def _case(case: CaseResult) -> str:
    """One case: what it is, a row per variant, and the cost of growing."""
    w = case.workload
    peaks = ", ".join(f"{device} {flops / 1e9:,.0f} GFLOP/s" for device, flops in case.peaks.items())
    lines = [
        f"{case.name}: {w.title}",
        f"   {_size(w)}; {case.flops_per_sample / 1e6:,.1f} MFLOP per sample; peak of products: {peaks}",
        *aligned([_head(case), *(_row(case, m) for m in case.measurements)]),
    ]
    for name, base in (case.rounded_from or {}).items():
        measured = case.find(name)
        times = case.times(measured, base) if measured else None
        lines.append(f"   {name} is {base} at another precision: {number(times, '.2f')} times as fast")
    return "\n".join([*lines, *(line for growth in case.growth for line in _growth(growth))])


def _size(w: Workload) -> str:
    """Numbers of a workload."""
    return f"{w.clients} clients x {w.samples} samples, batch {w.batch}"


def _head(case: CaseResult) -> Cells:
    """Titles of the columns."""
    gpu = ("GPU MiB",) if _on_gpu(case) else ()
    return ("variant", "samples/s: min", "median", "max", "x plain", "GFLOP/s", "% of peak", "memory MiB", *gpu)


def _on_gpu(case: CaseResult) -> bool:
    """Whether any variant ran on a GPU."""
    return any(m.device_bytes is not None for m in case.measurements)


def _row(case: CaseResult, m: Measurement) -> Cells:
    """One variant."""
    if m.rate is None:
        return (m.variant.name, f"failed: {m.error}")
    share = case.share_of_peak(m)
    gpu = (mebibytes(m.device_bytes),) if _on_gpu(case) else ()
    return (
        m.variant.name,
        *(f"{rate:,.0f}" for rate in m.rates),
        number(case.times_plain(m), ".2f"),
        f"{m.rate * case.flops_per_sample / 1e9:,.1f}",
        number(None if share is None else 100 * share, ".1f"),
        mebibytes(m.resident_bytes),
        *gpu,
    )


def _growth(growth: Growth) -> Iterable[str]:
    """The cost of several numbers of clients."""
    rows: list[Cells] = [("K", "samples/s", "us/sample", "x smallest K", "memory MiB")]
    first = growth.measurements[0].rate
    for m in growth.measurements:
        if m.rate is None:
            rows.append((str(m.workload.clients), f"failed: {m.error}"))
            continue
        cost = f"{first / m.rate:.2f}" if first else "-"
        clients = f"{m.workload.clients:,}"
        rows.append((clients, f"{m.rate:,.0f}", f"{1e6 / m.rate:,.1f}", cost, mebibytes(m.resident_bytes)))
    yield f"   growing K, {growth.variant}:"
    yield from aligned(rows)


def as_json(report: Report) -> dict[str, Any]:
    """Everything as plain values: what was measured, and what follows from it."""
    return {
        "benchmark": "engine",
        "machine": dict(report.machine),
        "repeats": report.repeats,
        "cases": [_case_json(case) for case in report.cases],
    }


def _case_json(case: CaseResult) -> dict[str, Any]:
    """One case."""
    return {
        "name": case.name,
        "workload": asdict(case.workload),
        "flops_per_sample": case.flops_per_sample,
        "peak_flops_per_second": dict(case.peaks),
        "variants": [
            _measurement_json(m)
            | {
                "times_plain": case.times_plain(m),
                "share_of_peak": case.share_of_peak(m),
                "rounded_from": (case.rounded_from or {}).get(m.variant.name),
            }
            for m in case.measurements
        ],
        "growth": [
            {"variant": growth.variant, "measurements": [_measurement_json(m) for m in growth.measurements]}
            for growth in case.growth
        ],
    }


def _measurement_json(m: Measurement) -> dict[str, Any]:
    """One variant of a workload; rates are null where it failed."""
    low, middle, high = m.rates if m.rate is not None else (None, None, None)
    return {
        "variant": asdict(m.variant),
        "clients": m.workload.clients,
        "seconds": list(m.seconds),
        "samples_per_second": {"min": low, "median": middle, "max": high},
        "setup_seconds": m.setup_s,
        "threads": m.threads,
        "resident_bytes": m.resident_bytes,
        "device_bytes": m.device_bytes,
        "error": m.error,
    }
