"""The figure around the drawings: panels, one legend for all, and the size of a page's columns."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.container import ErrorbarContainer
from matplotlib.figure import Figure

from semcom.plots.base import Kind, Plot, Styles
from semcom.plots.guessing import GUESSING
from semcom.plots.kinds import KINDS
from semcom.plots.points import split_panels
from semcom.plots.style import CHARACTER, WIDE, WIDTH, choose_line_styles

ENTRY, KEY = 0.145, 0.45
"""Height of a line of the legend, and about the width of a key in it, in inches."""


def draw_panels(cells: pd.DataFrame, plot: Plot, look: Callable[[Sequence[Any]], Styles] | None = None) -> Figure:
    """Draw the figure of a settled request, under `style.ieee`.

    Args:
        cells: the numbers of its kind.
        plot: the request.
        look: function from the hues to their looks (None: those of its kind).
    """
    kind, figure = KINDS.get(str(plot.kind)), Figure()
    parts = split_panels(cells, plot)
    kind = replace(kind, shared=_share_ordinate([part for _, part in parts], plot, kind))
    styles = _choose_styles(cells, plot, kind)
    styles = look(list(styles)) if look else styles
    one, beside = kind.width(cells, plot)
    columns = _choose_columns(kind, len(parts), int((WIDE - beside) / one) if one else len(parts))
    lines = math.ceil(len(parts) / columns)
    width = WIDTH if columns == 1 and beside + one <= WIDTH else WIDE
    # The legend's height is settled before the size, so that it enlarges the figure instead of shrinking the panels.
    legend = _count_columns(styles, plot, width)
    entries = len(styles) + bool(GUESSING in cells and cells[GUESSING].any())
    above = ENTRY * math.ceil(entries / legend) + 0.05 if plot.hue is not None and legend else 0
    title = 0.16 * (plot.facet is not None)
    figure.set_size_inches(width, above + lines * (kind.height(cells, plot) + title))
    # In a grid a column has one width in all rows, which unlike panels below each other could not share.
    shares = [kind.weight(part, plot) for _, part in parts] if lines == 1 else None
    grid = figure.add_gridspec(lines, columns, width_ratios=shares)
    panels: list[Axes] = []
    for i, (value, part) in enumerate(parts):
        axes = figure.add_subplot(grid[i // columns, i % columns], sharey=panels[0] if kind.shared and panels else None)
        kind.draw(axes, part, plot, styles)
        if plot.facet is not None:
            axes.set_title(plot.labels.place(plot.facet, value), pad=3)
        panels.append(axes)
    for i, axes in enumerate(panels):  # labels at the outer axes alone
        if i + columns < len(panels):
            axes.set_xlabel("")
        if i % columns:
            axes.set_ylabel("")
        if i % columns and kind.shared:
            axes.tick_params(labelleft=False)
    kind.finish(figure, cells, plot)
    if above:
        _draw_legend(figure, panels, legend, [plot.labels.place(str(plot.hue), hue) for hue in styles])
    return figure


def _choose_styles(cells: pd.DataFrame, plot: Plot, kind: Kind) -> Styles:
    """Choose the look of each hue, the same in all panels, numbers in ascending order, or one look without a hue."""
    hues = [None] if plot.hue is None or plot.hue not in cells else list(dict.fromkeys(cells[plot.hue]))
    if plot.hue in cells and pd.api.types.is_numeric_dtype(cells[plot.hue]):
        hues.sort()
    return dict(zip(hues, (kind.styles or choose_line_styles)(len(hues)), strict=True))


def _choose_columns(kind: Kind, panels: int, room: int) -> int:
    """Choose how many panels stand beside each other: up to three for many panels with enough room."""
    wanted = kind.columns if panels > 4 or kind.columns < 3 else 2 if panels != 3 else 3
    return min(panels, wanted, max(1, room))


# -- labels ----------------------------------------------------------------------------------------------------------


def _share_ordinate(parts: Sequence[pd.DataFrame], plot: Plot, kind: Kind) -> bool:
    """Check whether the panels have the same ordinate, which panels with different rows have not."""
    rows = getattr(plot, kind.rows) if kind.rows else None
    return kind.shared and (rows is None or len({tuple(dict.fromkeys(part[rows])) for part in parts}) == 1)


def _count_columns(styles: Styles, plot: Plot, width: float) -> int:
    """Count the entries of the legend beside each other, or 0 without a legend."""
    if plot.hue is None or set(styles) == {None}:
        return 0
    longest = max(len(plot.labels.place(plot.hue, hue)) for hue in styles)
    return max(1, min(len(styles), int(width / (KEY + CHARACTER * longest))))


def _draw_legend(figure: Figure, panels: Sequence[Axes], columns: int, order: Sequence[str]) -> None:
    """Put one legend for all panels above them, where it hides no drawing."""
    found: dict[str, Any] = {}
    for axes in panels:
        handles, labels = axes.get_legend_handles_labels()
        # Keys without error bars, which would fill the legend.
        bare = [handle[0] if isinstance(handle, ErrorbarContainer) else handle for handle in handles]
        found |= {label: handle for label, handle in zip(labels, bare, strict=True) if label not in found}
    found = {label: found[label] for label in order if label in found} | found
    figure.legend(
        list(found.values()), list(found), loc="outside upper center", ncols=columns, frameon=False,
        borderpad=0.1, columnspacing=1.0, handlelength=2.6, handletextpad=0.5, labelspacing=0.25,
    )  # fmt: skip
