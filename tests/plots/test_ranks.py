"""Mean ranks over settings: their direction, and bars where no rank varies."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest

from semcom.config import run_hash
from semcom.plots import Plot, plot
from semcom.plots.ranks import RANKS, compute_ranks
from tests.plots import studies
from tests.studies.folders import config, line, scored, write


@pytest.mark.parametrize(("metric", "best"), [("accuracy", "high"), ("accuracy_std", "low")])
def test_the_best_have_the_largest_or_where_less_is_better_the_smallest(metric: str, best: str) -> None:
    values = {"low": (0.1, 0.2, 0.3), "high": (0.4, 0.5, 0.35)}
    rows = [{"variant": name, "snr": i, "mean": v, "n": 3} for name, of in values.items() for i, v in enumerate(of)]
    study: Any = SimpleNamespace(axes=("snr",), mean=lambda *_, **__: pd.DataFrame(rows))
    plot = Plot(kind="ranks", y=metric)
    cells = compute_ranks(study, plot)
    assert cells["variant"].iloc[0] == best and cells["mean"].tolist() == [1, 2]
    assert ("the smallest first" in RANKS.caption(cells, plot)) == (best == "low")


def test_test_snrs_are_settings_like_any_other(tmp_path: Path) -> None:
    for method, accuracy in (("fedcl", 0.6), ("fedavg", 0.5)):
        of = config(method)
        of = replace(of, channel=replace(of.channel, test_snr_db="5,-5"))
        view = scored([accuracy] * 2, at={"5": accuracy, "-5": accuracy / 2})
        write(tmp_path / run_hash(of), of, [line(4, {"personal": view})])
    *_, page = plot(tmp_path, Plot(kind="ranks"), out=tmp_path / "out")
    assert "over 2 settings" in page.read_text() and "Tested at" not in page.read_text()


def test_a_bar_joins_methods_whose_ranks_never_vary(tmp_path: Path) -> None:
    plot = Plot(kind="ranks", y="accuracy")
    cells = compute_ranks(studies.made(tmp_path), plot)
    assert cells["low"].isna().all() and {*cells["interval"]} == {"none: one rank in all settings"}
    assert np.allclose(cells["p"], 1 / 6) and {*cells["cliques"]} == {"1"}
    (axes,) = studies.drawn(cells, plot).axes
    bars = [line for line in axes.lines if line.get_linewidth() == 1.6]
    assert len(bars) == 1 and np.isfinite(np.array(bars[0].get_data())).all()
