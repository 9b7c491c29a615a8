"""Bars over clients or over classes, a panel for each method."""

from __future__ import annotations

from dataclasses import replace

import pandas as pd
from matplotlib.axes import Axes

from semcom.plots.base import Kind, Plot, Styles
from semcom.plots.points import average_table, describe_points, measure_ends, select_view
from semcom.plots.style import choose_bar_styles, percent
from semcom.studies.analysis.study import Study
from semcom.studies.names import metric_label

SHADE = "0.85"
"""Grey behind the clients that have few images."""
NAMED = 12
"""Clients or classes up to which each has its tick."""
SCARCE = "scarce"
"""Column that marks clients with few images. CSV files leave it out."""
SORTED = "sorted"
"""Column that says whether clients are sorted in each seed. CSV files leave it out."""
FEW = 4
"""Panels up to which each is high."""


def compute_clients(study: Study, plot: Plot) -> pd.DataFrame:
    """Compute the accuracy of each client; with several seeds that of the k-th least accurate one, averaged over seeds.

    Seeds divide the data differently, so that client 3 of one seed is unrelated to client 3 of another.

    Raises:
        ConfigError: as `Study.mean`.
    """
    frame = select_view(study, study.clients, plot.view)
    lines = [name for name in plot.fields if name != plot.x]
    several = bool((frame.groupby(lines, dropna=False)["seed"].nunique() > 1).any())
    if several:
        frame = frame.assign(client=frame.groupby("hash")[study.metric.name].rank(method="first").astype(int) - 1)
    cells = average_table(study, frame, plot).assign(**{SORTED: several})
    scarce = {} if several else _find_scarce(study)
    return cells.assign(**{SCARCE: cells["client"].map(scarce.get)}) if scarce else cells


def _find_scarce(study: Study) -> dict[int, float]:
    """Map the clients that keep only a part of their images to that part, or return {} if runs differ in it."""
    told = {
        (str(run.field("partition.scarce") or ""), run.field("partition.scarce_fraction"))
        for run in study.stored
        if run.status == "done"
    }
    (scarce, part), *others = told
    clients = [int(client) for client in scarce.split(",") if client]
    everyone = any(len(clients) == run.field("clients") for run in study.stored)
    return {} if others or everyone else dict.fromkeys(clients, float(part))


def compute_classes(study: Study, plot: Plot) -> pd.DataFrame:
    """Compute the accuracy of each class over all clients, mean over seeds. Errors: `Study.mean`."""
    return average_table(study, study.classes, plot)


def draw_class_bars(axes: Axes, cells: pd.DataFrame, plot: Plot, styles: Styles) -> None:
    """Draw a bar for each client or class, and hue; with a single hue a dashed line marks their mean."""
    x, count = str(plot.x), len(styles)
    places = sorted(cells[x].unique())
    for i, (hue, style) in enumerate(styles.items()):
        line = cells if plot.hue is None else cells[cells[plot.hue] == hue]
        at, width = line[x].map(places.index) + 0.8 * ((i + 0.5) / count - 0.5), 0.8 / count
        label = None if plot.hue is None else plot.labels.place(plot.hue, hue)
        axes.bar(at, line["mean"], width, label=label, zorder=2, **style)
        if bars := measure_ends(line):
            axes.errorbar(at, line["mean"], bars, fmt="none", ecolor="black", elinewidth=0.5, capsize=1, zorder=3)
    for client in cells.loc[cells[SCARCE].notna(), x].unique() if SCARCE in cells else ():
        at = places.index(client)
        axes.axvspan(at - 0.5, at + 0.5, color=SHADE, linewidth=0, zorder=0)
    if count == 1:
        axes.axhline(cells["mean"].mean(), color="black", linestyle="--", linewidth=0.7, zorder=4)
    step = 1 if len(places) <= NAMED else 5 * (1 + len(places) // 50)
    axes.set_xticks(range(0, len(places), step), [plot.labels.value(x, value) for value in places[::step]])
    axes.set_xlim(-0.7, len(places) - 0.3)
    axes.grid(axis="x", visible=False)
    order = "least accurate" if plot.metric.higher else "smallest"
    axes.set_xlabel("Class" if x == "class" else f"Client, {order} first" if _are_sorted(cells) else "Client")
    axes.set_ylabel(metric_label(plot.metric))
    percent(axes.yaxis, plot.metric)


def choose_class_height(cells: pd.DataFrame, plot: Plot) -> float:
    """Choose the height of a panel in inches, less for many panels."""
    return 1.5 if plot.facet is None or cells[plot.facet].nunique() <= FEW else 0.95


def _are_sorted(cells: pd.DataFrame) -> bool:
    return SORTED in cells and bool(cells[SORTED].any())


def describe_clients(cells: pd.DataFrame, plot: Plot) -> str:
    """Describe the bars, and the order of the clients."""
    order = f" Clients are sorted by their {plot.metric.label} in each seed, since seeds divide the data in other ways."
    return _caption(cells, plot, "each client") + (order if _are_sorted(cells) else "") + _describe_scarce(cells)


def _describe_scarce(cells: pd.DataFrame) -> str:
    if SCARCE not in cells:
        return ""
    few = cells.dropna(subset=[SCARCE])
    clients = ", ".join(map(str, sorted(few["client"].unique())))
    return f" Shaded: clients that keep {100 * few[SCARCE].iloc[0]:g} % of their training images ({clients})."


def describe_classes(cells: pd.DataFrame, plot: Plot) -> str:
    """Describe the bars."""
    return _caption(cells, plot, "each class over all clients")


def _caption(cells: pd.DataFrame, plot: Plot, whose: str) -> str:
    text = describe_points(cells, replace(plot, x=None), "error bars")
    mean = "" if plot.hue else " Dashed: the mean of the bars."
    name = plot.metric.label
    return text.replace(name, f"{name} of {whose}", 1) + mean


CLIENTS = Kind(
    title="a bar for each client, a panel for each method",
    numbers=compute_clients,
    draw=draw_class_bars,
    caption=describe_clients,
    takes=("x", "hue", "view"),
    x="client",
    facet="variant",
    height=choose_class_height,
    styles=choose_bar_styles,
    columns=3,
)
CLASSES = replace(
    CLIENTS,
    title="a bar for each class, a panel for each method",
    numbers=compute_classes,
    caption=describe_classes,
    x="class",
)
