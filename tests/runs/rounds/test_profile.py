"""Where the time of a run goes: measured, added up over restarts, printed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import semcom
from semcom.cli import main as cli
from semcom.cli import printing as report
from semcom.config import to_dict
from semcom.engine.host import clock
from semcom.runs.folder.folder import SUMMARY
from semcom.runs.rounds.runner import run
from tests import worlds
from tests.runs.rounds.test_run import interrupt, timeless

COARSE = {"setup", "train", "evaluate", "checkpoint", "log"}


class Ticks:
    """A clock that moves on by one second whenever it is read."""

    def __init__(self) -> None:
        self.now = 0.0

    def perf_counter(self) -> float:
        self.now += 1
        return self.now


def test_each_section_is_timed_as_often_as_it_is_visited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Six rounds, tests after rounds 1, 2, 4 and 6, checkpoints after rounds 3 and 6; three visits of set-up."""
    monkeypatch.setattr(clock, "time", Ticks())
    monkeypatch.setattr("semcom.runs.result.evaluation.LAST", 1)
    train = {"eval_every": 2, "checkpoint_every": 3}
    config = worlds.request(out=str(tmp_path), train=train)
    seconds = run(config, on_round=lambda row: None).summary["seconds"]
    assert seconds == {"setup": 3, "train": 6, "evaluate": 4, "checkpoint": 2, "log": 12}
    without_folder = run(worlds.request(train={"eval_every": 2})).summary["seconds"]
    assert without_folder == {"setup": 3, "train": 6, "evaluate": 4, "log": 6}


def test_a_resumed_run_goes_on_adding(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clock, "time", Ticks())
    config = worlds.request(out=str(tmp_path))
    interrupt(config, 4)
    seconds = run(config).summary["seconds"]
    assert seconds["train"] == seconds["evaluate"] == 6 and seconds["setup"] == 6


def test_a_profile_tells_the_parts_of_training_and_changes_no_result() -> None:
    plain, fine = run(worlds.request("fedcl")).summary, run(worlds.request("fedcl"), profile=True).summary
    parts = set(fine["seconds"]) - set(plain["seconds"])
    assert parts >= {"train/forward", "train/backward"} and all(part.startswith("train/") for part in parts)
    assert sum(fine["seconds"][part] for part in parts) <= fine["seconds"]["train"]
    assert timeless(fine) == timeless(plain)


def test_the_table_adds_up() -> None:
    seconds = {"setup": 1.0, "train/forward": 2.5, "train": 6.0, "evaluate": 2.0, "checkpoint": 0.6, "log": 0.4}
    assert report.format_time_table(seconds).splitlines() == [
        "where the time went       seconds  % of the run",
        "set-up                       1.00          10.0",
        "training                     6.00          60.0",
        "  forward                    2.50          25.0",
        "evaluation                   2.00          20.0",
        "checkpointing                0.60           6.0",
        "logging                      0.40           4.0",
        "overhead: evaluation, logging and checkpointing take 30.0 % of the run",
    ]
    assert report.format_time_table({}).splitlines()[-1].endswith("take 0.0 % of the run")


def test_the_flag_prints_the_table_and_is_no_part_of_the_configuration(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = worlds.request("fedcl", out=None, train={"rounds": 1})
    (tmp_path / "config.json").write_text(json.dumps(to_dict(config)))
    words = ["train", "--config", str(tmp_path / "config.json"), "--out", str(tmp_path / "out")]
    assert cli.main([*words, "--profile"]) == 0
    printed = capsys.readouterr().out
    assert "where the time went" in printed and "  forward" in printed and "overhead: " in printed
    summary = json.loads((tmp_path / "out" / SUMMARY).read_text())
    assert summary["hash"] == semcom.config.run_hash(config)
    assert {path for path in summary["seconds"] if "/" not in path} == COARSE
    assert cli.main(words) == 0  # the finished run, without its table
    assert "where the time went" not in capsys.readouterr().out
