"""Lines over an axis of numbers, one for each method."""

from __future__ import annotations

import math

import pandas as pd
from matplotlib.axes import Axes

from experiments.labels import field_label, metric_label, place_label
from experiments.study import Study
from figures.base import Kind, Plot, Styles
from figures.points import described, over_seeds
from figures.style import percent
from semcom.config import ConfigError

DECADES = 50
"""Ratio of the largest to the smallest value from which on the abscissa is logarithmic."""
TICKS = 10
"""Values up to which each has its tick."""


def numbers(study: Study, plot: Plot) -> pd.DataFrame:
    """Return the means over seeds, with finite numbers on the abscissa.

    Raises:
        ConfigError: as `Study.mean`, or a value of the abscissa is no number.
    """
    cells = over_seeds(study, plot)
    places = pd.to_numeric(cells[plot.x], errors="coerce")
    wrong = cells.loc[~places.map(math.isfinite), plot.x]
    if len(wrong):
        raise ConfigError(f"x: {plot.x} {wrong.iloc[0]!r} is no finite number; take --kind dots, bars or heatmap")
    cells = cells.assign(**{str(plot.x): places.astype(float)})
    lines = cells.groupby(list(plot.fields[:-1]), sort=False, dropna=False).ngroup()
    return cells.assign(line=lines).sort_values(["line", str(plot.x)], kind="stable").drop(columns="line")


def draw(axes: Axes, cells: pd.DataFrame, plot: Plot, styles: Styles) -> None:
    """Draw a line with error bars for each hue; one that has a single point goes on at its level, thin."""
    x = str(plot.x)
    several = cells.groupby(plot.hue)[x].nunique().max() > 1
    for hue, line in cells.groupby(plot.hue, sort=False):
        style = styles[hue]
        if several and len(line) == 1:
            axes.axhline(line["mean"].iloc[0], color=style["color"], linewidth=0.5)
        bars = [line["mean"] - line["low"], line["high"] - line["mean"]] if line["low"].notna().any() else None
        axes.errorbar(line[x], line["mean"], yerr=bars, label=place_label(str(plot.hue), hue), **style)
    place(axes, cells[x])
    axes.set_xlabel(field_label(x))
    axes.set_ylabel(metric_label(plot.y))
    percent(axes.yaxis, plot.y)
    axes.margins(y=0.08)


def place(axes: Axes, values: pd.Series) -> None:
    """Put ticks at the values of the abscissa, where these are few, on a logarithmic axis where they are far apart."""
    there = sorted(values.unique())
    if there[0] > 0 and there[-1] / there[0] >= DECADES:
        axes.set_xscale("log", base=2)
    if len(there) <= TICKS:
        axes.set_xticks(there, minor=False)
        axes.set_xticks([], minor=True)
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")


def caption(cells: pd.DataFrame, plot: Plot) -> str:
    """Return what the lines and their bars are."""
    return described(cells, plot)


LINES = Kind(
    title="lines over a field with numbers, such as the SNR",
    numbers=numbers,
    draw=draw,
    caption=caption,
    takes=("x", "y", "hue", "broken"),
    hue="variant",
)
