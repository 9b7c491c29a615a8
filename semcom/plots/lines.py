"""Lines over an axis of numbers, one for each method."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import to_rgba

from semcom.config import ConfigError
from semcom.plots.base import Kind, Plot, Styles
from semcom.plots.guessing import GUESSING, cross_guessing, describe_guessing
from semcom.plots.points import average_over_seeds, describe_points, limit_ordinate, measure_ends, split_panels
from semcom.plots.style import MANY, choose_line_depth, choose_line_width, percent
from semcom.studies.analysis.study import Study
from semcom.studies.names import field_label, metric_label

DECADES = 50
"""Ratio of the largest to the smallest value from which on the abscissa is logarithmic."""
LONGEST = 6
"""Characters up to which a tick has all digits of its value."""
TICKS = 10
"""Values up to which each has its tick."""
CLOSE = 0.012
"""Share of the panel's range of means within which points hide each other."""
TURNS = 4
"""Values of the abscissa from which on marks that would hide each other take turns."""
CAP, WIDER = 1.2, 0.35
"""Half the width of the first line's caps in points, and how much wider those of each further line are."""
FAINT = 0.8
"""Opacity of intervals, so that they show through each other."""


def compute_lines(study: Study, plot: Plot) -> pd.DataFrame:
    """Compute the means over seeds, with finite numbers on the abscissa.

    Raises:
        ConfigError: as `Study.mean`, or a value of the abscissa is no number.
    """
    cells = average_over_seeds(study, plot)
    places = pd.to_numeric(cells[plot.x], errors="coerce")
    wrong = cells.loc[~places.map(math.isfinite), plot.x]
    if len(wrong):
        raise ConfigError(f"x: {plot.x} {wrong.iloc[0]!r} is no finite number; take --kind dots, bars or heatmap")
    cells = cells.assign(**{str(plot.x): places.astype(float)})
    lines = cells.groupby(list(plot.fields[:-1]), sort=False, dropna=False).ngroup()
    return cells.assign(line=lines).sort_values(["line", str(plot.x)], kind="stable").drop(columns="line")


def draw_lines(axes: Axes, cells: pd.DataFrame, plot: Plot, styles: Styles) -> None:
    """Draw a line with error bars for each hue, and a thin line at the level of a single point."""
    x = str(plot.x)
    several = cells.groupby(plot.hue)[x].nunique().max() > 1
    turns = _take_turns(cells, plot, list(styles))
    for i, (hue, style) in enumerate(styles.items()):
        line = cells[cells[plot.hue] == hue]
        if several and len(line) == 1:
            axes.axhline(line["mean"].iloc[0], color=style["color"], linewidth=0.5)
        bars = measure_ends(line) if len(styles) <= MANY else None
        axes.errorbar(
            line[x], line["mean"], yerr=bars, label=plot.labels.place(str(plot.hue), hue), markevery=turns[hue],
            ecolor=to_rgba(style["color"], FAINT), elinewidth=0.7, capsize=CAP + WIDER * i,
            zorder=choose_line_depth(style), linewidth=choose_line_width(style), **style,
        )  # fmt: skip
    cross_guessing(axes, cells, cells[x], cells["mean"])
    place_ticks(axes, cells[x])
    axes.set_xlabel(field_label(x))
    axes.set_ylabel(metric_label(plot.metric))
    percent(axes.yaxis, plot.metric)
    axes.margins(y=0.08)


def _take_turns(cells: pd.DataFrame, plot: Plot, hues: Sequence[Any]) -> dict[Any, list[int]]:
    """Choose the places along each line that show its mark: of marks that would hide each other only one.

    A cross comes first, then the line that has shown the fewest marks so far. All marks are shown for few values of the
    abscissa, or if a line would lose all of its marks.
    """
    numbers = cells[[str(plot.x), "mean"]].assign(crossed=cells.get(GUESSING, False))
    lines = {hue: numbers[cells[plot.hue] == hue].to_numpy(float) for hue in hues}
    whole = {hue: list(range(len(line))) for hue, line in lines.items()}
    if cells[plot.x].nunique() < TURNS:
        return whole
    close = CLOSE * float(np.ptp(cells["mean"]))
    kept: dict[Any, list[int]] = {hue: [] for hue in hues}
    for x in sorted(cells[plot.x].unique()):
        there = [(*line[i, 1:], hue, i) for hue, line in lines.items() for i in np.flatnonzero(line[:, 0] == x)]
        there.sort(key=lambda point: point[0])
        while there:
            group = [point for point in there if point[0] <= there[0][0] + close]
            *_, hue, i = min(group, key=lambda point: (-point[1], len(kept[point[2]]), hues.index(point[2])))
            kept[hue].append(int(i))
            there = there[len(group) :]
    return kept if all(kept[hue] for hue in hues if len(lines[hue])) else whole


def place_ticks(axes: Axes, values: pd.Series) -> None:
    """Put ticks at few values of the abscissa, and make the axis logarithmic for values far apart."""
    there = sorted(values.unique())
    if there[0] > 0 and there[-1] / there[0] >= DECADES:
        axes.set_xscale("log", base=2)
    if len(there) <= TICKS:
        axes.set_xticks(there, minor=False)
        axes.set_xticks([], minor=True)
        axes.xaxis.set_major_formatter(lambda value, _: _format_tick(value))


def _format_tick(value: float) -> str:
    return f"{value:g}" if len(f"{value:g}") <= LONGEST else f"{value:.3g}"


def describe_lines(cells: pd.DataFrame, plot: Plot) -> str:
    """Describe the lines and their bars."""
    if not cells["low"].notna().any():
        return describe_points(cells, plot)
    if cells[plot.hue].nunique() > MANY:
        return f"{describe_points(cells, plot, 'in the table')} Bars of so many lines would hide each other."
    return describe_points(cells, plot)


def describe_marks(cells: pd.DataFrame, plot: Plot) -> str:
    """Describe marks that take turns, and crosses, if any."""
    parts = [part for _, part in split_panels(cells, plot)]
    shown = [_take_turns(part, plot, list(dict.fromkeys(part[plot.hue]))) for part in parts]
    hidden = any(sum(map(len, turns.values())) < len(part) for turns, part in zip(shown, parts, strict=True))
    return " Marks that would hide each other take turns." * hidden + describe_guessing(cells, plot)


def choose_line_height(cells: pd.DataFrame, plot: Plot) -> float:
    """Choose the height of a panel in inches, more for many lines."""
    return 1.95 if cells[plot.hue].nunique() <= MANY else 2.6


LINES = Kind(
    title="lines over a field with numbers, such as the SNR",
    numbers=compute_lines,
    draw=draw_lines,
    caption=describe_lines,
    takes=("x", "y", "hue", "view"),
    hue="variant",
    height=choose_line_height,
    weight=lambda cells, plot: 1.0 + cells[plot.x].nunique(),
    crossed=True,
    note=describe_marks,
    finish=limit_ordinate,
)
