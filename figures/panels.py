"""The figure around the drawings: panels, a broken ordinate, one legend for all, and the size of a page's columns.

The rule of a broken ordinate (`gap`): the range of a line is all that it and its intervals cover. Where ranges overlap
or touch they are one. If the widest gap between what is left is more than a third of the whole (`WIDE_GAP`), the gap is
left out: the lines above and below it get a part of the ordinate each, with a scale of its own. The parts are as high
as they have lines, but none is less than a third of the panel.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiments.labels import place_label
from figures.base import Kind, Plot, Styles
from figures.kinds import KINDS
from figures.style import WIDE, WIDTH, line_styles

WIDE_GAP = 1 / 3
"""Share of the whole range from which on a gap between lines is left out."""
LEAST = 1 / 3
"""Share of a panel's height that a part of a broken ordinate has at least."""
MARGIN = 0.08
"""Room above and below the lines, as a share of their range."""
ENTRY, CHARACTER = 0.145, 0.058
"""Height of a line of the legend, and about the width of a character in it, in inches."""
Span = tuple[float, float]


def drawn(cells: pd.DataFrame, plot: Plot) -> Figure:
    """Return the figure of a settled request; it is drawn under `style.ieee`.

    Args:
        cells: the numbers of its kind.
        plot: the request.
    """
    kind, figure = KINDS[str(plot.kind)], Figure()
    parts = list(cells.groupby(plot.facet, sort=False)) if plot.facet else [(None, cells)]
    styles = _styles(cells, plot, kind)
    spans = gap(cells, plot) if "broken" in kind.takes else []
    columns = _columns(kind, len(parts))
    lines = math.ceil(len(parts) / columns)
    legend = _legend_columns(styles, plot, WIDTH if columns == 1 else WIDE)
    above = ENTRY * math.ceil(len(styles) / legend) + 0.05 if plot.hue is not None and legend else 0
    title = 0.16 * (plot.facet is not None)
    each = kind.height(cells, plot) * (1.25 if spans and len(styles) > 3 else 1)
    figure.set_size_inches(WIDTH if columns == 1 else WIDE, above + lines * (each + title))
    grid = figure.add_gridspec(lines, columns)
    panels = [
        _panel(figure, grid[i // columns, i % columns], spans, part, plot, kind, styles)
        for i, (_, part) in enumerate(parts)
    ]
    for axes, (value, _) in zip(panels, parts, strict=True):
        if plot.facet is not None:
            axes[0].set_title(place_label(plot.facet, value), pad=3)
    _trim(figure, panels, columns, kind, bool(spans))
    kind.finish(figure, cells, plot)
    if above:
        _legend(figure, panels, legend)
    return figure


def _styles(cells: pd.DataFrame, plot: Plot, kind: Kind) -> Styles:
    """Return the look of each hue, the same in all panels; of none there is one."""
    hues = [None] if plot.hue is None or plot.hue not in cells else list(dict.fromkeys(cells[plot.hue]))
    return dict(zip(hues, (kind.styles or line_styles)(len(hues)), strict=True))


def _columns(kind: Kind, panels: int) -> int:
    """Return how many panels stand beside each other: one alone in a column, and three where there are many."""
    return min(panels, kind.columns if panels > 4 or kind.columns < 3 else 2 if panels != 3 else 3)


# -- the ordinate ----------------------------------------------------------------------------------------------------


def gap(cells: pd.DataFrame, plot: Plot) -> list[Span]:
    """Return the two spans of a broken ordinate, the lower one first; nothing where it stays whole.

    The rule stands above. With `broken` "yes" the widest gap is left out however narrow it is, with "no" none.
    """
    ranges = _merged(_ranges(cells, plot))
    if plot.broken == "no" or len(ranges) < 2:
        return []
    widths = [upper[0] - lower[1] for lower, upper in pairwise(ranges)]
    widest = int(np.argmax(widths))
    bottom, top = ranges[0][0], ranges[-1][1]
    if plot.broken == "auto" and widths[widest] <= WIDE_GAP * (top - bottom):
        return []
    return [(bottom, ranges[widest][1]), (ranges[widest + 1][0], top)]


def _ranges(cells: pd.DataFrame, plot: Plot) -> list[Span]:
    """Return what each line covers with its intervals, in all panels."""
    ends = cells[["mean", "low", "high"]].agg(["min", "max"], axis=1)
    by = cells[plot.hue] if plot.hue else pd.Series(0, cells.index)
    found = ends.groupby(by, sort=False).agg({"min": "min", "max": "max"})
    return list(found.itertuples(index=False, name=None))


def _merged(ranges: Sequence[Span]) -> list[Span]:
    """Return ranges in ascending order, those that overlap or touch as one."""
    found: list[Span] = []
    for low, high in sorted(ranges):
        if found and low <= found[-1][1]:
            found[-1] = (found[-1][0], max(high, found[-1][1]))
        else:
            found.append((low, high))
    return found


def _heights(cells: pd.DataFrame, plot: Plot, spans: Sequence[Span]) -> list[float]:
    """Return the shares of the parts of an ordinate, the upper one first: as they have lines, none below `LEAST`."""
    upper = np.mean([low >= spans[1][0] for low, _ in _ranges(cells, plot)])
    share = float(np.clip(upper, LEAST, 1 - LEAST))
    return [share, 1 - share]


def _panel(
    figure: Figure, place: Any, spans: Sequence[Span], cells: pd.DataFrame, plot: Plot, kind: Kind, styles: Styles
) -> list[Axes]:
    """Return the axes of a panel, the upper one first: one, or the two parts of a broken ordinate."""
    if not spans:
        share = figure.axes[0] if kind.shared and figure.axes else None
        axes = figure.add_subplot(place, sharey=share)
        kind.draw(axes, cells, plot, styles)
        return [axes]
    inner = place.subgridspec(2, 1, height_ratios=_heights(cells, plot, spans), hspace=0.06)
    parts = [figure.add_subplot(inner[0])]
    parts.append(figure.add_subplot(inner[1], sharex=parts[0]))
    for axes, (low, high) in zip(parts, reversed(spans), strict=True):
        kind.draw(axes, cells, plot, styles)
        room = MARGIN * (high - low) or 0.01 * (spans[1][1] - spans[0][0])
        axes.set_ylim(low - room, high + room)
    _break(*parts)
    return parts


def _break(upper: Axes, lower: Axes) -> None:
    """Show by slanted strokes that the ordinate is broken between two axes."""
    upper.spines["bottom"].set_visible(False)
    lower.spines["top"].set_visible(False)
    upper.tick_params(axis="x", bottom=False, labelbottom=False)
    upper.set_xlabel("")
    stroke: Any = {"marker": [(-1, -0.6), (1, 0.6)], "markersize": 5, "linestyle": "none", "color": "black"}
    for axes, end in ((upper, 0), (lower, 1)):
        axes.plot([0, 1], [end, end], transform=axes.transAxes, clip_on=False, markeredgewidth=0.7, **stroke)


# -- labels ----------------------------------------------------------------------------------------------------------


def _trim(figure: Figure, panels: Sequence[Sequence[Axes]], columns: int, kind: Kind, broken: bool) -> None:
    """Keep labels at the outer axes alone; the label of a broken ordinate stands beside both its parts."""
    label = panels[0][-1].get_ylabel()
    for i, axes in enumerate(panels):
        if i + columns < len(panels):
            axes[-1].set_xlabel("")
        for each in axes:
            if broken or i % columns:
                each.set_ylabel("")
            if i % columns and kind.shared:
                each.tick_params(labelleft=False)
    if broken:
        figure.supylabel(label, x=0.0)


def _legend_columns(styles: Styles, plot: Plot, width: float) -> int:
    """Return how many entries of the legend stand beside each other; none where there is no legend."""
    if plot.hue is None or set(styles) == {None}:
        return 0
    longest = max(len(place_label(plot.hue, hue)) for hue in styles)
    return max(1, min(len(styles), int(width / (0.55 + CHARACTER * longest))))


def _legend(figure: Figure, panels: Sequence[Sequence[Axes]], columns: int) -> None:
    """Put one legend for all panels above them, where it hides nothing."""
    found: dict[str, Any] = {}
    for axes in panels:
        handles, labels = axes[0].get_legend_handles_labels()
        found |= {label: handle for label, handle in zip(labels, handles, strict=True) if label not in found}
    figure.legend(
        list(found.values()), list(found), loc="outside upper center", ncols=columns, frameon=False,
        borderpad=0.1, columnspacing=1.0, handletextpad=0.5, labelspacing=0.25,
    )  # fmt: skip
