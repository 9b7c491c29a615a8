"""`semcom report`: a study, or several, as one HTML page."""

from __future__ import annotations

from dataclasses import dataclass

from semcom.cli import flags
from semcom.cli.analysis import read_analysis_point
from semcom.cli.fields import PLUGIN
from semcom.runs.request.plugins import load_plugins
from semcom.screen import say


@dataclass(frozen=True)
class ReportFlags:
    """Write a study as one HTML page with tables and interactive curves, which needs no network; see docs/studies.md.

    FOLDER... comes first: of a sweep (finished or not), of one run, or one that holds folders of runs. Of several
    folders each is a part of the page.
    """

    out: str | None = None
    """The file (None: report.html in the first folder)."""
    title: str | None = None
    """Title of the page (None: those of the studies)."""
    at: flags.At = ()
    """Only runs with these values, such as channel.snr_db=10 (several: channel.snr_db=0,10)."""
    view: str | None = None
    """View whose accuracies are averaged and compared (None: the first one of each method, its headline)."""
    plugins: PLUGIN = ()
    """Your Python file or module, with what the studies need of yours (repeatable)."""


def carry_out_report(words: list[str]) -> None:
    """Carry out `semcom report FOLDER...`."""
    from semcom.plots.report import report as write

    count = next((i for i, word in enumerate(words) if word.startswith("-")), len(words))
    wanted = flags.parse_flags(ReportFlags(), "semcom report FOLDER...", words[count:], extra={})
    load_plugins(wanted.plugins)
    path = write(words[:count], out=wanted.out, title=wanted.title, view=wanted.view, at=read_analysis_point(wanted.at))
    say(f"report: {path}")
