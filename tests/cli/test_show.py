"""`semcom show`: what it tells of runs and of studies, in every state that they may be in."""

from __future__ import annotations

import dataclasses
import json
import os
import re
import threading
from pathlib import Path

import pytest
from filelock import FileLock

import semcom
from semcom import METHODS
from semcom.cli import main as cli
from semcom.config import run_hash
from semcom.files import SWEEP
from semcom.runs.folder.lock import LOCK
from semcom.studies.analysis.overview import list_changed_settings, read_overview
from semcom.studies.results.archive import pack_archive
from semcom.studies.results.table import list_table_fields
from semcom_papers.experiments.claims.evidence import COMMITTED
from tests.archives import open_runs
from tests.commands import told
from tests.studies.conftest import quick_resolve  # noqa: F401 - a fixture
from tests.studies.folders import begin, config, line, scored, write
from tests.terminal import on_pty

DONE, RUNNING, STOPPED, FAILED, TO_COME = range(5)


@pytest.fixture
def folder(here: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a sweep with a run in each state; the running one is so while `lock` is held."""
    usual = "semcom.studies.analysis.overview.list_default_fields"
    monkeypatch.setattr(
        usual, lambda asked: list_table_fields(semcom.resolve(asked))
    )  # whose stand-in leaves fields open
    study = here / "s"
    configs = [config("fedcl", seed, 9.0, rounds=20) for seed in range(5)]
    warned = {**line(2), "warnings": {"x": "beware"}}
    tested = [line(r, {"personal": scored([r / 20, r / 20]), "global": scored([0.1, 0.1])}) for r in (10, 11, 12)]
    begin(study / run_hash(configs[RUNNING]), configs[RUNNING], [line(1), warned, *map(line, range(3, 10)), *tested])
    (begin(study / run_hash(configs[STOPPED]), configs[STOPPED], [line(r) for r in (1, 2, 3)]) / LOCK).touch()
    failed = begin(study / run_hash(configs[FAILED]), configs[FAILED], [line(1), warned])
    (failed / "error.txt").write_text("RunError: the loss is NaN\n")
    views = {"personal": scored([0.7, 0.8])}
    best = {"personal": scored([0.9, 0.9])}
    finished = [*map(line, range(1, 19)), line(19, best), line(20, views)]
    write(study / run_hash(configs[DONE]), configs[DONE], finished, warnings=["round 2: beware"])
    variants = {run_hash(c): "fedcl" for c in configs}
    record = {"experiment": "study", "scale": "own", "command": "semcom sweep --methods fedcl", "variants": variants}
    (study / SWEEP).write_text(json.dumps(record))
    return study


@pytest.fixture
def hashes() -> list[str]:
    return [run_hash(config("fedcl", seed, 9.0, rounds=20)) for seed in range(5)]


def words(text: str) -> str:
    return " ".join(text.split())


def test_states_rounds_and_accuracies_of_a_study(folder: Path, hashes: list[str]) -> None:
    with FileLock(folder / hashes[RUNNING] / LOCK):
        found = read_overview(folder)
        assert not found.has_ended()
    courses = {course.run.hash: course for course in found.courses}
    states = [courses[key].state for key in hashes]
    assert states == ["done", "running", "stopped", "failed", "pending"]
    assert [courses[key].round for key in hashes] == [20, 12, 3, 2, 0]
    assert found.counts() == dict.fromkeys(["done", "running", "stopped", "failed", "pending"], 1)
    assert list(found.counts()) == ["done", "running", "stopped", "failed", "pending"]
    done, running = courses[hashes[DONE]].first, courses[hashes[RUNNING]].first
    assert (done["last"], done["best"], done["accuracy"]) == pytest.approx((0.75, 0.9, 0.825))
    assert (running["last"], running["best_round"], running["accuracy"]) == pytest.approx((0.6, 12, 0.55))
    assert courses[hashes[STOPPED]].first == {}
    assert found.varied() == {"seed": [0, 1, 2, 3]}, "of a pending run the fields are not known"
    assert found.warnings() == {"round 2: beware": 3}
    (failure,) = found.failures()
    assert (failure.label, failure.error) == (f"fedcl, seed=3, {hashes[FAILED]}", "RunError: the loss is NaN")
    again = read_overview(folder)
    assert again.has_ended() and again.counts() == {"done": 1, "stopped": 2, "failed": 1, "pending": 1}


def test_a_study_is_shown_in_80_columns(
    folder: Path, hashes: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    (folder / ".owner").write_text("process 7 of here (since now)\n")
    with FileLock(folder / hashes[RUNNING] / LOCK), FileLock(folder / LOCK):
        text = "\n".join(told(capsys, "show s"))
    head = dict(row.split(maxsplit=1) for row in text.splitlines()[:4])
    assert head["study"] == "s, 5 runs" and head["command"] == "semcom sweep --methods fedcl"
    assert head["varied"] == "seed=0..3"
    assert "running process 7 of here (since now) progress 1 done, 1 running, 1 stopped, 1 failed," in words(text)
    assert "37 of 80 rounds of the runs that have begun" in words(text)
    rows = {row.split()[1]: row.split()[2:] for row in text.splitlines() if row.startswith("fedcl, seed=")}
    assert rows["seed=0,"] == [hashes[DONE], "done", "20/20", "75.0", "90.0", "82.5"]
    assert rows["seed=1,"] == [hashes[RUNNING], "running", "12/20", "60.0", "60.0", "55.0"]
    assert rows["seed=2,"] == [hashes[STOPPED], "stopped", "3/20", "-", "-", "-"]
    assert rows["seed=3,"][:3] == [hashes[FAILED], "failed", "2/20"] and len(rows) == 4
    air = next(row for row in text.splitlines() if row.startswith("fedcl  "))
    assert air.split() == ["fedcl", "10.0", "10.0", "10.0", "10", "20", "100", "200"]
    assert "round 2: beware (3 runs)" in text
    assert text.splitlines()[-3:] == [
        f"FAILED fedcl, seed=3, {hashes[FAILED]}",
        "  RunError: the loss is NaN",
        f"  this run alone: semcom train --config s/{hashes[FAILED]}/config.json",
    ]
    assert max(map(len, text.splitlines()[:-3])) <= 80


def test_long_names_are_folded_and_not_cut(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    record = json.loads((folder / SWEEP).read_text())
    name = "FedCL_with_a_very_long_name_" * 3
    (folder / SWEEP).write_text(json.dumps(record | {"variants": dict.fromkeys(record["variants"], name)}))
    text = "\n".join(told(capsys, "show s")).partition("FAILED")[0]
    assert max(map(len, text.splitlines())) <= 80
    column = "".join(row[:40].split(" ")[0] for row in text.splitlines() if not row.startswith(("study", "command")))
    assert name in column


def test_of_many_runs_those_that_are_not_done_are_listed(
    folder: Path, hashes: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("semcom.cli.show.ROWS", 2)
    text = "\n".join(told(capsys, "show s"))
    listed = [row.split()[2] for row in text.splitlines() if row.startswith("fedcl, seed=")]
    assert sorted(listed) == sorted([hashes[RUNNING], hashes[STOPPED]])
    assert "and 2 more runs: semcom results s --what runs" in text


def test_a_run_is_shown_with_its_setting_and_all_views(
    folder: Path, hashes: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    lines = told(capsys, f"show s/{hashes[DONE]}")
    assert lines[0].split() == ["run", hashes[DONE], "of", "fedcl,", "in", f"s/{hashes[DONE]}"]
    assert words(lines[1]) == "setting channel.snr_db=9, train.rounds=20, clients=2"
    assert words(lines[2]) == "progress done, round 20 of 20"
    command = f"semcom train --config s/{hashes[DONE]}/config.json --out repeated/{hashes[DONE]}"
    assert f"repeat    {command}" in lines, "in a line, whatever the width of the terminal"
    (of_view,) = (line.split() for line in lines if line.startswith("personal"))
    assert of_view == ["personal", "75.0", "90.0", "19", "82.5", "2.5", "80.0"]
    assert "received SNR: train up 10.00 dB, train down 10.00 dB, test 10.00 dB" in lines
    assert "  uplink  : 10 floats, 320 bits, 100 channel uses, 0.5 s, energy 2 symbols" in lines
    assert lines[-2:] == ["warnings", "  round 2: beware"]
    with FileLock(folder / hashes[RUNNING] / LOCK):
        text = "\n".join(told(capsys, f"show s/{hashes[RUNNING]}"))
    assert "running, round 12 of 20" in text and "a process of its own" in text
    rows = [row.split() for row in text.splitlines() if row.startswith(("personal", "global"))]
    assert rows == [
        ["personal", "60.0", "60.0", "12", "55.0", "0.0", "55.0"],
        ["global", *["10.0"] * 2, "10", "10.0", "0.0", "10.0"],
    ]
    assert "semcom train --config" in "\n".join(told(capsys, f"show s/{hashes[FAILED]}"))


@pytest.mark.parametrize(
    ("archive", "key", "command"),
    [
        ("letter-fig2b-small.zip", "075f814be7b9", "semcom train --config {run} --out repeated/075f814be7b9{root}"),
        # noise on images of cifar10
        ("letter-lead-small.zip", "04187a946d7f", "semcom train --config {run} --out repeated/04187a946d7f{root}"),
        # what the experiment adds is not in a run of semcom train
        ("letter-fig4-small.zip", "056f5f7eed7d", "semcom sweep letter-fig4 --scale small"),
    ],
)
def test_a_run_of_an_archive_is_shown_with_the_command_that_repeats_it(
    archive: str,
    key: str,
    command: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An archive names no folder of images: the user has to, unless they are in the cache folder."""
    monkeypatch.setenv("COLUMNS", "400")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    run = COMMITTED / archive / key
    root = " --data.root FOLDER"
    lines = told(capsys, f"show {run}")
    assert f"repeat    {command.format(run=run, root=root)}" in lines
    assert any(line.startswith("FOLDER ") for line in lines) == ("{root}" in command)
    (made,) = (line for line in lines if line.startswith("made by"))
    assert "commit" in made and "torch 2.15.0, processor not recorded" in made
    (tmp_path / "semcom").mkdir()
    (tmp_path / "semcom" / "cifar10.npz").touch()
    lines = told(capsys, f"show {run}")
    assert f"repeat    {command.format(run=run, root='')}" in lines
    assert not any(line.startswith("FOLDER ") for line in lines)


def test_warnings_of_older_versions_advise_options_that_there_are() -> None:
    """What is stored says method.lam, which is hyper.lam now; nothing else of a warning changes."""
    options = {f"hyper.{field.name.replace('_', '-')}" for field in dataclasses.fields(METHODS.get("fedcl").Hyper)}
    renamed = 0
    for archive in ("letter-encoder-small.zip", "wireless-baselines-small.zip"):
        with open_runs(COMMITTED / archive) as file:
            for run in semcom.study(COMMITTED / archive).stored:
                stored = json.loads(file.read(f"{run.hash}/summary.json"))["warnings"]
                shown = run.warnings()
                assert shown == [text.replace("method.", "hyper.") for text in stored]
                assert {word for text in shown for word in re.findall(r"hyper\.[a-z-]+", text)} <= options
                renamed += shown != stored
    assert renamed == 1


def test_failed_runs_of_an_archive_are_repeated_from_it(
    folder: Path, hashes: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    pack_archive(folder)
    lines = told(capsys, "show s.zip")
    assert lines[-1] == f"  this run alone: semcom train --config s.zip/{hashes[FAILED]}"


def test_an_archive_without_the_run_that_is_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["show", str(COMMITTED / "letter-fig2b-small.zip" / "0123456789ab")]) == 2
    assert "has no run 0123456789ab" in capsys.readouterr().err


def test_a_summary_says_what_the_run_was_made_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    line_ = "train local --clients 2 --partition.shots 4 --train.rounds 1 --model.encoder dcgan-narrow --device cpu"
    assert cli.main([*line_.split(), "--out", str(tmp_path / "r")]) == 0
    capsys.readouterr()
    made = json.loads((tmp_path / "r" / "summary.json").read_text())["machine"]
    assert set(made) == {"processor", "vector", "threads", "torch", "build"} and made["processor"]
    assert f"{made['vector']}, {made['threads']} threads" in words("\n".join(told(capsys, f"show {tmp_path / 'r'}")))


def test_the_setting_is_what_differs_from_the_default_run(folder: Path, hashes: list[str]) -> None:
    found = read_overview(folder / hashes[DONE])
    assert list_changed_settings(found.courses[0].run) == {"channel.snr_db": 9.0, "train.rounds": 20, "clients": 2}


def test_a_folder_that_nobody_swept_has_no_command(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for method in ("fedcl", "fedavg"):
        begin(here / "s" / method, config(method), [line(1)])
    text = "\n".join([*told(capsys, "show s"), ""])
    assert "command" not in text and "varied    method=fedavg,fedcl" in text and "running   nothing" in text
    assert "2 of 8 rounds\n" in text and "received SNR and traffic: with the first run that is done" in text


def test_an_owner_that_was_killed_is_not_running(folder: Path) -> None:
    (folder / ".owner").write_text(f"process {os.getpid()} of here (since now)\n")
    (folder / LOCK).touch()
    assert read_overview(folder).workers == ()
    with FileLock(folder / LOCK):
        assert read_overview(folder).workers == (f"process {os.getpid()} of here (since now)",)
    (folder / ".owner-3-of-16").write_text("process 8 of there (since now)\n")
    with FileLock(folder / f"{LOCK}-3-of-16"):
        assert read_overview(folder).workers == ("process 8 of there (since now) with its shard 3/16",)


def test_it_is_watched_until_nothing_is_running(folder: Path, hashes: list[str]) -> None:
    """On a terminal; then the whole stays there."""
    lock = FileLock(folder / hashes[RUNNING] / LOCK, thread_local=False)
    lock.acquire()
    ended = threading.Timer(6.0, lock.release)
    ended.start()
    text, status = on_pty("import sys; from semcom.cli import main; sys.exit(main.main(['show', 's', '--watch']))")
    assert status == 0 and not lock.is_locked
    assert text.count("study     s, 5 runs") == 1 and "progress  1 done, 2 stopped, 1 failed, 1 pending" in text
    assert text.rstrip().endswith(f"semcom train --config s/{hashes[FAILED]}/config.json")
