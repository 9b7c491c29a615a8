"""Crosses for failed training: a seed whose accuracy is no better than naming one class.

A client's own model can name one of its client's C_k classes, and is right in 1 / C_k of its tests. A model for all
clients can name one of the C of the dataset. If the partition does not fix the number of classes of a client, C counts
for all.
"""

from __future__ import annotations

from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from numpy.typing import ArrayLike

from semcom.plots.base import Plot
from semcom.plots.points import select_view
from semcom.studies.analysis.study import Study
from semcom.studies.grid import TEST
from semcom.studies.results.run import Stored
from semcom.tasks.metric import ACCURACY

GUESSING = "guessing"
"""Column of the numbers that marks crosses. CSV files leave it out."""
CROSS = "a seed is guessing"
"""Label of crosses in the legend."""
NUMBERS = ("accuracy", "last", "best")
"""Numbers that are held against guessing."""
COMMON = ("global", "received")
"""Views with a common model for all clients."""
NEAR = 0.005
"""How far above guessing an accuracy still is no better."""


def mark_guessing(study: Study, plot: Plot, cells: pd.DataFrame) -> pd.DataFrame:
    """Mark the means with a seed that is no better than guessing, in a further column, `GUESSING`.

    Numbers stay unmarked if they are no accuracies of the study at its fields, and against test SNRs or at another than
    the first one, where noise makes any model guess.
    """
    fields = [name for name in plot.fields if plot.kind != "curves" or name != plot.x]  # one cross for a whole curve
    if plot.y not in NUMBERS or study.metric != ACCURACY or TEST in fields or not {*fields} <= {*cells}:
        return cells
    found = study.results
    if not {*fields, plot.y} <= {*found}:
        return cells
    first = found["hash"].map({run.hash: run.test_snrs[0] for run in study.stored if run.test_snrs})
    found = found[first.isna() | (found[TEST] == first)]
    if found.empty:
        return cells
    found = select_view(study, found, plot.view)
    levels = _find_levels(study)
    level = [levels.get((run, view in COMMON)) for run, view in zip(found["hash"], found["view"], strict=True)]
    found = found.assign(**{GUESSING: found[plot.y].to_numpy() <= pd.Series(level, dtype=float).to_numpy() + NEAR})
    if plot.x in fields and pd.api.types.is_float_dtype(cells[plot.x]):
        found[plot.x] = found[plot.x].astype(float)  # lines turn their abscissa into floats before the merge
    marks = found.groupby(fields, dropna=False)[GUESSING].any().reset_index()
    marked = cells.merge(marks, on=fields, how="left", validate="many_to_one")
    return marked.assign(**{GUESSING: marked[GUESSING].eq(True)})


def _find_levels(study: Study) -> dict[tuple[str, bool], float]:
    """Map a run, and whether a model is common to all its clients, to the accuracy of naming one class."""
    classes = study.classes.groupby("hash")["class"].max() + 1
    found = {}
    for run in study.stored:
        of_data = classes.get(run.hash)
        of_client = count_own_classes(run)
        for common, count in ((True, of_data), (False, of_client or of_data)):
            if count:
                found[run.hash, common] = 1 / float(count)
    return found


def count_own_classes(run: Stored) -> int | None:
    """Count the classes that each client is tested on, or return None if the partition does not fix it."""
    own: Any = run.field("partition.classes")
    if run.field("partition.kind") == "shots" and not run.field("partition.ways_spread"):
        own = run.field("partition.ways") if run.field("partition.test_classes") in (None, "own") else None
    return int(own) if own else None


def cross_guessing(axes: Axes, cells: pd.DataFrame, x: ArrayLike, y: ArrayLike) -> None:
    """Draw crosses at the numbers that `mark_guessing` has marked, with the places `x` and `y` of all numbers."""
    if GUESSING in cells and cells[GUESSING].any():
        places = pd.DataFrame({"x": x, "y": y})[cells[GUESSING].to_numpy()]
        axes.plot(
            places["x"], places["y"], "x", color="black", markersize=7, markeredgewidth=0.9, zorder=5, label=CROSS
        )


def describe_guessing(cells: pd.DataFrame, plot: Plot) -> str:
    """Describe the crosses, if any."""
    if GUESSING not in cells or not cells[GUESSING].any():
        return ""
    return (
        " Crossed: a seed or more is no better than guessing one of the classes that a client has, or, where one model "
        "is for all clients or the division does not set their number, one of all classes."
    )
