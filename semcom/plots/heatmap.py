"""Tables as pictures: the means of methods along a field, and confusion matrices."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.image import AxesImage

from semcom.plots.base import Kind, Plot, Styles
from semcom.plots.points import average_over_seeds, check_panels, describe_points, select_view
from semcom.plots.style import CHARACTER
from semcom.studies.analysis.study import Study
from semcom.studies.names import field_label, metric_label

Cell = Mapping[str, Any]
MAP = "viridis"
"""Its lightness rises evenly, so that it reads the same in grey."""
CELL = 0.17
"""Height of a row in inches."""
BAR, BESIDE = 0.09, 0.6
"""Widths of the colour scale, and of it with its label, in inches."""
NUMBER = 0.26
"""Width of a number in a cell in inches."""
WRITTEN = 12
"""Columns up to which numbers stand in the cells."""


def draw_heatmap(axes: Axes, cells: pd.DataFrame, plot: Plot, styles: Styles) -> None:
    """Draw a row for each hue and a column for each value of the abscissa, with the best in bold."""
    share = plot.metric.share
    draw_table(
        axes, cells, plot, lambda cell: _format_share(cell["mean"], share), lambda cell: cell.get("mark") == "best"
    )


def draw_table(
    axes: Axes,
    cells: pd.DataFrame,
    plot: Plot,
    text: Callable[[Cell], str],
    bold: Callable[[Cell], bool],
    colours: str = MAP,
) -> None:
    """Draw a row for each hue and a column for each value of the abscissa, with their labels.

    Args:
        axes: of the panel.
        cells: its numbers, coloured by `mean`.
        plot: the request.
        text: function from a cell, by the names of its columns, to its text.
        bold: function from a cell to whether the text is bold.
        colours: name of the colour map.
    """
    rows, columns = (list(dict.fromkeys(cells[name])) for name in (plot.hue, plot.x))
    columns.sort(key=lambda value: (True, 0) if isinstance(value, str) else (False, value))  # texts as they come, last
    place = {(row[plot.hue], row[plot.x]): row for row in cells.to_dict("records")}
    found = [[place.get((r, c), {}) for c in columns] for r in rows]
    values = np.array([[cell.get("mean", np.nan) for cell in row] for row in found])
    draw_matrix(axes, values, [[text(cell) if cell else "" for cell in row] for row in found], colours)
    for each in axes.texts:
        column, row = (round(value) for value in each.get_position())
        each.set_fontweight("bold" if bold(found[row][column]) else "normal")
    axes.set_xticks(range(len(columns)), [_label_column(plot, value) for value in columns])
    axes.set_yticks(range(len(rows)), [plot.labels.value(str(plot.hue), row) for row in rows])
    axes.set_xlabel(field_label(str(plot.x)))


def draw_matrix(axes: Axes, values: np.ndarray, texts: list[list[str]], colours: str = MAP) -> None:
    """Draw a table of numbers as colours, with texts in the cells if they fit."""
    axes.imshow(np.ma.masked_invalid(values), cmap=colours, aspect="auto")
    axes.grid(False)
    axes.tick_params(length=0)
    if values.shape[1] > WRITTEN:
        return
    for (row, column), value in np.ndenumerate(values):
        if np.isfinite(value):
            axes.text(column, row, texts[row][column], ha="center", va="center", fontsize=6.5)


def _label_column(plot: Plot, value: Any) -> str:
    """Label a column, without the unit, which stands below all of them."""
    return plot.labels.value(str(plot.x), value).removesuffix(" dB")


def _format_share(value: float, share: bool) -> str:
    return f"{100 * value:.1f}" if share else f"{value:.3g}"


def scale_colours(figure: Figure, cells: pd.DataFrame, plot: Plot) -> None:
    """Give all panels one colour scale, and draw its bar beside them."""
    ends = float(cells["mean"].min()), float(cells["mean"].max())
    confusion = plot.kind == "confusion"
    label = "Share of the true class (%)" if confusion else metric_label(plot.metric)
    draw_colour_bar(figure, ends, label, plot.metric.share or confusion)


def draw_colour_bar(figure: Figure, ends: tuple[float, float], label: str, percent: bool) -> None:
    """Give all panels one colour scale, draw its bar beside them, and choose inks that stand out.

    The bar has an arrow at an end with values beyond it.

    Args:
        figure: with a `draw_matrix` in each panel.
        ends: the values at both ends of the scale.
        label: of the scale.
        percent: whether its shares are written in percent.
    """
    axes = figure.axes
    images = [each.images[0] for each in axes]
    for image in images:
        image.set_clim(*ends)  # one scale for all panels
    aspect = 0.8 * figure.get_figheight() / BAR
    bar = figure.colorbar(
        images[0], ax=axes, label=label, pad=0.02, aspect=aspect, extend=_find_clipped_ends(images, ends)
    )
    if percent:
        bar.ax.yaxis.set_major_formatter(lambda value, _: f"{100 * value:.4g}")
    for each in axes:
        _choose_ink(each)


def _find_clipped_ends(images: Sequence[AxesImage], ends: tuple[float, float]) -> str:
    """Find the ends of a colour scale with values beyond them, in matplotlib's words."""
    values = np.concatenate([np.ma.masked_invalid(np.ma.asarray(image.get_array())).compressed() for image in images])
    below, above = bool((values < ends[0]).any()), bool((values > ends[1]).any())
    return {(False, False): "neither", (True, False): "min", (False, True): "max", (True, True): "both"}[below, above]


def _choose_ink(axes: Axes) -> None:
    image = axes.images[0]
    values = np.ma.filled(image.get_array().astype(float), np.nan)  # type: ignore[union-attr]
    for text in axes.texts:
        column, row = (round(value) for value in text.get_position())
        # The weights are those of the eye's brightness (ITU-R BT.601).
        red, green, blue, _ = image.cmap(image.norm(values[row, column]))
        text.set_color("white" if 0.299 * red + 0.587 * green + 0.114 * blue < 0.55 else "black")


def choose_heatmap_height(cells: pd.DataFrame, plot: Plot) -> float:
    """Compute the height of a panel in inches from its rows."""
    return 0.45 + CELL * max(4, cells[plot.hue].nunique())


def size_width(cells: pd.DataFrame, plot: Plot, text: float = NUMBER) -> tuple[float, float]:
    """Compute the widths in inches of the numbers (`text` each) of a panel, and of the rows' labels with the scale.

    Too many numbers to write take no width.
    """
    rows = [plot.labels.value(str(plot.hue), value) for value in cells[plot.hue].unique()]
    columns = [_label_column(plot, value) for value in cells[plot.x].unique()]
    each = max(text, CHARACTER * max(map(len, columns))) if len(columns) <= WRITTEN else 0.0
    return len(columns) * each, CHARACTER * max(map(len, rows)) + BESIDE


def describe_heatmap(cells: pd.DataFrame, plot: Plot) -> str:
    """Describe the cells."""
    best = " Bold: best, where the difference is supported." if "best" in set(cells.get("mark", ())) else ""
    return describe_points(cells, plot, "in the CSV file") + best


# -- confusion -------------------------------------------------------------------------------------------------------


def compute_confusion(study: Study, plot: Plot) -> pd.DataFrame:
    """Compute the share of each true class that is taken for each class, over all runs of a panel.

    Returns:
        Columns: the panels' field, true, predicted, count (test images of all runs), mean (share of the true class).

    Raises:
        ConfigError: no run kept its matrices, or no such view.
    """
    frame = select_view(study, study.confusion, plot.view)
    check_panels(frame, plot)
    by = [plot.facet, "true"]
    counts = frame.groupby([*by, "predicted"], sort=False, dropna=False)["count"].sum().reset_index()
    whole = counts.groupby(by, dropna=False)["count"].transform("sum")
    return counts.assign(mean=counts["count"] / whole)


def draw_confusion(axes: Axes, cells: pd.DataFrame, plot: Plot, styles: Styles) -> None:
    """Draw a confusion matrix, a row for each true class."""
    values = cells.pivot(index="true", columns="predicted", values="mean").to_numpy()
    draw_matrix(axes, values, [[f"{100 * value:.0f}" for value in row] for row in values])
    classes = range(len(values))
    axes.set_xticks(classes, map(str, classes))
    axes.set_yticks(classes, map(str, classes))
    axes.set_xlabel("Predicted class")
    axes.set_ylabel("True class")


def size_confusion(cells: pd.DataFrame, plot: Plot) -> float:
    """Compute the height of a square panel in inches."""
    return 0.45 + max(1.6, 0.17 * cells["true"].nunique())


def describe_confusion(cells: pd.DataFrame, plot: Plot) -> str:
    """Describe the cells."""
    return "Test images of each true class (rows) by the class that they are taken for, of all clients and seeds, in %."


HEATMAP = Kind(
    title="means as colours, a row for each method, a column for each value of a field",
    numbers=average_over_seeds,
    draw=draw_heatmap,
    caption=describe_heatmap,
    takes=("x", "y", "hue", "view"),
    hue="variant",
    height=choose_heatmap_height,
    width=size_width,
    columns=3,
    finish=scale_colours,
    rows="hue",
)
CONFUSION = Kind(
    title="confusion matrices, a panel for each method (runs with --keep confusion)",
    tabled=False,
    numbers=compute_confusion,
    draw=draw_confusion,
    caption=describe_confusion,
    takes=("view",),
    facet="variant",
    height=size_confusion,
    columns=3,
    finish=scale_colours,
    of_y=False,
)
