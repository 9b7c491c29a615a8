"""Every experiment at its cheapest scale, with its figures: what a paper's name promises can be carried out."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from semcom.plots.kinds import KINDS
from semcom.plots.registry import drawings_of
from semcom.plots.render import render
from semcom.studies.names import is_share
from semcom.studies.registry import EXPERIMENTS, experiment
from semcom.studies.results.table import read_table
from semcom.studies.sweep.sweep import sweep

ELSEWHERE = ("demo", "finish-search", "letter-search", "letter-search-lambda", "wireless-baselines", "arms-small")
"""Experiments whose runs other tests look at."""


SMALLEST = [name for name in EXPERIMENTS.names() if name not in ELSEWHERE and "smoke" in experiment(name).scales]


@pytest.mark.parametrize("name", SMALLEST)
def test_every_experiment_runs_at_smoke_with_its_figures(name: str, tmp_path: Path) -> None:
    found = experiment(name)
    sweep(name, scale="smoke", out=tmp_path / name)
    frame = read_table(tmp_path / name)
    assert len(frame) == len(found.runs("smoke")) and set(frame["status"]) == {"done"}
    assert set(frame["variant"]) == {variant.name for variant in found.compared()}
    assert frame["accuracy"].astype(float).between(0, 1).all() and frame["accuracy"].astype(float).gt(0).any()
    for drawing in drawings_of(found, "smoke"):
        files = render(drawing.name, results=tmp_path / name, out=tmp_path / "figures")
        assert {file.suffix for file in files} == {".pdf", ".png", ".csv", ".md"}
        shown = pd.read_csv(next(file for file in files if file.suffix == ".csv"))
        share = KINDS.get(str(drawing.plot.kind)).of_y and is_share(drawing.plot.y)
        assert ("as a fraction of 1" in next(f for f in files if f.suffix == ".md").read_text("utf-8")) == share
        assert len(shown) and not shown.select_dtypes("number").dropna(axis=1, how="all").empty
