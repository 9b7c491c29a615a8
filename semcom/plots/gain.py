"""The gain of each method over one of them: paired differences as colours, with their intervals in the cells."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from semcom.config import ConfigError
from semcom.plots.base import Kind, Plot, Styles
from semcom.plots.heatmap import Cell, choose_heatmap_height, draw_colour_bar, draw_table, size_width
from semcom.studies.analysis.comparison import Comparisons, describe_rule
from semcom.studies.analysis.study import Study

MAP = "RdBu"
"""Red for losses, blue for gains, white at zero. Signs stand in the cells, for print in grey."""
WITH_INTERVAL = 0.62
"""Width of a number with its interval in a cell in inches."""
LEAST = 0.1
"""Least gain at the end of the scale of a share. Larger losses are as dark as its end."""
OVER = "local"
"""Default of the method that others are compared with."""


def compute_gain(study: Study, plot: Plot, also: Mapping[str, str] | None = None) -> pd.DataFrame:
    """Compute the paired differences, first minus `over`, a row for each method and place.

    Args:
        study: the drawn part.
        plot: the request.
        also: method -> a further view of it with its own rows, below those of the requested view.

    Returns:
        Columns: variant, the abscissa and panels, mean, low, high (95 % interval), n (seeds), interval (its procedure,
            in words), p_holm (after Holm's correction over all cells), supported (whether the difference is
            significant).

    Raises:
        ConfigError: as `Study.gains`, or a field varies that has no place in the figure.
    """
    study = study.along(plot.fields)  # fields of the figure may have one value only
    found = compute_gains(study, plot, also)
    cells = found.groupby(list(plot.fields), dropna=False)
    hidden = (name for name in study.axes if name not in plot.fields and (cells[name].nunique(dropna=False) > 1).any())
    if name := next(hidden, None):
        raise ConfigError(f"{name}: its values would be shown as one; give one with --at, or --facet {name}")
    return found.drop(columns=[name for name in study.axes if name not in plot.fields])


def compute_gains(study: Study, plot: Plot, also: Mapping[str, str] | None = None) -> pd.DataFrame:
    """Compute `Study.gains` with a column for each axis of the study, and the column names of figures.

    Holm's correction includes those of other views. Arguments are as for `compute_gain`.
    """
    over, asked = str(plot.over), list(study.gains(str(plot.over), view=plot.view, metric=plot.y))
    for method, view in (also or {}).items():
        if method not in study.variants:
            continue
        of_view = study.gains(over, view={method: view}, metric=plot.y)
        at = max((i for i, one in enumerate(asked, 1) if one.first == method), default=0)
        asked[at:at] = [replace(one, first=f"{method} {view}") for one in of_view if one.first == method]
    found = Comparisons.corrected(asked).frame
    found = found.rename(columns={"first": "variant", "difference": "mean", "procedure": "interval"})
    own = ["mean", "low", "high", "n", "interval", "p_holm", "supported"]
    return found.assign(n=found["seeds"].map(len))[["variant", *study.axes, *own]]


def draw_gain(axes: Axes, cells: pd.DataFrame, plot: Plot, styles: Styles) -> None:
    """Draw a row for each method and a column for each value of the abscissa, with significant differences in bold."""
    share, colours = plot.metric.share, MAP if plot.metric.higher else f"{MAP}_r"
    draw_table(axes, cells, plot, lambda cell: _format_gain(cell, share), lambda cell: cell["supported"], colours)


def _format_gain(cell: Cell, share: bool) -> str:
    """Format a difference with its sign, and the larger half of its interval."""
    times, digits = (100, ".1f") if share else (1, ".2g")
    half = max(cell["mean"] - cell["low"], cell["high"] - cell["mean"])
    around = "" if np.isnan(half) else f" ± {times * half:{digits}}"
    return f"{times * cell['mean']:+z{digits}}{around}"


def scale_gain(figure: Figure, cells: pd.DataFrame, plot: Plot) -> None:
    """Give all panels one colour scale, which ends at the largest gain and at a loss of that size, and draw its bar."""
    share, most = plot.metric.share, _find_end(cells, plot)
    over = plot.labels.value("variant", plot.over)
    label = f"{'Gain over' if plot.metric.higher else 'Difference to'} {over}{' (points)' if share else ''}"
    draw_colour_bar(figure, (-most, most), label, share)


def _find_end(cells: pd.DataFrame, plot: Plot) -> float:
    """Find the gain, and the loss, at which the colour scale ends."""
    least = LEAST if plot.metric.share else 0
    return max(float(_measure_gains(cells, plot).max()), least) or float(cells["mean"].abs().max()) or 1.0


def _measure_gains(cells: pd.DataFrame, plot: Plot) -> pd.Series:
    """Measure how much better each mean is, which may be by being smaller."""
    return cells["mean"] if plot.metric.higher else -cells["mean"]


def describe_gain(cells: pd.DataFrame, plot: Plot) -> str:
    """Describe the cells."""
    unit = " in percentage points" if plot.metric.share else ""
    made = "; ".join(dict.fromkeys(cells["interval"]))
    beyond = " Losses beyond the arrow of the scale are as dark as its end." * bool(
        _measure_gains(cells, plot).min() < -_find_end(cells, plot)
    )
    return (
        f"Test {plot.metric.label} of each method minus that of {plot.labels.value('variant', plot.over)}{unit}, runs "
        f"paired by seed; behind ± the larger half of the 95 % interval ({made}). Bold: a difference can be told "
        f"({describe_rule('all cells')}).{beyond}"
    )


GAIN = Kind(
    title="what methods gain over one of them as colours, a row for each method, a column for each value of a field",
    tabled=False,
    numbers=compute_gain,
    draw=draw_gain,
    caption=describe_gain,
    takes=("x", "y", "over", "view"),
    hue="variant",
    height=choose_heatmap_height,
    width=lambda cells, plot: size_width(cells, plot, WITH_INTERVAL),
    columns=3,
    finish=scale_gain,
    rows="hue",
)
