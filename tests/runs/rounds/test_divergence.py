"""Runs whose losses are finite and whose tests are not: they have diverged, and no reader trips over what they left."""

from __future__ import annotations

import json
import math
import shutil
from pathlib import Path
from typing import Any

import pytest

from semcom.cli import main as cli
from semcom.config import RunConfig, RunError, run_hash
from semcom.engine.train import view
from semcom.files import METRICS, SUMMARY
from semcom.runs.folder.lines import read_metrics
from semcom.runs.folder.summary import write_summary
from semcom.runs.rounds.load import load
from semcom.runs.rounds.runner import run
from tests import worlds

RECONSTRUCTION: dict[str, Any] = {"task": "reconstruction"}


def request(folder: Path, rate: float = 1e25, **options: Any) -> RunConfig:
    """One step so wide that what the models then make of images overflows; the loss before it does not."""
    train: dict[str, Any] = {"rounds": 1, "optimizer": "sgd", "lr": rate, "batch_size": 100}
    fields: dict[str, Any] = {"model": {"features": 8, "head": "linear"}, "partition": {"kind": "iid"}, "train": train}
    return worlds.request(encoder="mlp", precision="float32", out=str(folder), clients=2, **fields, **options)


TESTS, STEP = "non-finite answers in tests at client 0, 1", "non-finite loss or weights at client 0, 1"


@pytest.mark.parametrize(
    ("task", "rate", "why"),
    [("reconstruction", 1e25, TESTS), ("classification", 1e25, TESTS), ("classification", 1e300, STEP)],
)
def test_a_run_whose_numbers_are_not_finite_has_diverged(
    task: str, rate: float, why: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """In its tests, or after its last step; asked for again too, with no summary that says that it is done."""
    for _ in range(2):
        with pytest.raises(RunError, match=f"^round 1: {why}; last good state"):
            run(request(tmp_path, rate, task=task))
        assert not (tmp_path / SUMMARY).exists() and not read_metrics(tmp_path)
    assert cli.main(["show", str(tmp_path)]) == 0
    shown = capsys.readouterr().out
    assert "failed, round 0 of 1" in shown and f"\n  round 1: {why.partition(' at ')[0]}" in shown


@pytest.fixture
def stored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A study of a run that is done, and of one that an earlier version left: it said null of what was not finite."""
    study = tmp_path / "study"
    done = run(request(study / "done", 0.1, **RECONSTRUCTION))
    asked = request(study / "old", **RECONSTRUCTION)
    monkeypatch.setattr(view, "_check_answers", lambda *_: None)
    with pytest.raises(RunError, match="diverged"):
        run(asked)
    monkeypatch.undo()
    views = {name: dict.fromkeys(numbers) for name, numbers in done.summary["views"].items()}
    write_summary(study / "old", {**done.summary, "views": views, "psnr": None, "hash": run_hash(asked)})
    return study


def test_null_is_read_as_it_is_written(stored: Path) -> None:
    """As NaN; and the run that is asked for again counts as diverged, each time."""
    (plain,) = (json.loads(line) for line in (stored / "old" / METRICS).read_text().splitlines())
    assert plain["views"]["global"]["psnr"] is None
    (line,) = read_metrics(stored / "old")
    found = line["views"]["global"]
    assert all(math.isnan(value) for value in (found["psnr"], found["mse"], *found["clients"]))
    for _ in range(2):
        with pytest.raises(RunError, match="diverged: its PSNR is not finite"):
            run(request(stored / "old", **RECONSTRUCTION))


@pytest.mark.parametrize("unfinished", [False, True])
def test_no_reader_trips_over_what_a_diverged_run_left(
    unfinished: bool, stored: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each tells in a line, or leaves the run out: of the study, of the run alone, of a finished one or not."""
    old, archive, page = stored / "old", stored.parent / "study.zip", stored.parent / "page.html"
    if unfinished:
        (old / SUMMARY).unlink()
    for place in (stored, old):
        words = ["show", "table", "results", "plot --kind curves", "plot --kind bars", f"report --out {page}"]
        for command, *flags in (line.split() for line in words):
            assert cli.main([command, str(place), *flags]) in (0, 1, 2), command
    assert "Traceback" not in capsys.readouterr().err
    assert cli.main(["table", str(stored)]) == 0 and "FedAvg" in capsys.readouterr().out
    with pytest.raises(RunError):
        load(old)
    assert cli.main(["export", str(old), "--out", str(stored.parent / "model")]) == 1
    assert cli.main(["pack", str(stored), "--out", str(archive)]) in (0, 1, 2)
    shutil.rmtree(old)
    assert cli.main(["table", str(stored)]) == 0
