"""The figure around the drawings: panels, a broken ordinate, one legend for all, and the size of a page's columns.

The rule of a broken ordinate (`gap`): each line has a range, from the smallest to the largest of its means. Where the
widest gap between these ranges is more than a third of all that they cover (`WIDE_GAP`), the lines above and below it
get a part of the ordinate each, with a scale of its own and room for their intervals, unless the parts, with their
margins, would reach across the gap and into each other. The parts are as high as they have lines, but none is less than
a third of the panel.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.container import ErrorbarContainer
from matplotlib.figure import Figure

from semcom.plots.base import Kind, Plot, Styles
from semcom.plots.kinds import KINDS
from semcom.plots.style import CHARACTER, MANY, WIDE, WIDTH, line_styles
from semcom.studies.names import place_label

WIDE_GAP = 1 / 3
"""Share of the whole range from which on a gap between lines is left out."""
LEAST = 1 / 3
"""Share of a panel's height that a part of a broken ordinate has at least."""
MARGIN = 0.08
"""Room above and below the lines, as a share of their range."""
ENTRY, KEY = 0.145, 0.45
"""Height of a line of the legend, and about the width of a key in it, in inches."""
Span = tuple[float, float]


def drawn(cells: pd.DataFrame, plot: Plot) -> Figure:
    """Return the figure of a settled request; it is drawn under `style.ieee`.

    Args:
        cells: the numbers of its kind.
        plot: the request.
    """
    kind, figure = KINDS.get(str(plot.kind)), Figure()
    parts = list(cells.groupby(plot.facet, sort=False)) if plot.facet else [(None, cells)]
    kind = replace(kind, shared=_shared([part for _, part in parts], plot, kind))
    styles = _styles(cells, plot, kind)
    spans = gap(cells, plot) if "broken" in kind.takes else []
    one, beside = kind.width(cells, plot)
    columns = _columns(kind, len(parts), int((WIDE - beside) / one) if one else len(parts))
    lines = math.ceil(len(parts) / columns)
    width = WIDTH if columns == 1 and beside + one <= WIDTH else WIDE
    legend = _legend_columns(styles, plot, width)
    above = ENTRY * math.ceil(len(styles) / legend) + 0.05 if plot.hue is not None and legend else 0
    title = 0.16 * (plot.facet is not None)
    each = kind.height(cells, plot) * (1.25 if spans and len(styles) > 3 else 1)
    figure.set_size_inches(width, above + lines * (each + title))
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
        _legend(figure, panels, legend, [place_label(str(plot.hue), hue) for hue in styles])
    return figure


def _styles(cells: pd.DataFrame, plot: Plot, kind: Kind) -> Styles:
    """Return the look of each hue, the same in all panels, numbers in ascending order; of none there is one."""
    hues = [None] if plot.hue is None or plot.hue not in cells else list(dict.fromkeys(cells[plot.hue]))
    if plot.hue in cells and pd.api.types.is_numeric_dtype(cells[plot.hue]):
        hues.sort()
    return dict(zip(hues, (kind.styles or line_styles)(len(hues)), strict=True))


def _columns(kind: Kind, panels: int, room: int) -> int:
    """Return how many panels stand beside each other: one alone, three where there are many and there is room."""
    wanted = kind.columns if panels > 4 or kind.columns < 3 else 2 if panels != 3 else 3
    return min(panels, wanted, max(1, room))


# -- the ordinate ----------------------------------------------------------------------------------------------------


def gap(cells: pd.DataFrame, plot: Plot) -> list[Span]:
    """Return the two spans of a broken ordinate, the lower one first; nothing where it stays whole.

    The rule stands above. With `broken` "yes" the widest gap is left out however narrow it is, with "no" none.
    """
    lines = sorted(_ranges(cells, plot), key=lambda line: line.mean)
    if plot.broken == "no" or len(lines) < 2:
        return []
    tops = np.maximum.accumulate([line.mean[1] for line in lines])
    gaps = [line.mean[0] - top for line, top in zip(lines[1:], tops, strict=False)]
    first = int(np.argmax(gaps)) + 1
    lower, upper = (_span([line.whole for line in part]) for part in (lines[:first], lines[first:]))
    wide = gaps[first - 1] > (WIDE_GAP if plot.broken == "auto" else 0) * (tops[-1] - lines[0].mean[0])
    apart = lower[1] + MARGIN * (lower[1] - lower[0]) < upper[0] - MARGIN * (upper[1] - upper[0])
    return [lower, upper] if wide and apart else []


class _Line(NamedTuple):
    """What a line covers in all panels: its means, and the intervals that are drawn with them."""

    mean: Span
    whole: Span


def _ranges(cells: pd.DataFrame, plot: Plot) -> list[_Line]:
    drawn = ["mean", "low", "high"] if cells[plot.hue].nunique() <= MANY else ["mean"]
    return [
        _Line((part["mean"].min(), part["mean"].max()), (part[drawn].min(axis=None), part[drawn].max(axis=None)))
        for _, part in cells.groupby(plot.hue, sort=False)
    ]


def _span(ranges: Sequence[Span]) -> Span:
    return min(low for low, _ in ranges), max(high for _, high in ranges)


def note(cells: pd.DataFrame, plot: Plot) -> str:
    """Return the sentence of the caption on a broken ordinate; nothing where it is whole."""
    broken = "broken" in KINDS.get(str(plot.kind)).takes and gap(cells, plot)
    return " The ordinate is broken: its parts have scales of their own." if broken else ""


def _heights(cells: pd.DataFrame, plot: Plot, spans: Sequence[Span]) -> list[float]:
    """Return the shares of the parts of an ordinate, the upper one first: as they have lines, none below `LEAST`."""
    upper = np.mean([line.mean[0] >= spans[1][0] for line in _ranges(cells, plot)])
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
        room = MARGIN * (high - low) or 0.05 * (spans[1][1] - spans[0][0])
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


def _shared(parts: Sequence[pd.DataFrame], plot: Plot, kind: Kind) -> bool:
    """Return whether the panels have one ordinate: not where the rows of one are others than those of another."""
    rows = getattr(plot, kind.rows) if kind.rows else None
    return kind.shared and (rows is None or len({tuple(dict.fromkeys(part[rows])) for part in parts}) == 1)


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
        figure.supylabel(label)


def _legend_columns(styles: Styles, plot: Plot, width: float) -> int:
    """Return how many entries of the legend stand beside each other; none where there is no legend."""
    if plot.hue is None or set(styles) == {None}:
        return 0
    longest = max(len(place_label(plot.hue, hue)) for hue in styles)
    return max(1, min(len(styles), int(width / (KEY + CHARACTER * longest))))


def _legend(figure: Figure, panels: Sequence[Sequence[Axes]], columns: int, order: Sequence[str]) -> None:
    """Put one legend for all panels above them, where it hides nothing."""
    found: dict[str, Any] = {}
    for axes in panels:
        handles, labels = axes[0].get_legend_handles_labels()
        bare = [handle[0] if isinstance(handle, ErrorbarContainer) else handle for handle in handles]
        found |= {label: handle for label, handle in zip(labels, bare, strict=True) if label not in found}
    found = {label: found[label] for label in order if label in found} | found
    figure.legend(
        list(found.values()), list(found), loc="outside upper center", ncols=columns, frameon=False,
        borderpad=0.1, columnspacing=1.0, handlelength=2.6, handletextpad=0.5, labelspacing=0.25,
    )  # fmt: skip
