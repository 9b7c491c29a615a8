"""A sweep while it runs: labels of runs, what a terminal shows, and what is told of failures."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import psutil
import pytest
from rich.progress import Progress

from semcom.config import PartitionConfig, Resolved, RunConfig, RunError, run_hash
from semcom.files import METRICS, TRAINING
from semcom.runs.folder.stored import read_stored_config, write_stored_config
from semcom.studies.results import failures
from semcom.studies.results.failures import Failure, format_run_labels, report_failures
from semcom.studies.results.outcome import locate_run_folder
from semcom.studies.sweep import pool
from semcom.studies.sweep.plan import make_plan
from semcom.studies.sweep.progress import SweepProgress
from semcom.studies.sweep.request import parse_request
from semcom.studies.sweep.sweep import sweep
from tests.studies.folders import begin, config, line, simple
from tests.terminal import on_pty

Runs = dict[str, Resolved]


@pytest.fixture
def runs(tmp_path: Path) -> Runs:
    """Four runs of ten rounds: two of local, two of fedavg, which come later."""
    split = PartitionConfig(options={"ways": 3, "shots": 5})
    found = [config(m, seed, rounds=10, partition=split) for m in ("local", "fedavg") for seed in (0, 1)]
    return {run_hash(c): replace(c, out=str(tmp_path / run_hash(c))) for c in found}  # type: ignore[misc]


def add(run: RunConfig, first: int, last: int) -> None:
    """Append rounds to what a run has left."""
    folder = Path(str(run.out))
    if not folder.exists():
        begin(folder, run, [])
    with (folder / METRICS).open("a") as file:
        for round_ in range(first, last + 1):
            file.write(json.dumps(line(round_)) + "\n")


# Labels --------------------------------------------------------------------------------------------------------------


def test_labels_name_what_varies_and_nothing_else() -> None:
    fields = {"channel.snr_db": 9.0, "train.rounds": 3, "hyper.lam": 0.5, "seed": 0}
    found = format_run_labels({"aa": ("fedcl", fields), "bb": ("plain", {**fields, "hyper.lam": None, "seed": 1})})
    assert found == {"aa": "fedcl, hyper.lam=0.5, seed=0, aa", "bb": "plain, seed=1, bb"}
    assert format_run_labels({"aa": ("fedcl", fields)}) == {"aa": "fedcl, aa"}


def test_a_plan_labels_its_runs_by_its_axes(tmp_path: Path) -> None:
    vary = {("partition.ways", "clients"): ((2, 5), (3, 5)), "channel.test_snr_db": (0.0, 9.0)}
    request = parse_request(methods=("fedcl", "fedavg"), seeds=(0, 1), set={"channel.snr_db": 0.0}, vary=vary)
    plan = make_plan("demo", request=request, out=tmp_path)
    key = list(plan.variants)[0]
    assert plan.labels[key] == f"fedcl, partition.ways=2, seed=0, {key}"
    assert len(set(plan.labels.values())) == 8


# On a terminal -------------------------------------------------------------------------------------------------------


class Looks:
    """In the place of the event that ends the display: keeps what it shows, and lets something happen, at each look."""

    def __init__(self, progress: Progress, *events: Callable[[], object]) -> None:
        self.progress, self.left = progress, list(events)
        self.seen: list[list[tuple[str, float, float | None]]] = []

    def wait(self, seconds: float) -> bool:
        self.seen.append([(task.description, task.completed, task.total) for task in self.progress.tasks])
        self.left.pop(0)()
        return not self.left


def test_the_display_counts_runs_and_rounds(runs: Runs, capsys: pytest.CaptureFixture[str]) -> None:
    """Two at a time of ten rounds each: a was finished before, b fails, c trains, d was interrupted and goes on."""
    a, b, c, d = runs
    simple(Path(str(runs[a].out)).parent, runs[a], [0.5, 0.6])
    add(runs[d], 1, 2)
    progress, shown = SweepProgress(runs, {key: f"label {key}" for key in runs}, jobs=2), Progress(disable=True)
    looks = Looks(
        shown, lambda: (add(runs[b], 1, 1), add(runs[c], 1, 4)), lambda: progress.fail(runs[b], "E: x"), lambda: None
    )
    show = partial(progress._update_bars, shown, {})
    progress._show(show)
    progress._follow(show, looks)  # type: ignore[arg-type]
    assert looks.seen == [
        [("4 runs: 1 finished, 3 pending", 10, 40)],
        [("4 runs: 1 finished, 2 running, 1 pending", 15, 40), (f"label {b}", 1, 10), (f"label {c}", 4, 10)],
        [("4 runs: 1 finished, 1 failed, 2 running", 26, 40), (f"label {c}", 4, 10), (f"label {d}", 2, 10)],
    ]


ON_A_TERMINAL = """
import subprocess, sys, time
from semcom.screen import show_bars_on_screen
with show_bars_on_screen(transient=True) as progress:
    progress.add_task("below", note="below")
    for i in range(3):
        print("out", i)
        print("err", i, file=sys.stderr)
        subprocess.run("echo child >&2", shell=True)
        time.sleep(0.1)
    print("no newline", end="")
    {end}
"""


@pytest.mark.parametrize(("end", "status"), [("pass", 0), ("raise ValueError", 1), ("raise KeyboardInterrupt", -2)])
def test_lines_of_all_processes_stay_whole_and_nothing_is_left(end: str, status: int) -> None:
    shown, code = on_pty(ON_A_TERMINAL.format(end=end))
    assert code == status
    lines = shown.rstrip().splitlines()
    for i in range(3):
        assert lines.index(f"out {i}") < lines.index(f"err {i}")
    assert lines.count("child") == 3 and lines.count("no newline") == 1 and "below" not in shown
    assert (lines[10:] == []) == (status == 0), "a traceback comes after it, on the terminal"


# Failures ------------------------------------------------------------------------------------------------------------


def broken(config: RunConfig) -> None:
    """Train nothing, and fail."""
    raise ValueError("no such luck\nat all")


def test_a_failure_is_told_with_its_place_and_the_command(here: Path) -> None:
    (run,) = [config("fedavg", 0)]
    write_stored_config(here / "a b", run)
    text = "ValueError: no such luck\n\nTraceback (most recent call last):\n"
    ours, theirs = Path(failures.__file__), Path(os.__file__)
    frames = [
        (ours, 3, "run", "return broken()"),
        (here / "own.py", 5, "broken", "raise it"),
        (theirs, 9, "f", "x"),
    ]
    for file, number, function, code in frames:
        text += f'  File "{file}", line {number}, in {function}\n    {code}\n    ^^^^~~~\n'
    chained = "\n\nDuring ...:\n\nTraceback (most recent call last):\n" + '  File "/z/late.py", line 1, in f\n    y\n'
    (here / "a b" / "error.txt").write_text(text + "ValueError: no such luck" + chained + "RunError: later\n")
    failure = Failure("fedavg, seed=0, aa", Path("a b"), "ValueError: no such luck")
    assert report_failures([failure]).splitlines() == [
        "FAILED fedavg, seed=0, aa",
        "  ValueError: no such luck",
        f'    File "{frames[1][0]}", line 5, in broken',
        "      raise it",
        "  this run alone: semcom train --config 'a b/config.json'",
    ]
    assert replace(failure, own=True).format()[-1] == "  the command of the sweep tries it again"
    lost = replace(failure, folder=Path("nowhere"))
    assert lost.format() == [*failure.format()[:2], "  the command of the sweep tries it again"]


def test_where_only_semcom_was_running_its_last_place_is_told(tmp_path: Path) -> None:
    text = "X: y\n\nTraceback (most recent call last):\n"
    for file in (failures.__file__, failures.__file__, os.__file__):
        text += f'  File "{file}", line {len(text)}, in f\n    code\n'
    (tmp_path / "error.txt").write_text(text + "X: y\n")
    (at, code) = failures.locate_failure(tmp_path)
    assert at.startswith(f'File "{failures.__file__}", line ') and code == "  code"
    second = text.index("line ", text.index("line ") + 1)
    assert at.endswith(f"{text[second:].partition(',')[0]}, in f")


def test_five_are_told_in_full() -> None:
    found = [Failure(f"fedavg, seed={i}, {i}", Path("nowhere"), "E: x") for i in range(7)]
    lines = report_failures(found).splitlines()
    assert len(lines) == 5 * 3 + 2 and lines[-2:] == [
        "FAILED fedavg, seed=5, 5: E: x",
        "FAILED fedavg, seed=6, 6: E: x",
    ]


def test_a_sweep_tells_of_its_failures_at_its_end(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """After the table; the folder of a run that failed before it began has its configuration."""
    with pytest.raises(RunError, match="^2 of 2 runs failed"):
        sweep("demo", out=tmp_path, methods="fedcl", set={"channel.snr_db": 9.0}, seeds=(0, 1), train=broken)
    told = capsys.readouterr().err.splitlines()
    first = sorted(path.name for path in tmp_path.iterdir() if path.is_dir())
    heads = [text for text in told if text.startswith("FAILED")]
    assert sorted(text.rpartition(", ")[2] for text in heads) == first
    assert {text.rpartition(", ")[0] for text in heads} == {"FAILED fedcl, seed=0", "FAILED fedcl, seed=1"}
    at = told.index(heads[0])
    assert told[at + 1] == "  ValueError: no such luck" and told[at + 2].startswith(f'    File "{__file__}", line ')
    assert told[at + 3] == '      raise ValueError("no such luck\\nat all")'
    assert run_hash(read_stored_config(tmp_path / first[0], "test")) == first[0]


def test_runs_that_end_are_lines_where_there_is_no_terminal(runs: Runs, capsys: pytest.CaptureFixture[str]) -> None:
    a, b, c, d = runs
    simple(Path(str(runs[a].out)).parent, runs[a], [0.5, 0.6])
    with SweepProgress(runs, {key: f"label {key}" for key in runs}, jobs=2) as progress:
        simple(Path(str(runs[b].out)).parent, runs[b], [0.25, 0.25])
        progress.look()
        progress.fail(runs[d], "E: x")
        assert progress.waiting() == [runs[c]] and progress.errors == {d: "E: x"}
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "1 of 4 runs were finished already"
    assert [text.partition("] ")[2] for text in lines[1:]] == [f"label {b}, accuracy 25.0 %", f"FAILED label {d}: E: x"]
    assert [text.partition(",")[0] for text in lines[1:]] == ["[2/4", "[3/4"]


def test_in_a_notebook_a_line_stands_for_the_bars(
    runs: Runs,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    fake_run: Callable[[RunConfig], None],
) -> None:
    """As in the shell a line stays for each run that has ended; what runs is written in the place of itself."""
    monkeypatch.setattr("semcom.studies.sweep.progress.is_notebook", lambda: True)
    sweep(methods=("fedcl", "fedavg"), set={"partition.shots": 5}, train=fake_run, out=tmp_path / "study")
    lines = capsys.readouterr().err.replace("\n", "\r").split("\r")
    assert [part.partition(" ")[0] for part in lines if part.startswith("[")] == ["[1/2,", "[2/2,"]
    assert lines[1].startswith("2 runs: 0 finished, ")
    add(runs[next(iter(runs))], 1, 3)
    progress = SweepProgress(runs, {key: f"label {key}" for key in runs})
    progress._update_line("4 runs: 1 running", progress.running(), 3)
    first = next(iter(runs))
    assert capsys.readouterr().err.rstrip() == f"\r4 runs: 1 running; round 3/40; label {first} 3/10"


def test_rounds_of_a_training_in_a_folder_of_its_own_count(runs: Runs) -> None:
    key, config = next(iter(runs.items()))
    inside = locate_run_folder(config) / TRAINING
    write_stored_config(inside, config)
    (inside / METRICS).write_text("{}\n{}\n")
    assert SweepProgress(runs, {key: "" for key in runs}).running() == {key: 2}


def test_only_the_workers_of_a_sweep_are_ended() -> None:
    other = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    worker = subprocess.Popen([sys.executable, "-c", "input('loky.backend.popen')"], stdin=subprocess.PIPE)
    try:
        pool._end_workers()
        assert not psutil.pid_exists(worker.pid) and other.poll() is None
    finally:
        other.kill()
        worker.kill()
