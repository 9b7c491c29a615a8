"""A sweep while it runs: labels of runs, what is seen of those at work, the forecast, and what is told of failures."""

from __future__ import annotations

import io
import json
import os
from dataclasses import replace
from datetime import datetime
from pathlib import Path

import pytest
from rich.console import Console

from semcom.config import PartitionConfig, Resolved, RunConfig, RunError, run_hash
from semcom.files import METRICS
from semcom.runs.folder import read_config, write_config
from semcom.studies.cost import work
from semcom.studies.results import failures
from semcom.studies.results.failures import Failure, report
from semcom.studies.results.labels import labels
from semcom.studies.sweep.display import Snapshot, shown
from semcom.studies.sweep.following import Following, Running
from semcom.studies.sweep.forecast import Forecast
from semcom.studies.sweep.plan import planned
from semcom.studies.sweep.progress import SweepProgress
from semcom.studies.sweep.request import asked
from semcom.studies.sweep.sweep import sweep
from tests.studies.folders import begin, config, line, scored, simple
from tests.terminal import on_pty

Runs = dict[str, Resolved]


@pytest.fixture
def runs(tmp_path: Path) -> Runs:
    """Four runs of ten rounds: two of local, two of fedavg, which come later."""
    split = PartitionConfig(options={"ways": 3, "shots": 5})
    found = [config(m, seed, rounds=10, partition=split) for m in ("local", "fedavg") for seed in (0, 1)]
    return {run_hash(c): replace(c, out=str(tmp_path / run_hash(c))) for c in found}  # type: ignore[misc]


def add(run: RunConfig, first: int, last: int, accuracy: float | None = None) -> None:
    """Append rounds to what a run has left; its last one is evaluated."""
    folder = Path(str(run.out))
    if not folder.exists():
        begin(folder, run, [])
    views = {"personal": scored([accuracy, accuracy])} if accuracy is not None else None
    with (folder / METRICS).open("a") as file:
        for round_ in range(first, last + 1):
            file.write(json.dumps(line(round_, views if round_ == last else None)) + "\n")


# Labels --------------------------------------------------------------------------------------------------------------


def test_labels_name_what_varies_and_nothing_else() -> None:
    fields = {"channel.snr_db": 9.0, "train.rounds": 3, "hyper.lam": 0.5, "seed": 0}
    found = labels({"aa": ("fedcl", fields), "bb": ("plain", {**fields, "hyper.lam": None, "seed": 1})})
    assert found == {"aa": "fedcl, method.lam=0.5, seed=0, aa", "bb": "plain, seed=1, bb"}
    assert labels({"aa": ("fedcl", fields)}) == {"aa": "fedcl, aa"}


def test_a_plan_labels_its_runs_by_its_axes(tmp_path: Path) -> None:
    vary = {("partition.ways", "clients"): ((2, 5), (3, 5)), "channel.test_snr_db": (0.0, 9.0)}
    request = asked(methods=("fedcl", "fedavg"), seeds=(0, 1), set={"channel.snr_db": 0.0}, vary=vary)
    plan = planned("demo", request=request, out=tmp_path)
    key = list(plan.variants)[0]
    assert plan.labels[key] == f"fedcl, partition.ways=2, seed=0, {key}"
    assert len(set(plan.labels.values())) == 8


# Runs at work --------------------------------------------------------------------------------------------------------


def test_following_sees_rounds_and_accuracies_as_they_come(runs: Runs) -> None:
    first, second, *_ = runs.values()
    following = Following(runs, jobs=2)
    assert following.look(runs, 0.0) == []
    add(first, 1, 2, 0.25)
    (seen,) = following.look(runs, 5.0)
    assert (seen.round, seen.accuracy, seen.begun, seen.latest) == (2, 0.25, 5.0, 5.0)
    add(first, 3, 6)
    add(second, 1, 1)
    assert [(r.round, r.accuracy, r.latest) for r in following.look(runs, 9.0)] == [(6, 0.25, 9.0), (1, None, 9.0)]
    (Path(str(second.out)) / METRICS).open("a").write('{"round": 2, "lo')  # cut off in writing
    assert [r.round for r in following.look(runs, 10.0)] == [6, 1]
    left = {key: c for key, c in runs.items() if c is not first}
    assert [r.key for r in following.look(left, 12.0)] == [run_hash(second)]
    ended = following.seen[run_hash(first)]
    assert (ended.round, ended.latest, ended.begun, ended.share) == (10, 12.0, 5.0, 0.8)


def test_an_interrupted_run_is_at_work_once_it_goes_on(runs: Runs) -> None:
    """With a new file of metrics, cut back to its checkpoint."""
    first = next(iter(runs.values()))
    add(first, 1, 5)
    following = Following(runs, jobs=1)
    assert following.look(runs, 1.0) == [] and following.first(run_hash(first)) == 5
    metrics = Path(str(first.out)) / METRICS
    kept = metrics.read_text().splitlines(keepends=True)[:4]
    metrics.unlink()
    metrics.write_text("".join(kept))
    assert [(r.first, r.round) for r in following.look(runs, 2.0)] == [(4, 4)]
    add(first, 5, 7, 0.5)
    (seen,) = following.look(runs, 3.0)
    assert (seen.round, seen.accuracy, seen.share) == (7, 0.5, 0.3)


def test_metrics_that_are_written_anew_are_read_anew(runs: Runs) -> None:
    """As of a run that is taken up again because its process died, and has come further by the next look."""
    first = next(iter(runs.values()))
    following = Following(runs, jobs=1)
    add(first, 1, 3)
    assert [run.round for run in following.look(runs, 1.0)] == [3]
    anew = Path(str(first.out)) / "anew"
    anew.write_text("".join(json.dumps({**line(round_), "more": 1}) + "\n" for round_ in range(1, 7)))
    anew.rename(anew.with_name(METRICS))
    assert [run.round for run in following.look(runs, 2.0)] == [6]


def test_folders_far_behind_are_not_looked_at(runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    following, asked_for = Following(runs, jobs=1), []
    monkeypatch.setattr("semcom.studies.sweep.following.run_folder", lambda c: asked_for.append(c) or Path(str(c.out)))
    following.look(runs, 1.0)
    assert asked_for == [next(iter(runs.values()))]


# The forecast --------------------------------------------------------------------------------------------------------


def forecast(runs: Runs, jobs: int, *seen: Running) -> Forecast:
    following = Following(runs, jobs)
    following.seen = {run.key: run for run in seen}
    return Forecast(runs, jobs, following)


def test_the_forecast_is_the_work_left_at_the_pace_of_each_method(runs: Runs) -> None:
    a, b, c, d = runs
    assert len({work(config) for config in runs.values()}) == 1
    # local: 10 rounds in 20 s; fedavg: 5 of 10 rounds in 30 s, hence 60 s a run; two at a time
    seen = Running(a, 10, 0.0, 0, 10, 20.0), Running(c, 10, 20.0, 0, 5, 50.0)
    left = forecast(runs, 2, *seen).seconds_left([b, c, d], [], 50.0)
    assert left == pytest.approx(80.0), "c ends after 30 s; d takes the free place after b, which takes 20 s"
    later = forecast(runs, 2, *seen).seconds_left([b, c, d], [], 52.0)
    assert later == pytest.approx(80.0), "b and d decide, which have not begun"
    assert forecast(runs, 1, *seen).seconds_left([c], [], 54.0) == pytest.approx(26.0), "4 s of its next round"


def test_without_a_pace_of_its_own_a_run_takes_what_the_others_took(runs: Runs) -> None:
    a, b, c, d = runs
    assert forecast(runs, 2).seconds_left([a, b, c, d], [], 5.0) is None
    assert forecast(runs, 2).seconds_left([b, c, d], [a], 5.0) is None, "a failed, and tells nothing"
    # one run ended unseen after 10 s in two places: 20 s a run, three are left for two places
    assert forecast(runs, 2).seconds_left([b, c, d], [], 10.0) == pytest.approx(40.0)


def test_a_failed_run_tells_nothing_of_the_pace(runs: Runs) -> None:
    a, b, *_ = runs
    seen = Running(a, 10, 0.0, 0, 10, 1.0), Running(b, 10, 0.0, 0, 5, 30.0)
    assert forecast(runs, 2, *seen).seconds_left([b], [a], 30.0) == pytest.approx(30.0), "a broke after a second"


def test_rounds_of_an_earlier_sweep_do_not_count(runs: Runs) -> None:
    a, *others = runs
    add(runs[a], 1, 8)
    found = forecast({a: runs[a]}, 1, Running(a, 10, 0.0, 8, 9, 3.0)).seconds_left([a], [], 3.0)
    assert found == pytest.approx(3.0), "one round took 3 s, and one is left"


# On a terminal -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("columns", [80, 120])
def test_the_display_names_runs_counts_and_times(columns: int) -> None:
    running = [Running("a" * 12, 60, 0.0, 0, 12, 5.0, 0.5), Running("b" * 12, 60, 0.0, 0, 0, 0.0)]
    labelled = {run.key: f"fedproto, channel.snr_db=9, partition.ways=3, {run.key}" for run in running}
    snapshot = Snapshot(running, done=3, failed=1, to_come=6, elapsed=245.0, left=360.0)
    console = Console(width=columns, record=True, file=io.StringIO())
    console.print(shown(snapshot, labelled, lines=24))
    text = console.export_text()
    words = " ".join(text.split())
    assert "round 12/60 50.0 %" in words and "round 0/60" in words and "a" * 12 in words
    assert "12 runs: 3 done, 1 failed, 2 at work, 6 to come" in words
    assert "4.1 min passed, about 6 min left, until " in words
    assert max(map(len, text.splitlines())) <= columns
    console.print(shown(snapshot, labelled, lines=6))
    assert "and 1 more at work" in console.export_text()


def test_the_end_of_a_later_day_has_its_date() -> None:
    times = Snapshot([], 0, 0, 1, 1.0, 26 * 3600.0).times(datetime(2026, 11, 22, 23, 0))
    assert times == "1 s passed, about 26 h left, until Tue 24 Nov 01:00"
    assert Snapshot([], 0, 0, 1, 1.0, None).times(datetime.now()) == "1 s passed, the end is not known yet"


ON_A_TERMINAL = """
import subprocess, sys, time
from rich.text import Text
from semcom.screen import Screen
with Screen(lambda: Text("below\\nbelow"), seconds=0.05):
    for i in range(3):
        print("out", i)
        print("err", i, file=sys.stderr)
        subprocess.run([sys.executable, "-c", "import os; os.write(2, b'child\\\\n')"])
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


def test_a_failure_is_told_with_its_place_and_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (run,) = [config("fedavg", 0)]
    write_config(tmp_path / "a b", run)
    text = "ValueError: no such luck\n\nTraceback (most recent call last):\n"
    ours, theirs = Path(failures.__file__), Path(os.__file__)
    frames = [
        (ours, 3, "run", "return broken()"),
        (tmp_path / "own.py", 5, "broken", "raise it"),
        (theirs, 9, "f", "x"),
    ]
    for file, number, function, code in frames:
        text += f'  File "{file}", line {number}, in {function}\n    {code}\n    ^^^^~~~\n'
    chained = "\n\nDuring ...:\n\nTraceback (most recent call last):\n" + '  File "/z/late.py", line 1, in f\n    y\n'
    (tmp_path / "a b" / "error.txt").write_text(text + "ValueError: no such luck" + chained + "RunError: later\n")
    failure = Failure("fedavg, seed=0, aa", Path("a b"), "ValueError: no such luck")
    assert report([failure]).splitlines() == [
        "FAILED fedavg, seed=0, aa",
        "  ValueError: no such luck",
        f'    File "{frames[1][0]}", line 5, in broken',
        "      raise it",
        "  this run alone: semcom train --config 'a b/config.json'",
    ]
    assert replace(failure, own=True).told()[-1] == "  the command of the sweep tries it again"
    lost = replace(failure, folder=Path("nowhere"))
    assert lost.told() == [*failure.told()[:2], "  the command of the sweep tries it again"]


def test_where_only_semcom_was_at_work_its_last_place_is_told(tmp_path: Path) -> None:
    text = "X: y\n\nTraceback (most recent call last):\n"
    for file in (failures.__file__, failures.__file__, os.__file__):
        text += f'  File "{file}", line {len(text)}, in f\n    code\n'
    (tmp_path / "error.txt").write_text(text + "X: y\n")
    (at, code) = failures.place(tmp_path)
    assert at.startswith(f'File "{failures.__file__}", line ') and code == "  code"
    second = text.index("line ", text.index("line ") + 1)
    assert at.endswith(f"{text[second:].partition(',')[0]}, in f")


def test_five_are_told_in_full() -> None:
    found = [Failure(f"fedavg, seed={i}, {i}", Path("nowhere"), "E: x") for i in range(7)]
    lines = report(found).splitlines()
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
    assert run_hash(read_config(tmp_path / first[0], "test")) == first[0]


def test_runs_that_end_are_lines_where_there_is_no_terminal(runs: Runs, capsys: pytest.CaptureFixture[str]) -> None:
    a, b, c, d = runs
    simple(Path(str(runs[a].out)).parent, runs[a], [0.5, 0.6])
    with SweepProgress(runs, {key: f"label {key}" for key in runs}, jobs=2) as progress:
        simple(Path(str(runs[b].out)).parent, runs[b], [0.25, 0.25])
        add(runs[c], 1, 4, 0.75)
        found = progress.snapshot()
        assert (found.done, found.failed, found.to_come) == (1, 0, 1), "b has ended, which is seen at the next look"
        assert [(run.key, run.round, run.accuracy) for run in found.running][1:] == [(c, 4, 0.75)]
        progress.look()
        progress.fail(runs[d], "E: x")
        found = progress.snapshot()
        assert (found.done, found.failed, found.to_come, len(found.running)) == (2, 1, 0, 1)
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "1 of 4 runs were finished already"
    assert [text.partition("] ")[2] for text in lines[1:]] == [f"label {b}, accuracy 25.0 %", f"FAILED label {d}: E: x"]
    assert [text.partition(",")[0] for text in lines[1:]] == ["[2/4", "[3/4"]
