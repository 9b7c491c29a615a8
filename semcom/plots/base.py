"""What a figure is: a request for a drawing of a study, a drawing with a name, or one that measures its own numbers."""

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
    """A figure of a study, as `semcom plot` is asked for it; docs/studies.md explains the fields."""

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
    """What methods and numbers are called: filled in from the study that is drawn."""

    @property
    def metric(self) -> Metric:
        """The number `y`: its name, its unit and which way is better."""
        return self.labels.metric(self.y)

    @property
    def fields(self) -> tuple[str, ...]:
        """The fields that tell the numbers apart: hue, facet and abscissa, where there are such, each once."""
        return tuple(dict.fromkeys(name for name in (self.hue, self.facet, self.x) if name is not None))


@dataclass(frozen=True)
class Kind:
    """A way to draw numbers of a study. What it takes from a request is in `takes`; the rest has its own defaults."""

    title: str
    """One line: what it shows."""
    numbers: Callable[[Study, Plot], pd.DataFrame]
    """Function from a study and a settled request to what is drawn and what the CSV holds, nothing else.

    It returns a row or more, with columns for the hue and the panels of the request. A kind that is `tabled` has
    further ones: the abscissa, `mean`, `low` and `high` (the ends of its interval, NaN for none) and `n` (its seeds),
    and `mark` where the table marks best and second.
    """
    draw: Callable[[Axes, pd.DataFrame, Plot, Styles], None]
    """Function that draws the numbers of one panel."""
    caption: Callable[[pd.DataFrame, Plot], str]
    """Function from the numbers to a text on them: what is plotted, what bars and bands mean."""
    takes: tuple[str, ...] = ()
    """Fields of a request, of x, y, hue, over and window, that it takes."""
    x: str | None = None
    """The abscissa where none is asked for."""
    hue: str | None = None
    """The hue where none is asked for."""
    facet: str | None = None
    """The panels where none are asked for."""
    height: Callable[[pd.DataFrame, Plot], float] = lambda cells, plot: 1.95
    """Function from the numbers to the height of a panel in inches."""
    width: Callable[[pd.DataFrame, Plot], tuple[float, float]] = lambda cells, plot: (0.0, 0.0)
    """Function from the numbers to the widths in inches that a panel needs, and that labels need beside all of them:
    what is too wide for a column has a page, and as many panels beside each other as that has room for."""
    styles: Callable[[int], list[Style]] | None = None
    """Function from the number of hues to their looks (None: lines)."""
    columns: int = 2
    """Panels beside each other, at most."""
    weight: Callable[[pd.DataFrame, Plot], float] = lambda cells, plot: 1.0
    """Function from the numbers of a panel to its share of the width, where all panels stand beside each other."""
    crossed: bool = False
    """Whether it has crosses where a seed is no better than guessing, see `semcom.plots.guessing`."""
    note: Callable[[pd.DataFrame, Plot], str] = lambda cells, plot: ""
    """Function from the numbers to what is said of all such drawings behind their captions, their own ones too."""
    of_y: bool = True
    """Whether what it shows is the number `y` of a request."""
    tabled: bool = True
    """Whether its page has a table of the plotted means: few enough to read, and not in the figure already."""
    shared: bool = True
    """Whether the panels have the same ordinate."""
    all_tests: bool = False
    """Whether it shows all test SNRs of a run by itself."""
    rows: Literal["x", "hue"] | None = None
    """Field of a request whose values are rows, where it draws such: panels share them if they have the same ones."""
    finish: Callable[[Figure, pd.DataFrame, Plot], None] = lambda figure, cells, plot: None
    """Function that adds what belongs to the figure as a whole, such as the bar of a colour scale."""


@dataclass(frozen=True)
class Drawing:
    """A figure with a name: a request that is put to the results of one experiment."""

    name: str
    """Its name on the command line, and that of its files."""
    experiment: str
    """The experiment whose results it shows."""
    plot: Plot
    """The request."""
    numbers: Callable[[Study, Plot], pd.DataFrame] | None = None
    """Function to the plotted numbers (None: those of the request's kind)."""
    caption: Callable[[pd.DataFrame, Plot], str] | None = None
    """Function to the text on them (None: that of the request's kind)."""
    shows: tuple[str, ...] = ()
    """Varied fields that it has a place for (none: those of the request)."""
    finish: Callable[[Figure, pd.DataFrame], None] | None = None
    """Function that adds what this figure alone has, such as lines at printed values (None: nothing)."""
    look: Callable[[Sequence[Any]], Styles] | None = None
    """Function from the hues to how each is drawn (None: as the request's kind does)."""

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
    """One line: what is shown."""
    numbers: Callable[[], pd.DataFrame]
    """Function that measures what is drawn and what the CSV holds, nothing else."""
    draw: Callable[[Axes, pd.DataFrame], None]
    """Function that draws the numbers."""
    caption: Callable[[pd.DataFrame], str]
    """Function from the numbers to a text on them: what is plotted, what error bars mean."""
    table: Callable[[pd.DataFrame], pd.DataFrame]
    """Function from the numbers to the table on the figure's page, as texts."""


NamedFigure = Drawing | Measured
"""What a figure can be."""
