"""Numbers and tables that follow from fixed measurements."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from semcom.config import RunError
from semcom_papers.experiments.bench import commands, engine, scale
from semcom_papers.experiments.bench.commands import MIB, Bench, Outcome
from semcom_papers.experiments.bench.workloads import Variant, Workload

WORK = Workload("FedAvg, tiny", "fedavg", "cnn", 512, clients=2, samples=50, batch=10)
PEAKS = {"cpu": 1e9, "cuda": 1e11}


def measured(name: str, *seconds: float, clients: int = 2, growing: bool = False, **more: Any) -> dict[str, Any]:
    """A row of the engine's benchmark: 100 samples a round with 2 clients, 2 MFLOP each."""
    variant = Variant(name, plain=name.startswith("plain"), device="cuda" if "cuda" in name else "cpu")
    common = {"case": "a", "flops_per_sample": 2e6, "growing": growing, "resident_bytes": 600 * MIB}
    row = {**vars(WORK), **vars(variant), **common, "variant": name, "clients": clients, "device_bytes": math.nan}
    return {**row, "seconds": seconds, "rates": [50 * clients / s for s in seconds], "error": None, **more}


def compared(*rows: dict[str, Any]) -> pd.DataFrame:
    return engine.compare_engines(pd.DataFrame(list(rows)), PEAKS)


PLAIN, LOOP = measured("plain", 2.0, 1.0, 4.0), measured("loop", 0.5, 0.25, 1.0)
BF16, BROKEN = measured("bf16", 0.25, rounded_from="loop"), measured("chunk", error="RuntimeError: no memory")


def test_a_gpu_is_compared_with_the_plain_loop_on_it() -> None:
    found = compared(PLAIN, measured("plain-cuda", 1.0), measured("cuda", 0.1))
    assert found.times_plain.tolist() == pytest.approx([1, 1, 10])
    assert found.share_of_peak[2] == pytest.approx(1000 * 2e6 / 1e11)
    assert compared(PLAIN, measured("cuda", 0.1)).times_plain.isna().tolist() == [False, True]


def test_a_case_is_compared_with_its_own_plain_loop() -> None:
    other = [{**row, "case": "b"} for row in (measured("plain", 8.0), measured("loop", 1.0))]
    assert compared(PLAIN, LOOP, *other).times_plain.tolist() == [1, 4, 1, 8]


def test_the_best_is_the_engines_fastest_on_a_gpu_at_each_precision() -> None:
    rows = [measured("plain", 0.1), LOOP, measured("chunk", 0.2, 0.9), BROKEN, {**BF16, "precision": "bf16"}]
    assert engine.find_fastest_engine(rows) == ["chunk"]
    cuda = [measured("cuda", 0.1), {**measured("cuda-bf16", 0.1), "device": "cuda", "precision": "bf16"}]
    assert sorted(engine.find_fastest_engine([*rows, *cuda])) == ["chunk", "cuda", "cuda-bf16"]
    assert engine.find_fastest_engine([PLAIN, BROKEN]) == []


TABLE = """\
A processor, 2 cores, torch 2.15.0; rounds of each after a warm-up: 3

a: FedAvg, tiny
   2 clients x 50 samples, batch 10; 2.0 MFLOP per sample; peak of products: cpu 1 GFLOP/s, cuda 100 GFLOP/s
   variant  samples/s: min  median  max  x plain  GFLOP/s  % of peak  memory MiB
   plain                25      50  100     1.00      0.1       10.0         600
   loop                100     200  400     4.00      0.4       40.0         600
   chunk                 -       -    -        -        -          -         600
   bf16                400     400  400     8.00      0.8       80.0         600
   bf16 is loop at another precision: 2.00 times as fast
   growing K, loop:
   K   samples/s  us/sample  x smallest K  memory MiB
   5          50   20,000.0          1.00         600
   80         40   25,000.0          1.25         600"""


def settings() -> dict[str, Any]:
    machine = {"title": "A processor, 2 cores, torch 2.15.0"}
    return {"machine": machine, "repeats": 3, "peak_flops_per_second": PEAKS}


def test_table() -> None:
    growth = [measured("loop", 5.0, clients=5, growing=True), measured("loop", 100.0, clients=80, growing=True)]
    found = compared(PLAIN, LOOP, BROKEN, BF16, *growth)
    assert engine.format_engine_cases(found, settings()) == TABLE
    assert found.times_plain.notna().tolist() == [True, True, False, True, False, False]


def test_a_gpu_adds_a_column() -> None:
    found = compared(measured("cuda", 1.0, device_bytes=3 * MIB, rounded_from=None))
    lines = engine.format_engine_cases(found, settings()).splitlines()
    assert lines[-2].endswith("memory MiB  GPU MiB") and lines[-1].endswith("600        3")


def pair(few: float, many: float, mebibytes: int = 600, failed: bool = False) -> pd.DataFrame:
    """FedAvg with few and with many clients: seconds of a round, and the memory with many."""
    common = {
        "method": "fedavg",
        "active": 20,
        "samples": 50,
        "pool": 60_000,
        "tested": 100,
        "setup_seconds": 2.5,
        "test_seconds": 0.25,
    }
    rows = [
        {**common, "clients": k, "seconds": [] if bad else [s, 2 * s, s], "resident_bytes": memory * MIB}
        for k, s, memory, bad in ((100, few, 600, False), (100_000, many, mebibytes, failed))
    ]
    return scale.compare_scales(pd.DataFrame(rows))


@pytest.mark.parametrize(
    ("found", "met"),
    [
        (pair(1.0, 1.19), True),
        (pair(1.0, 1.21), False),
        (pair(1.0, 1.0, 3071), True),
        (pair(1.0, 1.0, 3072), False),
        (pair(1.0, 1.0, failed=True), False),
    ],
)
def test_targets_of_scale(found: pd.DataFrame, met: bool) -> None:
    assert found.met.tolist() == [None, met]


SCALE = """\
20 clients take part in a round, each with 50 of 60,000 images; a test has 100 clients; rounds: 3
   method  clients  s/round: min  median  max  ratio  test s  memory MiB  start s
   fedavg      100             1       1    2      -    0.25         600      2.5
   fedavg  100,000           1.5     1.5    3   1.50    0.25         700      2.5
targets, a ratio of 1.2 and 3,072 MiB: missed by fedavg"""


def test_table_of_scale() -> None:
    assert scale.format_scale(pair(1.0, 1.5, 700), 3) == SCALE
    assert scale.format_scale(pair(1.0, 1.0, 700), 3).endswith("MiB: met")


def test_the_file_and_the_failures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """All that was measured is printed and written, and then what failed is told."""
    rows = pd.DataFrame(
        {"name": ["p", "q", "r"], "seconds": [[0.1], [], []], "rate": [1.5, math.nan, 2], "error": [None, "x", "y"]}
    )
    monkeypatch.setattr(Bench, "measure", lambda self: Outcome("the table", rows, {"benchmark": "none"}))
    file = tmp_path / "out" / "bench.json"
    with pytest.raises(RunError, match="^2 measurements failed; the first: q: x$"):
        Bench(json=str(file)).carry_out()
    assert capsys.readouterr().out == f"the table\nwritten to {file}\n"
    stored = json.loads(file.read_text())
    assert stored["benchmark"] == "none" and stored["rows"][1]["rate"] is None
    assert stored["rows"][0] == {"name": "p", "seconds": [0.1], "rate": 1.5, "error": None}


def test_a_busy_machine_is_told(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr("joblib.cpu_count", lambda: 2)
    for load, told in ((0.58, False), (0.62, True)):
        monkeypatch.setattr("psutil.getloadavg", lambda load=load: (load, 0.0, 0.0))
        caplog.clear()
        facts = commands.describe_bench_machine()
        assert facts["load"] == load and facts["memory_gib"] > 0 and ", 2 cores, " in facts["title"]
        assert ("others are at work" in caplog.text) is told
