"""Every experiment at its cheapest scale, with its figures: what a paper's name promises can be carried out."""

from __future__ import annotations

import io
import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from matplotlib.figure import Figure

import semcom
from semcom.channels import fading, link
from semcom.channels.ofdm import link as ofdm
from semcom.config import RunConfig, run_hash, to_dict
from semcom.files import CONFIG, METRICS, SUMMARY
from semcom.plots import style
from semcom.plots.kinds import KINDS
from semcom.plots.registry import find_drawings_of
from semcom.plots.render import render
from semcom.runs.folder.summary import write_summary
from semcom.studies.registry import EXPERIMENTS, find_experiment
from semcom.studies.results.table import list_table_fields, read_table
from semcom.studies.sweep.sweep import sweep
from semcom_papers.experiments import finish_search

ELSEWHERE = ("convergence-bound", "demo", "wireless-baselines")
"""Experiments whose runs and figures other tests look at."""
OUTCOME = ("method", "task", "keep", "new_", "channel.kind", "channel.test_snr_db", "air.", "network.", "finish.")
"""Beginnings of the fields on which it depends which numbers a run leaves."""
SEEN: set[tuple[str, str]] = set()
"""Settings that have been trained with, by all tests of this process."""
TRAINED: dict[str, Path] = {}
"""What runs leave -> the folder of the first run that leaves it."""
TRAIN = semcom.run


def alike(value: Any) -> str:
    """Return a setting without the size of its number: rates of 0.1 and 0.2 are alike, a rate of 0 is not."""
    return str((value > 0) - (value < 0) if type(value) in (int, float) else value)


def train_or_copy(config: RunConfig) -> None:
    """Train what has a setting that no run had before; other runs get the results of one that leaves the same."""
    folder, settings = Path(str(config.out)), list_table_fields(replace(config, seed=0))
    fields = {name: alike(value) for name, value in settings.items()}
    outcome = str([item for item in fields.items() if item[0].startswith(OUTCOME)])
    if outcome not in TRAINED or config.keep or not SEEN.issuperset(fields.items()):
        TRAIN(config)
        SEEN.update(fields.items())
        TRAINED[outcome] = folder
        return
    shutil.copy(TRAINED[outcome] / METRICS, folder)
    (folder / CONFIG).write_text(json.dumps(to_dict(config)))
    summary = json.loads((TRAINED[outcome] / SUMMARY).read_text())
    write_summary(folder, {**summary, "seed": config.seed, "hash": run_hash(config)})


def draw_once(figure: Figure, kind: str) -> bytes:
    """Draw a figure with few dots and for one of its files alone: tests/plots look at both."""
    found = io.BytesIO()
    if kind == "png":
        figure.savefig(found, format=kind, dpi=50)
    return found.getvalue()


def part(name: str, variants: list[str]) -> list[str]:
    """Return what is trained of an experiment: of many arms, which other tests train, the first, some and the last."""
    if name in ("arms-small", "finish-search", "overhead"):
        return variants[:1]
    if find_experiment(name).train is not None:  # which nothing can be copied of
        return [variants[0], variants[-1]] if len(variants) > 1 else variants
    if len(variants) <= 5 or name == "letter-encoder":  # whose figure compares all of its arms
        return variants
    base = variants[0].partition(" | ")[2]
    if base:  # all arms in the first setting; of the lead, one arm in each other
        others = {title.partition(" | ")[2]: title for title in reversed(variants)} if name == "letter-lead" else {}
        return [title for title in variants if title.endswith(f" | {base}") or title in others.values()]
    return [*variants[: -1 : len(variants) // 3], variants[-1]]


@pytest.mark.usefixtures("thin")
@pytest.mark.parametrize("name", [name for name in EXPERIMENTS.names() if name not in ELSEWHERE])
def test_every_experiment_runs_at_smoke_with_its_figures(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Trained is what differs in more than numbers, and all that an experiment trains by a function of its own."""
    found = find_experiment(name)
    monkeypatch.setattr(finish_search, "CANDIDATES", finish_search.CANDIDATES[:1])  # all take two minutes
    monkeypatch.setattr(style, "render_bytes", draw_once)
    for module in (link, fading, ofdm):
        monkeypatch.setattr(module, "SAMPLES", 2**12)  # realisations that quantiles are taken of
    if found.train is None:
        monkeypatch.setattr(semcom, "run", train_or_copy)
    variants = part(name, [variant.name for variant in found.compared()])
    few = {"partition.fraction": 0.1} if name == "arms-small" else {}  # else of all digits
    sweep(name, scale="smoke", methods=variants, set=few, out=tmp_path / name)
    frame = read_table(tmp_path / name)
    assert len(frame) == sum(run.variant in variants for run in found.runs("smoke"))
    assert set(frame["status"]) == {"done"} and set(frame["variant"]) == set(variants)
    number, most = ("psnr", 60) if "psnr" in frame else ("accuracy", 1)
    assert frame[number].astype(float).between(0, most).all() and frame[number].astype(float).gt(0).any()
    for drawing in find_drawings_of(found, "smoke"):
        files = render(drawing.name, results=tmp_path / name, out=tmp_path / "figures")
        assert {file.suffix for file in files} == {".pdf", ".png", ".csv", ".md"}
        shown = pd.read_csv(next(file for file in files if file.suffix == ".csv"))
        share = KINDS.get(str(drawing.plot.kind)).of_y and drawing.plot.metric.share
        assert ("as a fraction of 1" in next(f for f in files if f.suffix == ".md").read_text("utf-8")) == share
        assert len(shown) and not shown.select_dtypes("number").dropna(axis=1, how="all").empty
