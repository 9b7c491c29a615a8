"""Learning curves: a line over the rounds, or over their cost, for each method, with a band over seeds."""

from __future__ import annotations

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import EngFormatter, MaxNLocator

from semcom.config import ConfigError
from semcom.plots.base import Kind, Plot, Styles
from semcom.plots.guessing import cross_guessing, describe_guessing
from semcom.plots.points import check_costs, describe_points, limit_ordinate, name_abscissa, select_view
from semcom.plots.style import MANY, choose_line_depth, percent
from semcom.studies.analysis.means import compute_means, cut_intervals
from semcom.studies.analysis.study import Study
from semcom.studies.names import capitalise, metric_label

DECADE = 10
"""Ratio of the most to the least that a curve costs from which on the abscissa is logarithmic."""
MARKS = 6
"""Marks along a curve, about."""


def compute_curves(study: Study, plot: Plot) -> pd.DataFrame:
    """Compute the means over seeds after each round in which all seeds of a curve were evaluated.

    Without a view, the curve of a run is that of the first view in its rounds: the headline, unless a last stage has
    another.

    Raises:
        ConfigError: as `Study.mean`, or no such number in the rounds.
    """
    rounds = study.smooth(plot.window, metric=plot.y)
    first = rounds.groupby("hash")["view"].transform("first")
    chosen = rounds[rounds["view"] == first] if plot.view is None else select_view(study, rounds, plot.view)
    if chosen[plot.y].isna().all():
        raise ConfigError(f"y: no round has {plot.y!r}")
    lines = [name for name in plot.fields if name != plot.x]
    cells = cut_intervals(compute_means(chosen, [*lines, "round"], plot.y), plot.metric)
    if plot.x != "round":
        cost = study.spent(chosen, str(plot.x)).groupby([chosen[name] for name in (*lines, "round")], dropna=False)
        cells = cells.merge(cost.mean().rename(plot.x).reset_index(), on=[*lines, "round"])
        cells = check_costs(study, cells, str(plot.x), lines[0])
    whole = cells.groupby(lines, dropna=False)["n"].transform("max")
    return cells[cells["n"] == whole].reset_index(drop=True)


def draw_curves(axes: Axes, cells: pd.DataFrame, plot: Plot, styles: Styles) -> None:
    """Draw a curve with its band for each hue, with the marks of different curves at different rounds."""
    lines = list(cells.groupby(plot.hue, sort=False))
    for i, (hue, line) in enumerate(lines):
        style, name = styles[hue], plot.labels.place(str(plot.hue), hue)
        if _is_free(line, plot):
            level = line["mean"].iloc[-1]
            axes.axhline(level, label=name, **{**style, "marker": "", "linewidth": 0.7})
            continue
        step = max(1, len(line) // MARKS)
        first = min(i * step // len(lines), len(line) - 1)
        look = {**style, "linewidth": 1.0, "zorder": choose_line_depth(style)}
        axes.plot(line[plot.x], line["mean"], label=name, markevery=(first, step), **look)
        cross_guessing(axes, line[-1:], line[plot.x][-1:], line["mean"][-1:])
        if len(lines) <= MANY:
            axes.fill_between(line[plot.x], line["low"], line["high"], color=style["color"], alpha=0.18, linewidth=0)
    axes.set_xlabel(capitalise(name_abscissa(cells, str(plot.x))))
    if plot.x == "round":
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    else:
        costs = [line[plot.x] for _, line in lines if not _is_free(line, plot)]
        ends = [cost.max() for cost in costs]
        # On a linear axis a method with a tenth of another's costs would be squeezed to the edge.
        if costs and min(cost.min() for cost in costs) > 0 and max(ends) / min(ends) >= DECADE:
            axes.set_xscale("log")
        else:
            axes.xaxis.set_major_locator(MaxNLocator(5))
        axes.xaxis.set_major_formatter(EngFormatter(sep="\N{THIN SPACE}"))  # behind the scale, which has its own
    axes.set_ylabel(metric_label(plot.metric))
    percent(axes.yaxis, plot.metric)


def _is_free(line: pd.DataFrame, plot: Plot) -> bool:
    """Check whether a curve costs nothing in all rounds, so that it has no place along a cost."""
    return plot.x != "round" and not line[plot.x].any()


def describe_curves(cells: pd.DataFrame, plot: Plot) -> str:
    """Describe the curves and bands, and their smoothing."""
    smooth = f" Curves are averaged over the last {plot.window} evaluations." if plot.window > 1 else ""
    many = cells[plot.hue].nunique() > MANY
    left_out = " Bands of so many curves would hide each other." if many and cells["low"].notna().any() else ""
    free = any(_is_free(line, plot) for _, line in cells.groupby(plot.hue, sort=False))
    level = " What costs nothing is a thin line at the level of its last round." if free else ""
    return describe_points(cells, plot, "in the CSV file" if many else "bands") + smooth + left_out + level


CURVES = Kind(
    title="learning curves over rounds, or over a cost such as time_s; smoothed over --window evaluations",
    tabled=False,
    numbers=compute_curves,
    draw=draw_curves,
    caption=describe_curves,
    takes=("x", "y", "hue", "window", "view"),
    crossed=True,
    note=describe_guessing,
    x="round",
    hue="variant",
    finish=limit_ordinate,
)
