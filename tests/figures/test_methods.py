"""The picture of all methods: order, marks, bars."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from figures.methods import KIND, caption, draw, numbers

METHODS = {"local": (0.8, 0.6), "fedavg": (0.3, 0.4), "fedper": (0.9, 0.7)}
"""Method -> accuracy with two classes per client, and Dirichlet."""


def frame(seeds: tuple[int, ...] = (0,)) -> pd.DataFrame:
    """The table of a sweep; seed s adds s points. One run failed."""
    rows = [
        {"variant": method, KIND: kind, "seed": s, "status": "done", "accuracy": a + s / 100, "accuracy_std": 0.1}
        for method, pair in METHODS.items()
        for kind, a in zip(("pathological", "dirichlet"), pair, strict=True)
        for s in seeds
    ]
    failed = {"variant": "moon", KIND: "dirichlet", "seed": 0, "status": "failed"}
    return pd.DataFrame([*rows, failed])


def test_the_best_method_is_on_top_and_failed_ones_are_missing() -> None:
    cells = numbers(frame())
    assert list(cells.drop_duplicates("variant").sort_values("place")["variant"]) == ["fedavg", "local", "fedper"]
    assert set(cells["variant"]) == set(METHODS) and list(cells[KIND].unique()) == ["pathological", "dirichlet"]


def test_marks_and_bars_show_the_numbers() -> None:
    axes = Figure().add_subplot()
    cells = numbers(frame(seeds=(0, 2)))
    draw(axes, cells)
    for container, kind in zip(axes.containers, ("pathological", "dirichlet"), strict=True):
        line, _, (bars,) = container
        row = cells[cells[KIND] == kind]
        np.testing.assert_allclose(np.asarray(line.get_xdata(), float), row["accuracy"])
        assert np.abs(np.asarray(line.get_ydata()) - row["place"]).max() < 0.3
        ends = np.array([bar[:, 0] for bar in bars.get_segments()])
        np.testing.assert_allclose(ends[:, 1] - ends[:, 0], 0.2)
    assert [text.get_text() for text in axes.get_yticklabels()] == ["FedAvg", "Local", "FedPer"]
    assert "2 seeds; bars are the standard deviation over clients, the table's ± is that over seeds." in caption(cells)
    assert "one seed; bars, and the table's ±, are the standard deviation over clients." in caption(numbers(frame()))
