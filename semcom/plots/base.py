"""Figures: a request for a drawing of a study, a drawing with a name, and a figure that measures its own numbers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from semcom.studies.names import SHIPPED, Labels
from semcom.tasks.metric import Metric

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from semcom.studies.analysis.study import Study

Style = dict[str, Any]
Styles = Mapping[Any, Style]
"""Value of the hue -> how matplotlib draws it."""


@dataclass(frozen=True)
class Plot:
    """A request for a figure of a study, as `semcom plot` takes it. docs/studies.md explains the fields."""

    kind: str | None = None
    """Name of a drawing, one of `semcom.plots.kinds.KINDS` (None: it follows from `x`)."""
    x: str | None = None
    """Field along the abscissa."""
    y: str = "accuracy"
    """Number that is shown (accuracy: of another task its headline)."""
    hue: str | None = None
    """Field that tells lines or marks apart."""
    facet: str | None = None
    """Field with a panel for each of its values."""
    at: Mapping[str, Any] = field(default_factory=dict)
    """Field -> value, see `Study.where`."""
    view: str | Mapping[str, str] | None = None
    """Name of a view (None: the headline of each run); or variant -> view, of those that do not have their headline."""
    over: str | None = None
    """Method or variant that others are compared with (None: local)."""
    window: int = 1
    """Evaluations over which learning curves are averaged."""
    labels: Labels = field(default=SHIPPED, repr=False, compare=False)
    """Labels of methods and numbers, filled in from the drawn study."""

    @property
    def metric(self) -> Metric:
        """The number `y`: its name, its unit and which way is better."""
        return self.labels.metric(self.y)

    @property
    def fields(self) -> tuple[str, ...]:
        """The fields of hue, facet and abscissa, each once, without open ones."""
        return tuple(dict.fromkeys(name for name in (self.hue, self.facet, self.x) if name is not None))


@dataclass(frozen=True)
class Kind:
    """A way to draw numbers of a study. `takes` lists the fields of a request that it uses. The rest has defaults."""

    title: str
    """One line on its content."""
    numbers: Callable[[Study, Plot], pd.DataFrame]
    """Function from a study and a settled request to the drawn numbers, which the CSV holds, too.

    It returns a row or more, with columns for the hue and the panels of the request. A kind that is `tabled` has
    further columns: the abscissa, `mean`, `low` and `high` (the ends of its interval, NaN without one) and `n` (its
    seeds), and `mark` if the table marks best and second.
    """
    draw: Callable[[Axes, pd.DataFrame, Plot, Styles], None]
    """Function that draws the numbers of one panel."""
    caption: Callable[[pd.DataFrame, Plot], str]
    """Function from the numbers to their caption: the plotted quantity, and the meaning of bars and bands."""
    takes: tuple[str, ...] = ()
    """Fields of a request, of x, y, hue, over, window and view, that it takes."""
    x: str | None = None
    """Default of the abscissa."""
    hue: str | None = None
    """Default of the hue."""
    facet: str | None = None
    """Default of the panels."""
    height: Callable[[pd.DataFrame, Plot], float] = lambda cells, plot: 1.95
    """Function from the numbers to the height of a panel in inches."""
    width: Callable[[pd.DataFrame, Plot], tuple[float, float]] = lambda cells, plot: (0.0, 0.0)
    """Function from the numbers to the widths in inches that a panel needs, and that labels need beside all of them.
    A figure too wide for a column gets a page, and as many panels beside each other as fit."""
    styles: Callable[[int], list[Style]] | None = None
    """Function from the number of hues to their looks (None: those of lines)."""
    columns: int = 2
    """Panels beside each other, at most."""
    weight: Callable[[pd.DataFrame, Plot], float] = lambda cells, plot: 1.0
    """Function from the numbers of a panel to its share of the width, where all panels stand beside each other."""
    crossed: bool = False
    """Whether it has crosses where a seed is no better than guessing, see `semcom.plots.guessing`."""
    note: Callable[[pd.DataFrame, Plot], str] = lambda cells, plot: ""
    """Function from the numbers to a note behind every caption of such drawings, including their own captions."""
    of_y: bool = True
    """Whether it shows the number `y` of a request."""
    tabled: bool = True
    """Whether its page has a table of the plotted means: few enough to read, and not in the figure already."""
    shared: bool = True
    """Whether the panels have the same ordinate."""
    all_tests: bool = False
    """Whether it shows all test SNRs of a run in one drawing."""
    rows: Literal["x", "hue"] | None = None
    """Field of a request whose values are rows, if it draws rows. Panels with the same rows share them."""
    finish: Callable[[Figure, pd.DataFrame, Plot], None] = lambda figure, cells, plot: None
    """Function that finishes the whole figure, such as by the bar of a colour scale."""


@dataclass(frozen=True)
class Drawing:
    """A figure with a name: a request for the results of one experiment."""

    name: str
    """Its name on the command line, and that of its files."""
    experiment: str
    """The experiment of its results."""
    plot: Plot
    """The request."""
    numbers: Callable[[Study, Plot], pd.DataFrame] | None = None
    """Function to the plotted numbers (None: that of the request's kind)."""
    caption: Callable[[pd.DataFrame, Plot], str] | None = None
    """Function to their caption (None: that of the request's kind)."""
    shows: tuple[str, ...] = ()
    """Varied fields that it can show (empty: those of the request)."""
    finish: Callable[[Figure, pd.DataFrame], None] | None = None
    """Function that adds parts of this figure only, such as lines at printed values (None: no additions)."""
    look: Callable[[Sequence[Any]], Styles] | None = None
    """Function from the hues to their looks (None: those of the request's kind)."""

    @property
    def places(self) -> tuple[str, ...]:
        """The varied fields that it has a place for."""
        return self.shows or tuple(name for name in self.plot.fields if name not in ("method", "variant"))


@dataclass(frozen=True)
class Measured:
    """A figure that needs no results: it measures its numbers in less than a minute, the same ones every time."""

    name: str
    """Its name on the command line, and that of its files."""
    title: str
    """One line on its content."""
    numbers: Callable[[], pd.DataFrame]
    """Function that measures the drawn numbers, which the CSV holds, too."""
    draw: Callable[[Axes, pd.DataFrame], None]
    """Function that draws the numbers."""
    caption: Callable[[pd.DataFrame], str]
    """Function from the numbers to their caption: the plotted quantity, and the meaning of error bars."""
    table: Callable[[pd.DataFrame], pd.DataFrame]
    """Function from the numbers to the table on the figure's page, as texts."""


NamedFigure = Drawing | Measured
"""Any figure."""
