"""Rendering of a figure as PDF and PNG, with the plotted numbers as CSV and a page of caption and table."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from semcom.config import ConfigError
from semcom.escape import format_csv
from semcom.files import SWEEP, TABLE, resolve_file, resolve_folder, write_atomically
from semcom.plots.base import Drawing, Measured, Plot
from semcom.plots.classes import SCARCE, SORTED
from semcom.plots.guessing import GUESSING, mark_guessing
from semcom.plots.map import STREETS
from semcom.plots.points import format_view
from semcom.plots.registry import FIGURES
from semcom.registry import find_entry
from semcom.runs.request.plugins import load_plugins
from semcom.runs.request.trust import trust_results
from semcom.studies.analysis.setting import describe_rounds
from semcom.studies.analysis.study import Study, study
from semcom.studies.grid import TEST
from semcom.studies.registry import EXPERIMENTS, find_experiment
from semcom.studies.results.failures import read_repeat

PER_ROUND = ("curves", "classes")
"""Kinds whose numbers are not averaged by a summary."""

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure


def render(name: str, *, results: Path | str | None = None, out: Path | str | None = None) -> list[Path]:
    """Draw a figure that has a name, without training.

    Args:
        name: a figure of `semcom.plots.registry`.
        results: folder of a sweep, or its archive (None: results/<experiment>-<scale> with the largest existing scale,
            or the last declared scale with its own name). A figure that measures its own numbers takes none.
        out: folder of the files (None: that of the study, or the folder of its archive, or the current one for a figure
            that measures its own numbers).

    Returns:
        <name>.pdf, <name>.png (300 dpi), <name>.csv (the plotted numbers), <name>.md (table, caption, command).

    Raises:
        ConfigError: an unknown figure, no results, results of another experiment or for a figure that takes none, no
            finished run, runs that differ in a field which the figure does not show, or an `out` that is a file.
    """
    from semcom.plots import page

    chosen = find_entry(FIGURES, name)
    out = None if out is None else resolve_folder(out)
    if isinstance(chosen, Measured):
        if results is not None:
            raise ConfigError(f"results: {name} measures its own numbers; leave {str(results)!r} out")
        numbers = chosen.numbers()
        return _write(
            name, _draw_measured(chosen, numbers), numbers, page.write_measured_page(chosen, numbers), out or Path()
        )
    folder = resolve_file(results) if results is not None else _find_results(chosen.experiment)
    whole = _open_study(chosen, folder)
    if isinstance(chosen.plot.view, Mapping):  # some of its variants may not be among the runs
        there = {name: view for name, view in chosen.plot.view.items() if name in whole.variants}
        chosen = replace(chosen, plot=replace(chosen.plot, view=there or None))
    return _draw(whole, chosen, whole.record, out or _choose_folder(folder))


def plot(
    folder: Path | str,
    wanted: Plot,
    *,
    name: str | None = None,
    out: Path | str | None = None,
    plugins: Sequence[str] = (),
    trust: bool = False,
) -> list[Path]:
    """Draw a figure of any study.

    Args:
        folder: of a sweep, of a run, of folders of runs, or an archive, see `semcom.studies.analysis.study.study`.
        wanted: the request.
        name: of the files (None: that of the kind).
        out: folder of the files (None: that of the study, or the folder of its archive).
        plugins: the user's Python files or modules in place of those that the runs name, for kinds that build the
            channels of runs.
        trust: whether plug-ins that the runs name are executed, and files of these channels are read.

    Returns:
        as `render`.

    Raises:
        ConfigError: as `semcom.study` and `Study.mean`, or the request is wrong.

    Example:
        >>> import semcom
        >>> table = semcom.sweep(
        ...     methods=("local", "fedavg"), seeds=(0, 1), set={"clients": 2, "train.rounds": 1}, out="results/two"
        ... )
        Accuracy ...
        >>> [path.name for path in semcom.plot("results/two", semcom.Plot(x="method"))]
        ['bars.pdf', 'bars.png', 'bars.csv', 'bars.md']
    """
    from semcom.plots.kinds import settle_kind

    where, out = resolve_file(folder), None if out is None else resolve_folder(out)
    if name is not None and (Path(name).name != name or name.startswith(".")):
        raise ConfigError(f"name: {name!r} is no name of a file; give the folder in out")
    load_plugins(plugins)
    whole = study(where)
    chosen = Drawing(name or str(settle_kind(whole, wanted)[1].kind), "", wanted)
    files = {"--name": name, "--out": None if out is None else str(out)}
    words = [str(folder), *(word for flag, value in files.items() if value is not None for word in (flag, value))]
    with trust_results(trust):
        return _draw(
            whole, chosen, {**whole.record, "plot": spell_command(words, wanted)}, out or _choose_folder(where)
        )


def _take_literally(figure: Figure) -> None:
    """Disable formulas in texts: a dollar comes from a name of the user's, as the kinds of figures use none."""
    from matplotlib.text import Text

    for axes in figure.axes:
        axes.get_xticklabels(), axes.get_yticklabels()  # which gives them their texts
    for text in figure.findobj(Text):
        if "$" in text.get_text() and "mathdefault" not in text.get_text():  # that of a logarithmic axis
            text.set_parse_math(False)


def _draw(whole: Study, chosen: Drawing, record: Mapping[str, Any], folder: Path) -> list[Path]:
    from semcom.plots import page, style
    from semcom.plots.kinds import KINDS, check_numbers, name_empty, name_files, settle_kind
    from semcom.plots.panels import draw_panels

    own = replace(chosen.plot, labels=whole.labels)
    part, request = (whole, own) if chosen.numbers else settle_kind(whole, own)
    if "done" not in set(part.runs["status"]) and request.kind != "curves":
        wanted = f"; repeat it with: {again.command}" if (again := read_repeat(record.get("command"))) else ""
        raise ConfigError(f"results: no run of {chosen.experiment or 'the study'} finished{wanted}")
    kind = KINDS.get(str(request.kind))
    numbers = (chosen.numbers or kind.numbers)(part, request)
    check_numbers(numbers, request)
    # Crosses are found by the values of the runs, before these are shortened and named.
    numbers = mark_guessing(part, request, numbers) if kind.crossed else numbers
    numbers = name_files(name_empty(numbers, request))
    text = (chosen.caption or kind.caption)(numbers, request) + kind.note(numbers, request)
    if (
        TEST in part.axes and TEST not in request.fields and not kind.all_tests
    ):  # means are of one test SNR, and all else is of the first one
        found = {run.test_snr_db for run in part.tests}
        found = found if len(found) == 1 else {run.test_snr_db for run in part.tests if run.is_first_test}
        text += f" Tested at {' or '.join(request.labels.value(TEST, snr) for snr in found)}."
    if kind.of_y and request.kind not in PER_ROUND:
        text = f"{text} {describe_rounds(part, request.y, request.view)}".rstrip()
    with style.ieee():
        figure = draw_panels(numbers, request, chosen.look)
        _take_literally(figure)
        if chosen.finish is not None:
            chosen.finish(figure, numbers)
        return _write(
            chosen.name, figure, numbers, page.write_page(chosen, part, request, numbers, text, record), folder
        )


def spell_command(first: Sequence[str], wanted: Plot) -> str:
    """Spell the command that draws a request; `first` are its first words, of folder and files."""
    usual, words = vars(Plot()), ["semcom", "plot", *first]
    for name, value in vars(wanted).items():
        if name == "at" and value:
            several = {n: v if isinstance(v, (list, tuple)) else [v] for n, v in value.items()}
            words += ["--at", *(f"{n}={','.join(map(str, v))}" for n, v in several.items())]
        elif value != usual[name]:
            words += [f"--{name}", format_view(value) if name == "view" else str(value)]
    return shlex.join(words)


def _choose_folder(study: Path) -> Path:
    return study.parent if study.is_file() else study


def _find_results(name: str) -> Path:
    """Find the default folder of an experiment's results. Raises ConfigError with the command if it is missing."""
    folders = [Path("results") / f"{name}-{scale}" for scale in reversed(find_experiment(name).offered())]
    for folder in folders:
        if (folder / TABLE).is_file():
            return folder
    raise ConfigError(f"results: none in results/{name}-*; give --results, or run first: {_spell_sweep(name)}")


def _spell_sweep(name: str) -> str:
    plugin = EXPERIMENTS.source(name)
    more = f" --plugin {shlex.quote(plugin)}" if plugin else ""
    return f"semcom sweep {name} --scale {find_experiment(name).scale()}{more}"


def _open_study(chosen: Drawing, folder: Path) -> Study:
    """Open the study of a folder or an archive, which must be of the figure's experiment."""
    if not folder.is_file() and not (folder / SWEEP).is_file():
        command = f"{_spell_sweep(chosen.experiment)} --out {shlex.quote(str(folder))}"
        raise ConfigError(f"results: {folder} has no {SWEEP}; run first: {command}")
    whole = study(folder)
    if (found := whole.record.get("experiment")) != chosen.experiment:
        raise ConfigError(f"results: {folder} is of {found or 'no sweep'}; {chosen.name} shows {chosen.experiment}")
    return whole


def _draw_measured(chosen: Measured, numbers: pd.DataFrame) -> Figure:
    from matplotlib.figure import Figure

    from semcom.plots import style

    with style.ieee():
        figure = Figure()
        chosen.draw(figure.add_subplot(), numbers)
    return figure


def _write(name: str, figure: Figure, numbers: pd.DataFrame, text: str, folder: Path) -> list[Path]:
    """Write the four files, including the page's text, each all or nothing."""
    from semcom.plots import style

    with style.ieee():
        contents = {kind: style.render_bytes(figure, kind) for kind in ("pdf", "png")}
    of_drawing = [GUESSING, SCARCE, SORTED, STREETS]  # these say how numbers are drawn
    plotted = numbers.drop(columns=of_drawing, errors="ignore")
    contents["csv"] = format_csv(plotted).encode()
    contents["md"] = text.encode()
    return [write_atomically(folder / f"{name}.{kind}", data) for kind, data in contents.items()]
