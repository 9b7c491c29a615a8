"""Bars or dots, a row for each method or other value, with names of any number beside them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from semcom.plots.base import Kind, Plot, Styles
from semcom.plots.guessing import cross_guessing, describe_guessing
from semcom.plots.points import average_over_seeds, describe_points, measure_ends
from semcom.plots.style import choose_bar_styles, percent
from semcom.studies.analysis.study import Study
from semcom.studies.names import NAMED, field_label, metric_label

ROW, MARK = 0.15, 0.07
"""Height of a row, and of each further mark in it, in inches."""


def sort_means(study: Study, plot: Plot) -> pd.DataFrame:
    """Compute the means over seeds; methods ascend by the mean of all their drawn numbers. Errors: `Study.mean`."""
    cells = average_over_seeds(study, plot)
    if plot.x not in NAMED:
        return cells
    order = cells.groupby(plot.x)["mean"].mean().sort_values(kind="stable").index
    place = cells[plot.x].map({name: i for i, name in enumerate(order)})
    return cells.iloc[np.argsort(place.to_numpy(), kind="stable")].reset_index(drop=True)


def list_bar_rows(cells: pd.DataFrame, plot: Plot) -> list[str]:
    """List the values of the rows, the lowest row first: methods ascend, other values descend."""
    values = list(dict.fromkeys(cells[plot.x]))
    return values if plot.x in NAMED else values[::-1]


def draw_bars(axes: Axes, cells: pd.DataFrame, plot: Plot, styles: Styles) -> None:
    """Draw a bar from zero for each row and hue."""
    count = len(styles)
    for i, (label, style, at, line) in enumerate(_list_series(axes, cells, plot, styles)):
        height = 0.8 / count
        axes.barh(at + 0.4 - height * (i + 0.5), line["mean"], height, label=label, zorder=2, **style)
        axes.errorbar(
            line["mean"], at + 0.4 - height * (i + 0.5), xerr=measure_ends(line), fmt="none", ecolor="black",
            elinewidth=0.6, capsize=min(2.0, 8 * height), zorder=3,
        )  # fmt: skip
    axes.set_xlim(left=min(0.0, float(np.nanmin(cells[["mean", "low"]]))))


def draw_dots(axes: Axes, cells: pd.DataFrame, plot: Plot, styles: Styles) -> None:
    """Draw a dot with its interval for each row and hue."""
    count = len(styles)
    for i, (label, style, at, line) in enumerate(_list_series(axes, cells, plot, styles)):
        shift = 0.5 * ((count - 1) / 2 - i) / max(1, count - 1)
        look = {**style, "linestyle": "none"}
        axes.errorbar(line["mean"], at + shift, xerr=measure_ends(line), label=label, elinewidth=0.6, **look)
        cross_guessing(axes, line, line["mean"], at + shift)
    axes.margins(x=0.06)


def _list_series(axes: Axes, cells: pd.DataFrame, plot: Plot, styles: Styles):  # type: ignore[no-untyped-def]
    """Yield label, style, heights and numbers of each hue, and label the rows of the axes."""
    names = list_bar_rows(cells, plot)
    axes.set_yticks(range(len(names)), [plot.labels.value(str(plot.x), name) for name in names])
    axes.set_ylim(-0.7, len(names) - 0.3)
    axes.grid(axis="y", visible=plot.kind == "dots")
    axes.tick_params(axis="y", length=0)
    axes.set_xlabel(metric_label(plot.metric))
    if plot.x not in NAMED:
        axes.set_ylabel(field_label(str(plot.x)))
    percent(axes.xaxis, plot.metric)
    height = {name: i for i, name in enumerate(names)}
    if plot.hue is None:
        yield None, styles[None], cells[plot.x].map(height).to_numpy(float), cells
        return
    for hue in styles:
        line = cells[cells[plot.hue] == hue]
        if len(line):
            yield plot.labels.place(plot.hue, hue), styles[hue], line[plot.x].map(height).to_numpy(float), line


def choose_bar_height(cells: pd.DataFrame, plot: Plot) -> float:
    """Compute the height of a panel in inches from its rows."""
    hues = cells[plot.hue].nunique() if plot.hue else 1
    return 0.4 + len(list_bar_rows(cells, plot)) * (ROW + MARK * (hues - 1))


def describe_bars(cells: pd.DataFrame, plot: Plot) -> str:
    """Describe the marks and bars, and the order of the rows."""
    hidden = replace(plot, x=None) if plot.x in NAMED else plot
    order = " Methods are sorted by their mean." if plot.x in NAMED else ""
    return describe_points(cells, hidden, "error bars") + order


_TAKES = ("x", "y", "hue", "view")
BARS = Kind(
    "bars from zero, a row for each method or value",
    sort_means,
    draw_bars,
    describe_bars,
    _TAKES,
    height=choose_bar_height,
    styles=choose_bar_styles,
    rows="x",
)
DOTS = Kind(
    "dots, a row for each method or value, on an axis that shows the variation",
    sort_means,
    draw_dots,
    describe_bars,
    _TAKES,
    height=choose_bar_height,
    rows="x",
    crossed=True,
    note=describe_guessing,
)
