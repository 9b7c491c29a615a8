"""Lines over an axis of numbers, one for each method."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

import pandas as pd
from matplotlib.axes import Axes

from semcom.config import ConfigError
from semcom.plots.base import Kind, Plot, Styles
from semcom.plots.points import (
    average_points_over_seeds,
    describe_intervals_beyond,
    describe_points,
    limit_ordinate,
)
from semcom.plots.style import MANY, percent
from semcom.studies.analysis.study import Study
from semcom.studies.names import field_label, metric_label, name_place

DECADES = 50
"""Ratio of the largest to the smallest value from which on the abscissa is logarithmic."""
TICKS = 10
"""Values up to which each has its tick."""
APART = 0.16
"""Share of the smallest step along the abscissa over which points with intervals are spread sideways."""


def compute_lines(study: Study, plot: Plot) -> pd.DataFrame:
    """Return the means over seeds, with finite numbers on the abscissa.

    Raises:
        ConfigError: as `Study.mean`, or a value of the abscissa is no number.
    """
    cells = average_points_over_seeds(study, plot)
    places = pd.to_numeric(cells[plot.x], errors="coerce")
    wrong = cells.loc[~places.map(math.isfinite), plot.x]
    if len(wrong):
        raise ConfigError(f"x: {plot.x} {wrong.iloc[0]!r} is no finite number; take --kind dots, bars or heatmap")
    cells = cells.assign(**{str(plot.x): places.astype(float)})
    lines = cells.groupby(list(plot.fields[:-1]), sort=False, dropna=False).ngroup()
    return cells.assign(line=lines).sort_values(["line", str(plot.x)], kind="stable").drop(columns="line")


def draw_lines(axes: Axes, cells: pd.DataFrame, plot: Plot, styles: Styles) -> None:
    """Draw a line with error bars for each hue; one that has a single point goes on at its level, thin."""
    x = str(plot.x)
    several = cells.groupby(plot.hue)[x].nunique().max() > 1
    aside = _set_lines_aside(cells, plot, len(styles))
    for i, (hue, style) in enumerate(styles.items()):
        line = cells[cells[plot.hue] == hue]
        if several and len(line) == 1:
            axes.axhline(line["mean"].iloc[0], color=style["color"], linewidth=0.5)
        shown = len(styles) <= MANY and line["low"].notna().any()
        bars = [line["mean"] - line["low"], line["high"] - line["mean"]] if shown else None
        at, label = line[x] + (i - (len(styles) - 1) / 2) * aside, name_place(str(plot.hue), hue)
        axes.errorbar(at, line["mean"], yerr=bars, label=label, elinewidth=0.7, capsize=1.5, **style)
    place_lines(axes, cells[x])
    axes.set_xlabel(field_label(x))
    axes.set_ylabel(metric_label(plot.y))
    percent(axes.yaxis, plot.y)
    axes.margins(y=0.08)


def _set_lines_aside(cells: pd.DataFrame, plot: Plot, lines: int) -> float:
    """Return how far points of neighbouring lines are moved apart, so that their intervals can be told apart."""
    there = sorted(cells[plot.x].unique())
    if lines > MANY or not cells["low"].notna().any() or len(there) < 2 or _is_wide(there):
        return 0.0
    return APART * min(b - a for a, b in pairwise(there)) / max(lines, 4)


def _is_wide(values: Sequence[float]) -> bool:
    """Return whether ascending values are so far apart that their axis is logarithmic."""
    return values[0] > 0 and values[-1] / values[0] >= DECADES


def place_lines(axes: Axes, values: pd.Series) -> None:
    """Put ticks at the values of the abscissa, where these are few, on a logarithmic axis where they are far apart."""
    there = sorted(values.unique())
    if _is_wide(there):
        axes.set_xscale("log", base=2)
    if len(there) <= TICKS:
        axes.set_xticks(there, minor=False)
        axes.set_xticks([], minor=True)
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")


def caption_lines(cells: pd.DataFrame, plot: Plot) -> str:
    """Return what the lines and their bars are."""
    if not cells["low"].notna().any():
        return describe_points(cells, plot)
    if cells[plot.hue].nunique() > MANY:
        return f"{describe_points(cells, plot, 'in the table')} Bars of so many lines would hide each other."
    moved = (
        " Points of one abscissa are moved sideways a little."
        if _set_lines_aside(cells, plot, cells[plot.hue].nunique())
        else ""
    )
    return describe_points(cells, plot) + moved + describe_intervals_beyond(cells, plot)


def height(cells: pd.DataFrame, plot: Plot) -> float:
    """Return the height of a panel in inches, more for many lines."""
    return 1.95 if cells[plot.hue].nunique() <= MANY else 2.6


LINES = Kind(
    title="lines over a field with numbers, such as the SNR",
    numbers=compute_lines,
    draw=draw_lines,
    caption=caption_lines,
    takes=("x", "y", "hue"),
    hue="variant",
    height=height,
    finish=limit_ordinate,
)
