"""Accuracy against its cost, with the methods that are best in both."""

from __future__ import annotations

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import EngFormatter, MaxNLocator

from semcom.config import ConfigError
from semcom.plots.base import Kind, Plot, Styles
from semcom.plots.points import check_costs, describe_points, name_abscissa
from semcom.plots.style import percent
from semcom.runs.folder.arrays import is_leak
from semcom.studies.analysis.study import Study
from semcom.studies.names import capitalise, metric_label

DECADE = 10
"""Ratio of the largest to the smallest cost from which on the abscissa is logarithmic."""


def compute_pareto(study: Study, plot: Plot) -> pd.DataFrame:
    """Compute `Study.pareto`, with the accuracy as `mean` and the cost under its own name.

    Raises:
        ConfigError: as `Study.pareto`, or a field varies that makes no panels.
    """
    others = [name for name in study.axes if name != plot.facet and len({run.field(name) for run in study.tests}) > 1]
    if others:
        raise ConfigError(f"{others[0]}: its values would be shown as one; give one with --at, or --facet {others[0]}")
    found = study.pareto(str(plot.x), view=plot.view).rename(columns={study.metric.name: "mean", "cost": str(plot.x)})
    return check_costs(study, found, str(plot.x), "variant")


def draw_pareto(axes: Axes, cells: pd.DataFrame, plot: Plot, styles: Styles) -> None:
    """Draw a mark for each method, and circles and a step through the methods that are not dominated."""
    x = str(plot.x)
    front = cells[cells["efficient"]].sort_values(x)
    axes.step(front[x], front["mean"], where="post", color="0.6", linewidth=0.8, zorder=1)
    for row in cells.to_dict("records"):
        style = {**styles[row["variant"]], "linestyle": "none"}
        bars = None if pd.isna(row["low"]) else [[row["mean"] - row["low"]], [row["high"] - row["mean"]]]
        label = plot.labels.value("variant", row["variant"])
        axes.errorbar([row[x]], [row["mean"]], yerr=bars, label=label, elinewidth=0.6, **style)
    axes.scatter(front[x], front["mean"], s=70, facecolors="none", edgecolors="black", linewidths=0.8, zorder=4)
    if cells[x].min() > 0 and cells[x].max() / cells[x].min() >= DECADE:
        axes.set_xscale("log")
    else:
        axes.xaxis.set_major_locator(MaxNLocator(5))
    axes.xaxis.set_major_formatter(EngFormatter(sep="\N{THIN SPACE}"))  # behind the scale, which has its own
    axes.margins(0.08)
    axes.set_xlabel(capitalise(name_abscissa(cells, x)))
    axes.set_ylabel(metric_label(plot.metric))
    percent(axes.yaxis, plot.metric)


def describe_pareto(cells: pd.DataFrame, plot: Plot) -> str:
    """Describe marks and step."""
    leaks = is_leak(plot.x)
    beaten = "where no more is given away" if leaks else "at no higher cost"
    of_run = "" if leaks else " The cost is that of the whole run, over all clients."
    circled = f"Circled: no other method is at least as accurate {beaten} (by the means); a step joins them."
    return f"{describe_points(cells, plot)}{of_run} {circled}"


PARETO = Kind(
    title="accuracy against a cost: uses, bits, floats, energy_j, airtime_s, time_s, samples, rounds, or leak.psnr",
    numbers=compute_pareto,
    draw=draw_pareto,
    caption=describe_pareto,
    takes=("x", "view"),
    x="uses",
    hue="variant",
)
