"""Processes that are measured: rounds, failures, memory, and their ends. And the whole commands in small."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import joblib
import psutil
import pytest
import torch

from semcom.methods.registry import METHODS
from semcom_papers.experiments.bench import rounds
from semcom_papers.experiments.bench.__main__ import main
from semcom_papers.experiments.bench.engine import SMALL
from semcom_papers.experiments.bench.rounds import Rounds, Worker, measure_peak_of_rounds, measure_rounds_in_turns
from semcom_papers.experiments.bench.workloads import Variant, Workload, make_synthetic_workload
from tests.processes import SERVER, Forked, gone, start_server

LOOP = Variant("loop")


def test_a_round_of_the_engine_moves_its_state() -> None:
    play = Rounds(SMALL["a"].config(LOOP), make_synthetic_workload(SMALL["a"]))
    before = play.state
    play()
    assert play.world.round == 1 and play.world.session.tally.visited == 2 * 11
    assert play.state is not before


@pytest.fixture
def others(monkeypatch: pytest.MonkeyPatch) -> set[psutil.Process]:
    """Processes that are here already, with what forks those that are measured."""
    monkeypatch.setattr(rounds, "get_context", lambda method: SERVER)
    start_server()
    return set(psutil.Process().children(recursive=True))


def begun(others: set[psutil.Process]) -> set[psutil.Process]:
    return set(psutil.Process().children(recursive=True)) - others


def test_ranks_measure_the_same_rounds_and_end_with_their_process(others: set[psutil.Process]) -> None:
    with closing(Worker(SMALL["a"], Variant("processes", processes=2))) as worker:
        assert worker.seconds == [], "the warm-up does not count"
        for _ in range(2):
            worker.measure()
        row, found = worker.row(), begun(others)
    assert len(found) == 2 and not psutil.wait_procs(found, timeout=20)[1]
    assert (row["error"], row["variant"], row["clients"], len(row["seconds"])) == (None, "processes", 2, 2)
    assert row["rates"] == [22 / s for s in row["seconds"]] and row["setup_seconds"] > 0.1
    if sys.platform == "linux":
        assert 2 * 100 * 2**20 < row["resident_bytes"] < 8 * 2**30, "two processes with torch"


def test_a_killed_process_is_told_and_sits_out(others: set[psutil.Process]) -> None:
    with closing(Worker(SMALL["a"], LOOP)) as worker:
        worker.measure()
        (process,) = begun(others)
        process.send_signal(signal.SIGKILL)
        for _ in range(2):
            worker.measure()
    row = worker.row()
    assert row["error"].startswith("BrokenProcessPool: ") and row["seconds"] == row["rates"] == []


def test_what_cannot_be_prepared_is_told(others: set[psutil.Process]) -> None:
    (row,) = measure_rounds_in_turns([(replace(SMALL["a"], encoder="no-such"), LOOP)], 2)
    assert "model.encoder: 'no-such' is unknown" in row["error"] and row["seconds"] == [] and not begun(others)


def start_and_die() -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rounds, "get_context", lambda method: multiprocessing.get_context("fork"))
        worker = Worker(SMALL["a"], LOOP)
    print(*worker._pool._processes, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)


def test_a_process_ends_when_its_parent_is_killed() -> None:
    """Without a word from here it would wait for its next task for ever."""
    with Forked(start_and_die) as parent:
        assert parent.wait() == -signal.SIGKILL, parent.stderr.read()
        assert gone(int(parent.stdout.read()), 20)


def test_peaks_of_a_process_and_its_children_add_up() -> None:
    alone = measure_peak_of_rounds(os.getpid())
    if sys.platform != "linux":
        assert alone != alone
        return
    assert alone >= psutil.Process().memory_info().rss
    with subprocess.Popen(["sleep", "60"]) as child:
        together = measure_peak_of_rounds(os.getpid())
        child.kill()
    assert 0 < together - alone < 100 * 2**20


class Noted:
    """Stands for a worker; notes its turns."""

    notes: list[str] = []

    def __init__(self, workload: Workload, variant: Variant) -> None:
        self.name = variant.name

    def measure(self) -> None:
        self.notes.append(self.name)

    def test(self) -> None:
        self.notes.append(f"test of {self.name}")

    def row(self) -> str:
        return self.name

    def close(self) -> None:
        self.notes.append(f"end of {self.name}")


def test_turns_go_forth_and_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rounds, "Worker", Noted)
    monkeypatch.setattr(Noted, "notes", notes := [])
    jobs = [(SMALL["a"], Variant(name)) for name in ("a", "b")]
    assert measure_rounds_in_turns(jobs, 3, between=lambda: notes.append("peak")) == ["a", "b"]
    assert notes == [
        "a",
        "b",
        "peak",
        "b",
        "a",
        "peak",
        "a",
        "b",
        "peak",
        "test of a",
        "test of b",
        "end of b",
        "end of a",
    ]


class Here:
    """Stands for the process of a worker: this one, in which the workers take turns."""

    def __init__(self, *_: object) -> None:
        self.next_round: Callable[[], None] | None = None

    def submit(self, what: Callable[..., Any], *values: object) -> Future[Any]:
        answer: Future[Any] = Future()
        rounds._next_round = self.next_round  # type: ignore[assignment]
        answer.set_result(what(*values))
        self.next_round = rounds._next_round
        return answer

    def shutdown(self) -> None:
        pass


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No process is started, which takes seconds for each row; what processes do is tested above."""
    monkeypatch.setattr(rounds, "ProcessPoolExecutor", Here)
    monkeypatch.setattr(rounds, "_end_with_the_parent", lambda: None)
    monkeypatch.setattr(rounds, "_next_round", None, raising=False)
    threads, handler = torch.get_num_threads(), signal.getsignal(signal.SIGINT)
    with joblib.parallel_config("threading"):
        yield
    torch.set_num_threads(threads)
    signal.signal(signal.SIGINT, handler)


@pytest.mark.usefixtures("here")
def test_engine_in_small(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "bench.json"
    words = f"engine --quick --cases b --variants plain,loop --growth 2 --repeats 1 --json {file}"
    main(words.split())
    stored = json.loads(file.read_text())
    plain, ours, grown = stored["rows"]
    assert plain["times_plain"] == 1 and plain["threads"] >= 1 and ours["threads"] == 1
    assert ours["times_plain"] == pytest.approx(plain["seconds"][0] / ours["seconds"][0])
    speed = ours["rate"] * ours["flops_per_sample"]
    assert ours["share_of_peak"] == pytest.approx(speed / stored["peak_flops_per_second"]["cpu"])
    assert ours["rate"] == pytest.approx(2 * 11 / ours["seconds"][0])
    assert (grown["variant"], grown["clients"], grown["growing"], grown["cost_over_fewest"]) == ("loop", 2, True, 1)
    assert f"written to {file}" in capsys.readouterr().out


@pytest.mark.usefixtures("here")
def test_scale_in_small(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "scale.json"
    main(f"scale --quick --methods all --rounds 2 --json {file}".split())
    rows = json.loads(file.read_text())["rows"]
    assert [row["method"] for row in rows[::2]] == [name for name in METHODS.names() if METHODS.ships(name)]
    for few, many in zip(rows[::2], rows[1::2], strict=True):
        assert (few["clients"], many["clients"], few["method"]) == (20, 1000, many["method"])
        assert few["error"] is many["error"] is None and len(few["seconds"]) == len(many["seconds"]) == 2
        assert many["ratio"] > 0 and few["ratio"] is None and min(few["test_seconds"], many["test_seconds"]) > 0
    assert "2 clients take part in a round, each with 10 of 600 images" in capsys.readouterr().out


def test_wrong_requests_are_refused_before_anything_is_measured() -> None:
    for words, said in (
        ("arms", "engine, scale"),
        ("engine --warp", "--warp"),
        ("engine --cases a,d", "cases: 'd'"),
        ("engine --variants plain,warp", "variants: 'warp'"),
        ("engine --growth 0 5", "growth: 0"),
        ("engine --json .", "json: "),
        ("scale --methods locl", "methods: 'locl'"),
        ("scale --clients 99", "clients: 99"),
        ("scale --rounds 0", "rounds: 0"),
    ):
        with pytest.raises(SystemExit, match=said):
            main(words.split())
