"""Workers and those who ask them: measurements, failures, turns, memory. And the whole command in small."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from semcom.bench import contest, machine
from semcom.bench.contest import Entry, entered, take_turns
from semcom.bench.engine import Wanted
from semcom.bench.memory import PROC, _children, peak_resident
from semcom.bench.rounds import Job, prepare
from semcom.bench.session import Session, environment
from semcom.bench.variants import Variant, cores, rounded, variants
from semcom.bench.workloads import CASES
from semcom.cli import main as cli
from semcom.config import ConfigError, RunError

TINY = Job(Variant("products"), size=64)


def test_a_job_survives_its_way_to_the_worker() -> None:
    job = Job(Variant("x", chunk="all", threads=None), CASES["b"].workload, 256)
    assert Job.from_json(job.to_json()) == job and Job.from_json(TINY.to_json()) == TINY


def test_a_round_of_the_engine_moves_its_state() -> None:
    rounds = prepare(Job(Variant("loop"), CASES["a"].small))
    before = rounds.state
    assert rounds.measure() > 0 and rounds.world.round == 1 and rounds.world.visited == 2 * 11
    assert rounds.state is not before


# Sessions ------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def session() -> Iterator[Session]:
    with Session(TINY) as made:
        made.ready()
        yield made


def test_a_session_measures(session: Session) -> None:
    assert session.threads == 1 and session.setup_s > 0.1
    assert all(0 < session.measure() < 1 for _ in range(3))
    assert session.device_bytes is None


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="needs /proc")
def test_a_session_knows_its_memory(session: Session) -> None:
    """Python with torch takes some hundred megabytes."""
    assert 100 * 2**20 < session.resident() < 4 * 2**30


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_a_worker_ends_in_the_middle_of_its_work() -> None:
    with Session(replace(TINY, size=4096)) as made:
        made.ready()
        made.ask()
        begun = time.perf_counter()
    assert time.perf_counter() - begun < 5 and not alive(made._process.pid)


def test_a_killed_worker_is_an_error() -> None:
    with Session(TINY) as made:
        made.ready()
        os.kill(made._process.pid, signal.SIGKILL)
        with pytest.raises(RunError, match=r"killed by SIGKILL \(out of memory\?\)"):
            made.measure()


def test_torch_may_choose_its_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    assert "OMP_NUM_THREADS" not in environment(None) and environment(None)["PATH"] == os.environ["PATH"]
    assert environment(1)["OMP_NUM_THREADS"] == "1" == environment(1)["MKL_NUM_THREADS"]


def test_ranks_measure_the_same_rounds_and_end_with_the_worker() -> None:
    with Session(Job(Variant("processes", processes=2), CASES["b"].small)) as made:
        made.ready()
        assert made.threads == 1 and all(made.measure() > 0 for _ in range(2))
        (child,) = _children(made._process.pid, PROC) if PROC.is_dir() else (made._process.pid,)
        assert alive(child)
    assert not alive(child)


# Turns ---------------------------------------------------------------------------------------------------------------


class Noted:
    """Stands for an entry or a peak; notes its turns."""

    def __init__(self, name: str, notes: list[str]) -> None:
        self.name, self.notes = name, notes

    def measure(self) -> None:
        self.notes.append(self.name)


def test_turns_go_forth_and_back() -> None:
    notes: list[str] = []
    a, b, peak = (Noted(name, notes) for name in ("a", "b", "peak"))
    take_turns([a, b], [peak], 3)  # type: ignore[list-item]
    assert notes == ["a", "b", "peak", "b", "a", "peak", "a", "b", "peak"]


def test_what_fails_sits_out() -> None:
    works, fails = CASES["a"].small, replace(CASES["a"].small, encoder="no-such")
    with entered([fails, works], [Variant("loop")]) as (bad, good):
        take_turns([bad, good], [], 2)
    bad, good = bad.result(), good.result()
    assert "encoder 'no-such' is unknown" in bad.error and bad.seconds == () and bad.rate is None
    assert good.error is None and len(good.seconds) == 2 and good.rates[0] <= good.rate <= good.rates[2]


def test_the_peak_is_the_sum_over_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    class Fixed:
        threads: int | None = None

        def __init__(self, job: Job) -> None:
            assert (job.workload, job.size, job.variant.threads) == (None, 100, 1)

        def ready(self) -> None:
            self.threads = 1

        def ask(self) -> None:
            pass

        def seconds(self) -> float:
            return 0.5

        def close(self) -> None:
            pass

    monkeypatch.setattr(contest, "Session", Fixed)
    peak = contest.Peak("cpu", 100)
    peak.measure()
    assert peak.best == cores() * 2 * 100**3 / 0.5
    gpu = contest.Peak("cuda", 100)
    gpu.measure()
    assert gpu.best == 2 * 100**3 / 0.5


# Variants ------------------------------------------------------------------------------------------------------------


def test_variants_of_this_machine() -> None:
    names = [v.name for v in variants(cuda=False)]
    assert names == ["plain", "loop", "chunk", "processes"][: 4 if cores() > 1 else 3]
    assert {v.name for v in variants(cuda=True) if v.device == "cuda"} >= {"plain-cuda", "cuda"}
    (bf16,) = rounded(Variant("processes", processes=2))
    assert bf16 == Variant("bf16", processes=2, precision="bf16")
    assert [v.name for v in rounded(Variant("cuda", device="cuda", chunk="auto"))] == ["cuda-tf32", "cuda-bf16"]


def test_wanted_variants() -> None:
    assert [v.name for v in Wanted("loop,plain").fixed()] == ["plain", "loop"]
    assert Wanted("loop,plain").rounded(Variant("loop")) == []
    assert [v.name for v in Wanted("loop,bf16").rounded(Variant("loop"))] == ["bf16"]
    with pytest.raises(ConfigError, match="variants: 'warp' is not one of plain, loop, chunk"):
        Wanted("plain,warp")
    with pytest.raises(ConfigError, match="variants: bf16 follows from the best of the others"):
        Wanted("plain,bf16")


def test_the_best_is_the_fastest_of_the_engine() -> None:
    from semcom.bench.engine import _best

    entries = [Entry(CASES["a"].small, v) for v in (Variant("plain", plain=True), Variant("loop"), Variant("chunk"))]
    for entry, seconds in zip(entries, ([0.1], [0.4], [0.3, 0.9]), strict=True):
        entry.seconds = seconds
    best = _best(entries, "cpu")
    assert best is not None and best.variant.name == "chunk" and _best(entries, "cuda") is None


# The machine ---------------------------------------------------------------------------------------------------------


def process(proc: Path, pid: int, kibibytes: int, children: str = "") -> None:
    """A process as /proc shows it."""
    task = proc / str(pid) / "task" / str(pid)
    task.mkdir(parents=True)
    (proc / str(pid) / "status").write_text(f"Name:\tx\nVmHWM:\t {kibibytes} kB\nVmRSS:\t 1 kB\n")
    (task / "children").write_text(children)


def test_peaks_of_a_process_and_its_descendants_add_up(tmp_path: Path) -> None:
    process(tmp_path, 1, 100, "2 3 9 ")
    process(tmp_path, 2, 20, "4 ")
    process(tmp_path, 3, 5)
    process(tmp_path, 4, 3)
    assert peak_resident(1, tmp_path) == 128 * 1024  # process 9 has ended
    assert peak_resident(7, tmp_path) is None


def test_a_busy_machine_is_told(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    for load, told in ((0.29 * cores(), False), (0.31 * cores(), True)):
        monkeypatch.setattr(os, "getloadavg", lambda load=load: (load, 0.0, 0.0))
        caplog.clear()
        assert machine.machine()["load"] == load
        assert ("others are at work" in caplog.text) is told


# The commands --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("engine --cases a,d", "cases: 'd' is not one of a, b, c"),
        ("engine --repeats 0", "repeats: 0 is not a whole number of at least 1"),
        ("engine --growth 5,x", "growth: '5,x' is not a comma list of whole numbers"),
        ("engine --growth 0,5", "growth: 0 is not a whole number of at least 1"),
        ("engine --json .", "json: '.' is a folder; give a file"),
        ("engine --warp", "--warp: no such flag"),
        ("scale --methods local", "methods: 'local' is not one of fedavg, fedproto, fedcl"),
        ("scale --clients 99", "clients: 99 is less than the 100 that it is measured against"),
        ("scale --rounds 0", "rounds: 0 is not a whole number of at least 1"),
        ("egnine", "bench 'egnine' is unknown: did you mean 'engine'?"),
        ("", "bench: none is given; known are engine, scale"),
    ],
)
def test_wrong_requests(words: str, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["bench", *words.split()]) == 2
    assert message in capsys.readouterr().err


def test_engine_in_small(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_WAIT_POLICY", "passive")  # threads that spin would take the cores from other tests
    file = tmp_path / "out" / "bench.json"
    words = f"bench engine --quick --cases b --variants plain,loop,bf16 --growth 2 --repeats 1 --json {file}"
    assert cli.main(words.split()) == 0
    (case,) = json.loads(file.read_text())["cases"]
    plain, ours, bf16 = case["variants"]
    assert plain["times_plain"] == 1 and plain["variant"]["threads"] is None
    assert ours["times_plain"] == pytest.approx(plain["seconds"][0] / ours["seconds"][0])
    assert bf16["rounded_from"] == ours["variant"]["name"] and bf16["variant"]["precision"] == "bf16"
    peak = case["peak_flops_per_second"]["cpu"]
    speed = ours["samples_per_second"]["median"] * case["flops_per_sample"]
    assert ours["share_of_peak"] == pytest.approx(speed / peak)
    assert ours["samples_per_second"]["median"] == pytest.approx(2 * 11 / ours["seconds"][0])
    assert [m["clients"] for growth in case["growth"] for m in growth["measurements"]] == [2]
    assert f"written to {file}" in capsys.readouterr().out


def test_scale_in_small(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "scale.json"
    assert cli.main(f"bench scale --quick --methods fedproto --rounds 2 --json {file}".split()) == 0
    (found,) = json.loads(file.read_text())["methods"]
    assert (found["few"]["workload"]["clients"], found["many"]["workload"]["clients"]) == (20, 200)
    assert len(found["few"]["seconds"]) == len(found["many"]["seconds"]) == 2 and found["ratio"] > 0
    assert "2 clients take part in a round, each with 10 of 600 images" in capsys.readouterr().out


def test_a_failed_measurement_is_told_after_the_table(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from semcom.bench.commands import BenchScale, Outcome

    monkeypatch.setattr(BenchScale, "measure", lambda self: Outcome("the table", {}, ["one", "two"]))
    assert cli.main(["bench", "scale"]) == 1
    out, err = capsys.readouterr()
    assert out == "the table\n" and err == "semcom: error: 2 measurements failed; the first: one\n"
