"""`semcom plot` and `semcom table`: a figure, and a table for a paper, of any study."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import semcom
from semcom.cli import flags
from semcom.cli.analysis import read_analysis_point, read_analysis_view, read_analysis_words
from semcom.cli.fields import PLUGIN, TRUST
from semcom.files import resolve_file, resolve_target, write_atomically
from semcom.screen import say


@dataclass(frozen=True)
class PlotFlags:
    """Draw a figure of a study as PDF and PNG, with its numbers as CSV and a page that explains them.

    FOLDER comes first: of a sweep (finished or not), of one run, or one that holds folders of runs. docs/studies.md
    shows the kinds.
    """

    kind: str | None = None
    """What is drawn, one of `semcom list kinds` (None: it follows from x: lines over numbers, curves over round, pareto
    over a cost, bars over anything else or without x)."""
    x: str | None = None
    """Field along the axis, such as channel.snr_db; round, client, class, or a cost such as uses or energy_j."""
    y: str = "accuracy"
    """Number that is shown: accuracy, among_own, worst10, jain, last ...; of curves also loss."""
    hue: str | None = None
    """Field that tells lines, bars or marks apart, such as method (None: the method or variant)."""
    facet: str | None = None
    """Field with a panel for each of its values (None: one panel; of clients, classes, confusion and embedding one for
    each method)."""
    at: flags.At = ()
    """Only runs with these values, such as channel.snr_db=10 (several: channel.snr_db=0,10)."""
    view: str | None = None
    """View whose numbers are shown, or one of a method, such as ditto=global; several separated by commas (None: the
    first one of each method, its headline)."""
    over: str | None = None
    """Method or variant that the others are compared with, of gain (None: local)."""
    window: int = 1
    """Evaluations over which learning curves are averaged."""
    name: str | None = None
    """Name of the files (None: that of the kind)."""
    out: str | None = None
    """Folder of the files (None: FOLDER)."""
    plugins: PLUGIN = ()
    """Your Python file or module, with a kind of your own, or in the place of a plug-in that runs name; responses need
    that (repeatable)."""
    trust: TRUST = False
    """Execute the plug-ins that runs name."""


@dataclass(frozen=True)
class TableFlags:
    """Print or write the means of a study as a table: 95 % intervals over seeds, best and second where they support it.

    FOLDER comes first: of a sweep (finished or not), of one run, or one that holds folders of runs.
    """

    rows: str = "variant"
    """Fields that make the rows, with commas between them: method, variant, seed or any field of the runs."""
    columns: str | None = None
    """Fields that make the columns, with commas between them (None: those that vary and make no rows)."""
    metric: str = "accuracy"
    """Number of a view, such as accuracy, among_own or worst10; without a view, also one of the run, such as
    clusters.knn_purity or seconds.train."""
    at: flags.At = ()
    """Only runs with these values, such as channel.snr_db=10 (several: channel.snr_db=0,10)."""
    view: str | None = None
    """View whose numbers are shown, or one of a method, such as ditto=global; several separated by commas (None: the
    first one of each method, its headline)."""
    spread: Literal["interval", "std"] = "interval"
    """What stands behind a mean, for three seeds or more: half of its 95 % interval, or the standard deviation over
    seeds."""
    format: Literal["md", "csv", "tex"] = "md"
    """md: Markdown; csv: a line per cell with all digits; tex: LaTeX with booktabs, and a label with the name of the
    file."""
    out: str | None = None
    """File that is written (None: the table is printed)."""
    plugins: PLUGIN = ()
    """Your Python file or module, with what the study needs of yours (repeatable)."""


def carry_out_plot(words: list[str]) -> None:
    """Carry out `semcom plot FOLDER`."""
    (folder,), wanted = read_analysis_words(words, ("FOLDER",), PlotFlags(), "semcom plot")
    from semcom.plots import Plot
    from semcom.plots import plot as draw

    own = {name: getattr(wanted, name) for name in ("name", "out", "plugins", "trust")}
    values = {name: value for name, value in vars(wanted).items() if name not in own}
    request = Plot(**{**values, "at": read_analysis_point(wanted.at), "view": read_analysis_view(wanted.view)})
    for path in draw(folder, request, **own):
        say(f"figure: {path}")


def print_plot_table(words: list[str]) -> None:
    """Carry out `semcom table FOLDER`."""
    (folder,), wanted = read_analysis_words(words, ("FOLDER",), TableFlags(), "semcom table")
    from semcom.studies.analysis.sheet import make_sheet

    target = None if wanted.out is None else resolve_target(wanted.out, "out")
    columns = None if wanted.columns is None else [name for name in wanted.columns.split(",") if name]
    found = make_sheet(
        semcom.study(folder).where(read_analysis_point(wanted.at)),
        wanted.rows.split(","),
        columns,
        view=read_analysis_view(wanted.view),
        metric=wanted.metric,
        spread=wanted.spread,
    )
    name = (target or resolve_file(folder)).stem
    text = {"md": found.markdown, "csv": found.csv, "tex": lambda: found.latex(name)}[wanted.format]()
    if target is None:
        say(text, end="")
    else:
        say(f"table: {write_atomically(target, text)}")
