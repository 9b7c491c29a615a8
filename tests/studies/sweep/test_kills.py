"""A sweep that is killed at random moments, five times: every result is there once, as without the kills."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from semcom.files import METRICS, SUMMARY
from semcom.runs.folder.folder import CHECKPOINT
from semcom.runs.folder.summary import read_summary
from semcom.studies.results.table import read_table
from tests.processes import finish
from tests.studies.sweep import kills

pytestmark = pytest.mark.slow
CLOCKS = ("lines", "metrics_digest", "begun", "seconds", "samples_per_second", "commit")


def without_clocks(values: Any) -> Any:
    """Plain values, tensors as lists."""
    if isinstance(values, dict):
        return {name: without_clocks(value) for name, value in values.items() if name not in CLOCKS}
    if isinstance(values, (list, tuple)):
        return [without_clocks(value) for value in values]
    return values.tolist() if isinstance(values, torch.Tensor) else values


def results(folder: Path) -> dict[str, Any]:
    """What each run has left: summary, lines of all rounds, weights."""
    found = {}
    for path in sorted(folder.glob(f"*/{SUMMARY}")):
        lines = [json.loads(line) for line in path.with_name(METRICS).read_text().splitlines()]
        weights = torch.load(path.with_name(CHECKPOINT), weights_only=True)
        found[path.parent.name] = without_clocks([read_summary(path.parent), lines, weights])
    return found


def test_every_result_of_a_study_that_is_killed_five_times_is_there_once(tmp_path: Path) -> None:
    told = json.loads(finish(kills.main, tmp_path / "study", 5))
    assert told["killed"] == 5 and told["worked"] >= 3, "most were killed after something had been written"
    whole = tmp_path / "study" / "whole"
    expected, table = results(whole), read_table(whole)
    assert len(expected) == 4
    for number in range(told["studies"]):
        folder = tmp_path / "study" / f"{number}"
        assert results(folder) == expected
        assert not list(folder.glob("*/*.part")) and not list(folder.glob("*/error.txt"))
        rows = read_table(folder)
        assert sorted(rows["hash"]) == sorted(table["hash"]) and set(rows["status"]) == {"done"}
        assert rows.set_index("hash")["accuracy"].equals(table.set_index("hash")["accuracy"])
