"""A figure: numbers, taken from a sweep's table or measured on the spot, a way to draw them, and a caption."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes


@dataclass(frozen=True)
class Drawing:
    """A figure of a sweep's results."""

    name: str
    """Its name on the command line, and that of its files."""
    experiment: str
    """The experiment whose results it shows."""
    axis: str
    """The varied field that it shows; runs that differ in any other are no seeds of one point."""
    numbers: Callable[[pd.DataFrame], pd.DataFrame]
    """Function from the table of a sweep to the plotted numbers: what is drawn and what the CSV holds, nothing else."""
    draw: Callable[[Axes, pd.DataFrame], None]
    """Function that draws the numbers."""
    caption: Callable[[pd.DataFrame], str]
    """Function from the numbers to a text on them: what is plotted, what error bars mean."""
    numeric: bool = False
    """True where the values of the axis have to be finite numbers, since they have a place on an abscissa."""


@dataclass(frozen=True)
class Measured:
    """A figure that needs no results: it measures its numbers in less than a minute, the same ones every time."""

    name: str
    """Its name on the command line, and that of its files."""
    title: str
    """One line: what is shown."""
    numbers: Callable[[], pd.DataFrame]
    """Function that measures what is drawn and what the CSV holds, nothing else."""
    draw: Callable[[Axes, pd.DataFrame], None]
    """Function that draws the numbers."""
    caption: Callable[[pd.DataFrame], str]
    """Function from the numbers to a text on them: what is plotted, what error bars mean."""
    table: Callable[[pd.DataFrame], pd.DataFrame]
    """Function from the numbers to the table on the figure's page, as texts."""


AnyFigure = Drawing | Measured
"""What a figure can be."""
