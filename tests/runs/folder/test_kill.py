"""A run that is killed at any moment and started again ends as if nothing had happened, bit by bit."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from semcom.files import PREVIOUS
from semcom.runs.folder.folder import CHECKPOINT, CONFIG, METRICS, SUMMARY
from semcom.runs.folder.summary import read_summary
from tests.processes import finish
from tests.runs import kills
from tests.runs.rounds.test_run import flat, lines, timeless

pytestmark = pytest.mark.slow
NUMBERS = {"host": 18, "disk": 3, "shapes": 6}
"""Which runs, see `kills.request` -> how many die at chosen events; a third as many deaths are at random times."""


@pytest.fixture(scope="module", params=NUMBERS)
def killed(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Any]]:
    """The folder of all runs, and what was done to each; the first one is whole."""
    folder = tmp_path_factory.mktemp(request.param)
    printed = finish(kills.main, folder, request.param, NUMBERS[request.param])
    return folder, [json.loads(line) for line in printed.splitlines()]


def result(folder: Path) -> dict[str, Any]:
    """All that a run has left, without clocks."""
    checkpoint = torch.load(folder / CHECKPOINT, weights_only=True)
    tensors = flat(checkpoint["state"]) if not list(folder.glob("rows-*")) else []  # where they lie may differ
    return {
        "summary": timeless(read_summary(folder)),
        "metrics": [timeless(row) for row in lines(folder)],
        "progress": timeless(checkpoint["progress"]),
        "tensors": [(str(t.dtype), t.tolist()) for t in tensors],
        "weights": [t.tolist() for t in torch.load(f"{folder}.pt", weights_only=True)],
    }


def test_every_killed_run_ends_as_if_it_had_not_been(killed: tuple[Path, list[Any]]) -> None:
    folder, runs = killed
    expected = result(folder / "whole")
    assert len(expected["metrics"]) == 5 and expected["weights"]
    for run in runs[1:]:
        assert result(folder / run["run"]) == expected, run
        names = {path.name for path in (folder / run["run"]).iterdir()} - {".lock", "rows-1.bin"}
        assert names == {CONFIG, METRICS, SUMMARY, CHECKPOINT, PREVIOUS}, "something was left behind"


def test_they_were_killed_at_every_kind_of_moment(killed: tuple[Path, list[Any]]) -> None:
    folder, runs = killed
    number = NUMBERS[folder.name.rstrip("0123456789")]
    chosen = [run for run in runs[1:] if run["events"]]
    assert len(chosen) == number and all(run["deaths"] >= 1 for run in chosen)
    for kind, expected in (("time", number // 3), ("stop", number // 3)):
        assert sum(run["deaths"] for run in runs if run["run"].startswith(kind)) == expected
    if number == NUMBERS["host"]:
        for name in (METRICS, CHECKPOINT, SUMMARY):
            moments = {event for run in chosen for event in run["events"] if event.endswith(name)}
            assert {f"before a write to {name}", f"in a write to {name}", f"before fsync of {name}"} <= moments
            assert {f"before replace of {name}", f"after replace of {name}"} <= moments
