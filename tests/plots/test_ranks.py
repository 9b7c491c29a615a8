"""Mean ranks over settings: their direction, and bars where no rank varies."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest

from semcom.plots import Plot
from semcom.plots.ranks import RANKS, compute_ranks
from tests.plots import studies


@pytest.mark.parametrize(("metric", "best"), [("accuracy", "high"), ("accuracy_std", "low")])
def test_the_best_have_the_largest_or_where_less_is_better_the_smallest(metric: str, best: str) -> None:
    values = {"low": (0.1, 0.2, 0.3), "high": (0.4, 0.5, 0.35)}
    rows = [{"variant": name, "snr": i, "mean": v, "n": 3} for name, of in values.items() for i, v in enumerate(of)]
    study: Any = SimpleNamespace(axes=("snr",), mean=lambda *_, **__: pd.DataFrame(rows))
    plot = Plot(kind="ranks", y=metric)
    cells = compute_ranks(study, plot)
    assert cells["variant"].iloc[0] == best and cells["mean"].tolist() == [1, 2]
    assert ("the smallest first" in RANKS.caption(cells, plot)) == (best == "low")


def test_a_bar_joins_methods_whose_ranks_never_vary(tmp_path: Path) -> None:
    plot = Plot(kind="ranks", y="accuracy")
    cells = compute_ranks(studies.made(tmp_path), plot)
    assert cells["low"].isna().all() and {*cells["interval"]} == {"none: one rank in all settings"}
    assert np.allclose(cells["p"], 1 / 6) and {*cells["cliques"]} == {"1"}
    (axes,) = studies.drawn(cells, plot).axes
    bars = [line for line in axes.lines if line.get_linewidth() == 1.6]
    assert len(bars) == 1 and np.isfinite(np.array(bars[0].get_data())).all()
