"""The division of images over clients: a dot for each client and class, whose area is the number of images."""

from __future__ import annotations

import re

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from semcom.config import ConfigError
from semcom.plots.base import Kind, Plot, Styles
from semcom.plots.style import COLORS
from semcom.runs.folder.arrays import CONFUSION
from semcom.studies.analysis.study import Study

ROW, HIGHEST = 0.15, 4.0
"""Height of a client's row, and the largest height of a panel, in inches."""


def compute_divisions(study: Study, plot: Plot) -> pd.DataFrame:
    """Count the images of each client and class. Runs of one seed have the same division, whatever their method.

    Returns:
        Columns: the panels' field, client, class, train, test (numbers of images).

    Raises:
        ConfigError: no run kept its matrices, which come with these counts, or runs of a panel have other divisions.
    """
    frame = study.clients
    if "train" not in frame:
        command = f"semcom train ... --keep {CONFUSION}"
        raise ConfigError(f"kind: no run kept its numbers of images by class; repeat runs with {command}")
    counts = [name for name in frame if re.fullmatch(r"(train|test)\.\d+", name)]
    panel = [plot.facet] if plot.facet else []
    whole = frame.dropna(subset=["train"]).drop_duplicates([*panel, "client", *counts])
    if whole.duplicated([*panel, "client"]).any():
        there = [name for name in ("seed", *study.axes) if whole[name].nunique() > 1 and name not in panel]
        one = f"--at {there[0]}={whole[there[0]].iloc[0]}"
        raise ConfigError(
            f"{there[0]}: its values have other divisions; give one, such as {one}, or --facet {there[0]}"
        )
    long = whole.melt([*panel, "client"], counts, "of", "images")
    long = long.dropna(subset=["images"]).astype({"images": int})  # of a dataset with more classes in another panel
    split = long["of"].str.extract(r"(?P<part>\w+)\.(?P<class>\d+)").astype({"class": int})
    table = pd.concat([long[[*panel, "client", "images"]], split], axis=1)
    return table.pivot(index=[*panel, "client", "class"], columns="part", values="images").reset_index()[
        [*panel, "client", "class", "train", "test"]
    ]


def draw_divisions(axes: Axes, cells: pd.DataFrame, plot: Plot, styles: Styles) -> None:
    """Draw the dots; the largest fills its place."""
    some = cells[cells[plot.y] > 0]
    axes.scatter(some["class"], some["client"], s=some[plot.y], color=COLORS[0], linewidths=0, zorder=2)
    classes, clients = cells["class"].max() + 1, sorted(cells["client"].unique())
    axes.set_xticks(range(0, classes, 1 + (classes - 1) // 20))
    axes.set_yticks(clients[:: 1 if len(clients) <= 10 else 5 * (1 + len(clients) // 50)])
    axes.set_xlim(-0.7, classes - 0.3)
    axes.set_ylim(max(clients) + 0.8, min(clients) - 0.8)
    axes.set_xlabel("Class")
    axes.set_ylabel("Client")


def size_dots(figure: Figure, cells: pd.DataFrame, plot: Plot) -> None:
    """Give the dots their areas, in the place that the axes have got, and explain them above."""
    figure.draw_without_rendering()  # the layout gives axes their size when it is drawn
    box, largest = figure.axes[0].get_window_extent(), int(cells[plot.y].max())
    rows, columns = cells["client"].nunique() + 0.6, cells["class"].max() + 1.4
    points = 0.95 * 72 / figure.dpi * min(box.width / columns, box.height / rows)
    for axes in figure.axes:
        dots = axes.collections[0]
        dots.set_sizes(np.asarray(dots.get_sizes()) / largest * points**2)  # type: ignore[attr-defined]
    shown = sorted({max(1, round(largest * share)) for share in (0.1, 0.5, 1.0)})
    keys = [
        figure.axes[0].scatter([], [], s=n / largest * points**2, color=COLORS[0], linewidths=0, label=f"{n} images")
        for n in shown
    ]
    figure.legend(handles=keys, loc="outside upper center", ncols=len(keys), frameon=False)


def choose_division_height(cells: pd.DataFrame, plot: Plot) -> float:
    """Compute the height of a panel in inches from its clients."""
    return 0.45 + min(HIGHEST, max(1.0, ROW * cells["client"].nunique()))


def describe_divisions(cells: pd.DataFrame, plot: Plot) -> str:
    """Describe the dots."""
    part = {"train": "training", "test": "test"}[plot.y]
    return f"The {part} images of {cells['client'].nunique()} clients by class: the area of a dot is their number."


DIVISIONS = Kind(
    title="images of clients by class, as dots (runs with --keep confusion)",
    tabled=False,
    numbers=compute_divisions,
    draw=draw_divisions,
    caption=describe_divisions,
    takes=("y",),
    height=choose_division_height,
    finish=size_dots,
    of_y=False,
)
