"""A field that some runs leave empty: its rows, columns and panels stand beside those of its values."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import semcom
from semcom.config import run_hash
from semcom.plots.points import EMPTY
from semcom.runs.folder.arrays import write_arrays
from semcom.studies.analysis.study import Study
from tests.plots.studies import kept, shown
from tests.studies.folders import config, line, scored, write

SHOTS = "partition.shots"
"""Field that is empty where clients have all images of a class."""


@pytest.fixture(scope="module")
def divided(tmp_path_factory: pytest.TempPathFactory, resolving: None) -> Study:
    """Two methods with 5 images a class, and with all. Each keeps features, and two images without test SNRs."""
    folder, accuracies = tmp_path_factory.mktemp("study"), iter((0.2, 0.3, 0.5, 0.6))
    for method in ("local", "fedavg"):
        for shots in (5, None):
            plain = config(method, clients=3)
            options = replace(plain.partition.options, shots=shots)
            of = replace(plain, partition=replace(plain.partition, options=options))
            out = write(folder / run_hash(of), of, [line(4, {"personal": scored([next(accuracies)] * 3)})])
            images = {"images": np.zeros((2, 3, 8, 8), np.uint8), "client": np.arange(2), "label": np.zeros(2, int)}
            told = {f"originals/{name}": of_images for name, of_images in images.items()}
            sent = {"originals/snr_db": np.array([np.nan]), "images/personal": np.full((1, 2, 3, 8, 8), 51, np.uint8)}
            write_arrays(out / "arrays.npz", {**kept(0, 0, features=True), **told, **sent}, run_hash(of))
    return semcom.study(folder)


@pytest.mark.parametrize(("kind", "means"), [("heatmap", [[0.2, 0.3], [0.5, 0.6]]), ("gain", [[0.3, 0.3]])])
def test_a_column_holds_what_has_no_value(divided: Study, kind: str, means: list[list[float]]) -> None:
    _, figure, _ = shown(divided, kind=kind, x=SHOTS)
    axes = figure.axes[0]
    assert [label.get_text() for label in axes.get_xticklabels()] == ["5", "none"]
    np.testing.assert_allclose(sorted(axes.images[0].get_array().tolist()), means)


@pytest.mark.parametrize("kind", ["bars", "dots"])
def test_a_row_holds_what_has_no_value(divided: Study, kind: str) -> None:
    _, figure, _ = shown(divided, kind=kind, x=SHOTS)
    axes = figure.axes[0]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["none", "5"]
    if kind == "bars":
        rows = {(round(bar.get_y() + bar.get_height() / 2), bar.get_width()) for bar in axes.patches}
    else:
        rows = {(round(y), x) for container in axes.containers for x, y in container[0].get_xydata()}
    assert {(row, round(mean, 6)) for row, mean in rows} == {(0, 0.3), (0, 0.6), (1, 0.2), (1, 0.5)}


@pytest.mark.parametrize("kind", ["embedding", "images"])
def test_a_panel_holds_what_has_no_value(divided: Study, kind: str) -> None:
    """An image of 51 of 255 beside one of 0 is 14 dB; all were sent as in training, which is one column."""
    cells, figure, _ = shown(divided, kind=kind, facet=SHOTS, at={"method": "fedavg"})
    assert [axes.get_title() for axes in figure.axes] == ["shots 5", "shots none"]
    assert cells[SHOTS].value_counts().tolist() == ([36, 36] if kind == "embedding" else [2, 2])
    if kind == "images":
        assert cells["psnr"].tolist() == pytest.approx([-20 * np.log10(0.2)] * 4)
        names = [[label.get_text() for label in axes.get_xticklabels()] for axes in figure.axes]
        assert names == [["original", "as trained"]] * 2 and [len(axes.images) for axes in figure.axes] == [4, 4]
    _, figure, _ = shown(divided, kind=kind, facet=SHOTS, at={"method": "fedavg", SHOTS: "None"})
    assert len(figure.axes) == 1


def test_what_has_no_value_has_no_unit(divided: Study) -> None:
    assert [divided.labels.value("channel.snr_db", value) for value in (None, EMPTY, 9.0)] == ["none", "none", "9 dB"]
