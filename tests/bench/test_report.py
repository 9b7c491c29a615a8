"""Numbers, table and JSON that follow from fixed measurements."""

from __future__ import annotations

import json

import pytest

from semcom.bench.measurement import CaseResult, Growth, Measurement, Report
from semcom.bench.report import as_json, table
from semcom.bench.scale import Pair, ScaleReport
from semcom.bench.scale import as_json as scale_json
from semcom.bench.scale import table as scale_table
from semcom.bench.text import aligned
from semcom.bench.variants import Variant
from semcom.bench.workloads import Workload

WORK = Workload("FedAvg, tiny", "fedavg", "cnn", 512, clients=2, samples=50, batch=10)
MIB = 2**20


def measured(name: str, *seconds: float, clients: int = 2, **more: object) -> Measurement:
    variant = Variant(name, plain=name.startswith("plain"), device="cuda" if "cuda" in name else "cpu")
    return Measurement(WORK.grown(clients), variant, seconds, resident_bytes=600 * MIB, **more)  # type: ignore[arg-type]


def result(*measurements: Measurement, **more: object) -> CaseResult:
    peaks = {"cpu": 1e9, "cuda": 1e11}
    return CaseResult("a", WORK, 2e6, peaks, measurements, **more)  # type: ignore[arg-type]


def report(*cases: CaseResult) -> Report:
    machine = {"cpu": "A processor", "cores": 2, "gpu": None, "versions": {"torch": "2.15.0"}}
    return Report(machine, 3, cases)


PLAIN, LOOP = measured("plain", 2.0, 1.0, 4.0), measured("loop", 0.5, 0.25, 1.0)
BF16, BROKEN = measured("bf16", 0.25), measured("chunk", 1.0, error="RuntimeError: no memory")


def test_numbers_by_hand() -> None:
    """100 samples per round: 50 a second at the median, 25 to 100; 2 MFLOP each against a peak of 1 GFLOP/s."""
    case = result(PLAIN, LOOP)
    assert PLAIN.rates == (25, 50, 100) and PLAIN.rate == 50
    assert case.times_plain(LOOP) == 4 and case.times_plain(PLAIN) == 1
    assert case.share_of_peak(PLAIN) == pytest.approx(50 * 2e6 / 1e9)


def test_a_gpu_is_compared_with_the_plain_loop_on_it() -> None:
    case = result(PLAIN, measured("plain-cuda", 1.0), fast := measured("cuda", 0.1))
    assert case.times_plain(fast) == pytest.approx(10)
    assert case.share_of_peak(fast) == pytest.approx(1000 * 2e6 / 1e11)
    assert result(PLAIN, fast).times_plain(fast) is None


def test_what_failed_has_no_numbers() -> None:
    case = result(PLAIN, BROKEN)
    assert BROKEN.rate is None and case.times_plain(BROKEN) is None and case.share_of_peak(BROKEN) is None
    grown = result(PLAIN, growth=(Growth("loop", (measured("loop", clients=80, error="killed"),)),))
    assert report(case, grown).failures() == [
        "case a, chunk, K = 2: RuntimeError: no memory",
        "case a, loop, K = 80: killed",
    ]


TABLE = """\
A processor, 2 cores, torch 2.15.0; 3 rounds of each after a warm-up

a: FedAvg, tiny
   2 clients x 50 samples, batch 10; 2.0 MFLOP per sample; peak of products: cpu 1 GFLOP/s, cuda 100 GFLOP/s
   variant  samples/s: min  median  max  x plain  GFLOP/s  % of peak  memory MiB
   plain                25      50  100     1.00      0.1       10.0         600
   loop                100     200  400     4.00      0.4       40.0         600
   chunk    failed: RuntimeError: no memory
   bf16                400     400  400     8.00      0.8       80.0         600
   bf16 is loop at another precision: 2.00 times as fast
   growing K, loop:
   K   samples/s  us/sample  x smallest K  memory MiB
   5          50   20,000.0          1.00         600
   80         40   25,000.0          1.25         600"""


def full() -> CaseResult:
    growth = Growth("loop", (measured("loop", 5.0, clients=5), measured("loop", 100.0, clients=80)))
    return result(PLAIN, LOOP, BROKEN, BF16, growth=(growth,), rounded_from={"bf16": "loop"})


def test_table() -> None:
    assert table(report(full())) == TABLE


def test_a_gpu_adds_a_column() -> None:
    lines = table(report(result(measured("cuda", 1.0, device_bytes=3 * MIB)))).splitlines()
    assert lines[-2].endswith("memory MiB  GPU MiB") and lines[-1].endswith("600        3")


def test_json() -> None:
    values = json.loads(json.dumps(as_json(report(full()))))
    assert values["machine"]["cores"] == 2 and values["repeats"] == 3
    (case,) = values["cases"]
    plain, loop, chunk, bf16 = case["variants"]
    assert plain["samples_per_second"] == {"min": 25, "median": 50, "max": 100}
    assert plain["seconds"] == [2.0, 1.0, 4.0] and plain["resident_bytes"] == 600 * MIB
    assert loop["times_plain"] == 4 and loop["share_of_peak"] == pytest.approx(0.4)
    assert chunk["error"] == "RuntimeError: no memory" and chunk["samples_per_second"]["median"] is None
    assert bf16["rounded_from"] == "loop" and loop["rounded_from"] is None
    assert case["workload"]["samples"] == 50 and case["peak_flops_per_second"]["cpu"] == 1e9
    (growth,) = case["growth"]
    assert [m["clients"] for m in growth["measurements"]] == [5, 80]


# Very many clients ---------------------------------------------------------------------------------------------------


def pair(few: float, many: float, mebibytes: int = 600, **more: object) -> Pair:
    def one(clients: int, seconds: float, memory: int, **extra: object) -> Measurement:
        work = Workload("", "fedavg", "cnn", 512, clients, 50, 10, active=20, pool=60_000)
        runs = (seconds, 2 * seconds, seconds)
        return Measurement(work, Variant("loop"), runs, setup_s=2.5, resident_bytes=memory * MIB, **extra)  # type: ignore[arg-type]

    return Pair("fedavg", one(100, few, 600), one(100_000, many, mebibytes, **more))


@pytest.mark.parametrize(
    ("found", "met"),
    [
        (pair(1.0, 1.19), True),
        (pair(1.0, 1.21), False),
        (pair(1.0, 1.0, 3071), True),
        (pair(1.0, 1.0, 3072), False),
        (pair(1.0, 1.0, error="killed"), False),
    ],
)
def test_targets_of_scale(found: Pair, met: bool) -> None:
    assert found.met is met


SCALE = """\
20 clients take part in a round, each with 50 of 60,000 images; 3 rounds
   method  clients  s/round: min  median  max  ratio  memory MiB  start s
   fedavg      100             1       1    2                600      2.5
   fedavg  100,000           1.5     1.5    3   1.50         700      2.5
targets, a ratio of 1.2 and 3,072 MiB: missed by fedavg"""


def test_table_of_scale() -> None:
    found = ScaleReport({}, 3, [pair(1.0, 1.5, 700)])
    assert scale_table(found) == SCALE and found.failures() == []
    values = json.loads(json.dumps(scale_json(found)))
    assert values["methods"][0]["ratio"] == 1.5 and values["methods"][0]["met"] is False
    assert values["methods"][0]["many"]["workload"]["clients"] == 100_000


def test_a_failure_of_scale_is_told() -> None:
    found = ScaleReport({}, 3, [pair(1.0, 1.5, error="RunError: killed")])
    assert scale_table(found).splitlines()[3] == "   fedavg  100,000  failed: RunError: killed"
    assert found.failures() == ["fedavg, K = 100000: RunError: killed"]


def test_rows_that_end_with_a_text_do_not_widen_the_columns() -> None:
    assert aligned([("a", "bb"), ("long", "1"), ("x", "y", "zzz")][:2], "") == ["a     bb", "long   1"]
    assert aligned([("a", "b", "c"), ("x", "a long text")], "") == ["a  b  c", "x  a long text"]
