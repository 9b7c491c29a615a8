"""The report of studies as one self-contained HTML page: its template, style and script, and Plotly's inside."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

import semcom
from semcom.config import ConfigError
from semcom.escape import escape_controls
from semcom.files import resolve_file, resolve_target, write_atomically
from semcom.packages import check_extra_package
from semcom.plots.report.facts import facts, title_study
from semcom.plots.report.subject import Subject
from semcom.plots.report.tables import tables


def report(
    folders: Sequence[Path | str] | Path | str,
    *,
    out: Path | str | None = None,
    title: str | None = None,
    view: str | None = None,
    at: Mapping[str, Any] | None = None,
) -> Path:
    """Write a page that shows studies, a part for each, and return its path.

    Args:
        folders: of the studies, or of one, as `semcom.study` takes them.
        out: the file (None: report.html in the first folder, or beside an archive).
        title: of the page (None: those of the studies).
        view: name of the view that is averaged and compared (None: the headline of each run).
        at: field -> value, as for `Study.where`.

    Raises:
        ConfigError: no folder, or the same folder twice, no study in a folder, no such view, or no run with such a
            value; or Plotly, of the extra `report`, is not installed.

    Example:
        >>> import semcom
        >>> table = semcom.sweep(
        ...     methods=("local", "fedavg"), seeds=(0, 1), set={"clients": 2, "train.rounds": 1}, out="results/two"
        ... )
        Accuracy ...
        >>> semcom.report("results/two").name
        'report.html'
    """
    check_extra_package("report: the page", "plotly", "report")
    paths = [resolve_file(folder) for folder in ((folders,) if isinstance(folders, Path | str) else folders)]
    if not paths or len({path.resolve() for path in paths}) < len(paths):
        raise ConfigError("FOLDER: none is given, or one twice; give each study once")
    beside = paths[0].with_suffix(".html") if paths[0].is_file() else paths[0] / "report.html"
    target = beside if out is None else resolve_target(out, "out")
    page = _page([_part(i, path, view, at) for i, path in enumerate(paths)], title)
    return write_atomically(target, page)


def _part(i: int, folder: Path, view: str | None, at: Mapping[str, Any] | None) -> dict[str, Any]:
    from semcom.plots.report.figures import figures  # imports Plotly, which is of an extra

    subject = Subject(semcom.study(folder).where(at or {}), folder, view)
    return {
        "title": title_study(subject.study, folder),
        "facts": facts(subject),
        "tables": {table.id: table for table in tables(subject)},
        "figures": [(figure, figure.html(f"plot-{i}-{figure.id}")) for figure in figures(subject)],
    }


def _page(parts: Sequence[Mapping[str, Any]], title: str | None) -> str:
    """Fill the template. All texts from the studies are escaped, in HTML here and in its scripts by Plotly."""
    from jinja2 import Environment, PackageLoader
    from markupsafe import Markup
    from plotly.offline import get_plotlyjs

    environment = Environment(
        loader=PackageLoader("semcom.plots.report", "."),
        autoescape=True,
        trim_blocks=True,
        finalize=lambda value: escape_controls(value) if type(value) is str else value,
    )
    own = {"css": Markup(_text("page.css")), "js": Markup(_text("page.js"))}
    template = environment.get_template("page.html")
    about = {"parts": parts, "title": title, "version": semcom.__version__}
    return template.render(plotly=Markup(get_plotlyjs()), **about, **own)


def _text(name: str) -> str:
    return (resources.files("semcom.plots.report") / name).read_text(encoding="utf-8")
