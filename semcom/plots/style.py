"""The look of all figures: an IEEE column, readable in greyscale, without LaTeX."""

from __future__ import annotations

import io
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import resources
from typing import Any

import matplotlib as mpl
import matplotlib.style
from matplotlib.axis import Axis
from matplotlib.figure import Figure

from semcom.plots.fonts import choose_fonts
from semcom.tasks.metric import Metric


@contextmanager
def ieee() -> Iterator[None]:
    """Use matplotlib's defaults with `ieee.mplstyle`, whatever the user's own settings, which come back at the end."""
    with resources.as_file(resources.files("semcom.plots") / "ieee.mplstyle") as path, mpl.rc_context():
        matplotlib.style.use(["default", str(path)])
        yield


MANY = 8
"""Lines up to which intervals are drawn: more intervals would be indistinguishable."""
WIDTH, WIDE = 3.5, 7.16
"""Inches of one column and of two."""
CHARACTER = 0.052
"""About the width of a character of a label in inches."""
COLORS = ("#1B2A6B", "#B5351C", "#3C9A8A", "#E0A030")
"""Lightness rises over them (20, 41, 57, 70 of 100), so that they differ in greyscale."""
MORE_COLORS = (
    "#1B2A6B", "#7A1E7E", "#B5351C", "#1F77B4", "#5E8C31", "#3C9A8A", "#D678B0", "#E0A030",
    "#8A8A8A", "#7B4B2A", "#19B5CC", "#000000", "#C2185B", "#A5B81F",
)  # fmt: skip
"""Fourteen of them, in which five methods or more are drawn: of rising lightness in the first eight, too."""
FILLS = ("#6F86C4", "#E08E74", "#A8D8CC", "#F5E6C4")
"""Colours of bars (lightness 56, 66, 82, 92), light enough for error bars on them to be seen."""
DASHES: tuple[Any, ...] = ("-", "--", "-.", ":", (0, (7, 1.5)), (0, (4, 1, 1, 1, 1, 1)))
COVERING = (0, 2, 4, 5, 1, 3)
"""Places in the drawing order of `DASHES`: lines with more gaps are drawn later, so that lower lines show through."""
MARKERS = ("o", "s", "^", "D", "v", "X", "P", "<", ">", "*", "p", "d")
HATCHES = ("", "/////", ".....", "xxxxx", "-----", "|||||")
DIFFERENT = 24
"""Lines that differ in grey: in the marker with its filling, and in the pair of dashes and lightness."""


def choose_line_styles(count: int) -> list[dict[str, Any]]:
    """List the first `count` line styles (color, linestyle, marker, its filling), repeated after `DIFFERENT`.

    Neighbours differ in all of these: every second marker is hollow, and dashes move on by one more every four lines.
    Five to fourteen lines have a colour each.
    """
    lines = [_describe_line(i % DIFFERENT) for i in range(count)]
    if count <= len(COLORS):
        return lines
    return [line | {"color": MORE_COLORS[i % DIFFERENT % len(MORE_COLORS)]} for i, line in enumerate(lines)]


def choose_line_depth(style: Mapping[str, Any]) -> float:
    """Compute the place of a line in the drawing order: solid lines below broken lines, through which they show."""
    return 2 + _count_gaps(style) / 100


def choose_line_width(style: Mapping[str, Any]) -> float:
    """Compute the width of a line in points: lower lines are wider, and show beside upper ones."""
    return 1.9 - 0.14 * _count_gaps(style)


def _count_gaps(style: Mapping[str, Any]) -> int:
    return COVERING[DASHES.index(style["linestyle"])]


def _describe_line(i: int) -> dict[str, Any]:
    block, color = divmod(i, len(COLORS))
    dashes = DASHES[(color + block) % 4] if block < 4 else DASHES[4 + (color + block) % 2]
    style = {"color": COLORS[color], "linestyle": dashes, "marker": MARKERS[i % len(MARKERS)]}
    return style | ({"markerfacecolor": "white"} if (i + i // len(MARKERS)) % 2 else {})


def choose_bar_styles(count: int) -> list[dict[str, Any]]:
    """List the first `count` looks of bars (color, hatch, edge), which differ in lightness and hatch: 24 of them."""
    pairs = [(i % len(FILLS), (i // len(FILLS) + i) % len(HATCHES)) for i in range(count)]
    return [{"facecolor": FILLS[c], "hatch": HATCHES[h], "edgecolor": "0.2", "linewidth": 0.4} for c, h in pairs]


def render_bytes(figure: Figure, kind: str) -> bytes:
    """Render the figure as a file's content; the same figure gives the same bytes.

    Args:
        figure: drawn under `ieee`.
        kind: pdf or png (300 dpi).
    """
    buffer = io.BytesIO()
    choose_fonts(figure)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing")  # `choose_fonts` has said so in one line
        figure.savefig(buffer, format=kind, metadata={"CreationDate": None} if kind == "pdf" else None)
    return buffer.getvalue()


def percent(axis: Axis, metric: Metric) -> None:
    """Show fractions of 1 in percent along an axis."""
    if metric.share:
        axis.set_major_formatter(lambda fraction, _: f"{100 * fraction:.4g}")
