"""`semcom show`: the progress of a run or a study, and its results so far."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from semcom.channels import LINKS
from semcom.cli.analysis import read_analysis_words
from semcom.cli.fields import PLUGIN
from semcom.cli.printing import format_air_lines
from semcom.cli.text import count_terminal_columns, hang_text
from semcom.config import ConfigError
from semcom.declarations import describe_entry
from semcom.escape import escape_controls
from semcom.screen import is_terminal_screen, say
from semcom.studies.names import is_in_joule
from semcom.tasks.metric import Metric

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.table import Table
    from rich.text import Text

    from semcom.studies.analysis.overview import Course, Overview

ROWS = 40
"""Runs of a study that are listed."""
SECONDS = 2.0
"""Time between two looks of --watch; reading a large study may take longer."""
MEAN = "mean: over the last ten evaluations, or as many as there are; after an early stop, from the best on"
"""Note below accuracies."""
ORDER = ("running", "stopped", "failed", "done")
"""States of the runs that are listed, where there are too many for all."""


@dataclass(frozen=True)
class ShowFlags:
    """Show how far a run or a study has come: setting, progress, accuracies, received SNR, traffic, warnings, failures.

    FOLDER comes first: of a sweep or of one run (finished, running, failed or interrupted), or one that holds folders
    of runs; or an archive, or ARCHIVE/HASH for one run of it. Of one run the command that repeats it is shown, of a
    study at most 40 runs are listed; semcom results FOLDER --what runs has all.
    """

    watch: Annotated[tyro.conf.FlagCreatePairsOff[bool], tyro.conf.arg()] = False
    """Show it again every few seconds, until nothing is running; needs a terminal."""
    plugins: PLUGIN = ()
    """Your Python file or module, with what the study needs of yours (repeatable)."""


def carry_out_show(words: list[str]) -> None:
    """Carry out `semcom show FOLDER`."""
    from semcom.studies.analysis.overview import read_overview
    from semcom.studies.results.failures import report_failures

    (folder,), wanted = read_analysis_words(words, ("FOLDER",), ShowFlags(), "semcom show")
    found = read_overview(folder)
    if wanted.watch:
        if not is_terminal_screen(sys.stdout):
            raise ConfigError("watch: stdout is no terminal; leave it out, and ask again when you like")
        found = _watch_show(found, lambda: read_overview(folder))
    _make_console().print(*show_whole(found), sep="\n", crop=False)
    if failures := found.failures():
        say(report_failures(failures))


def _make_console() -> Console:
    from rich.console import Console

    return Console(width=count_terminal_columns(), highlight=False, markup=False, emoji=False, soft_wrap=False)


def _watch_show(found: Overview, again: Callable[[], Overview]) -> Overview:
    """Show the progress until no run is running, and return the last overview."""
    from rich.console import Group
    from rich.live import Live

    console = _make_console()
    with Live(console=console, auto_refresh=False, transient=True) as live:
        while not found.has_ended():
            room = max(2, (console.size.height - 8) // (1 if console.size.width > 100 else 2))
            live.update(Group(*show_brief(found, room)), refresh=True)
            begun = time.monotonic()
            time.sleep(SECONDS)
            found = again()
            time.sleep(max(0.0, time.monotonic() - begun - SECONDS))  # at most half of a core
    return found


def show_whole(found: Overview) -> Iterator[RenderableType]:
    """Yield all that is shown of a run or a study, but for its failures."""
    yield from show_brief(found, ROWS)
    yield _show_run(found) if found.of_run else _show_air(found)
    if warnings := found.warnings():
        yield _make_text("warnings")
        runs = len(found.courses) > 1
        yield from (_make_text(f"  {text}" + (f" ({n} runs)" if runs else "")) for text, n in warnings.items())


def show_brief(found: Overview, rows: int) -> Iterator[RenderableType]:
    """Yield the parts that are shown while it is watched: setting, progress, and at most `rows` runs."""
    from rich.console import Group

    for name, text in (_show_head_of_run if found.of_run else _show_head)(found).items():
        if name == "repeat":  # in one line, to be pasted; a Text alone would be joined with those around it
            yield Group(_make_text(f"{name:<10}{text}", no_wrap=True, overflow="ignore"))
        else:
            yield _make_text("\n".join(hang_text(f"{name:<10}", text)))
    if not found.of_run:
        yield from _show_runs(found, rows)


def _show_head(found: Overview) -> dict[str, str]:
    from semcom.studies.overrides import format_override_values

    fields = [f"{name}={format_override_values(values)}" for name, values in found.varied().items()]
    counts = ", ".join(f"{number} {state}" for state, number in found.counts().items())
    done, known = sum(c.round for c in found.courses), [c.rounds for c in found.courses if c.rounds]
    more = "" if len(known) == len(found.courses) else " of the runs that have begun"
    rounds = f"; {done:,} of {sum(known):,} rounds{more}" if known else ""
    return {
        "study": f"{found.folder}, {len(found.courses)} runs",
        **({"command": "; ".join(found.command.splitlines())} if found.command else {}),
        **({"varied": "; ".join(fields)} if fields else {}),
        "running": "; ".join(found.workers) or "nothing",
        "progress": counts + rounds,
    }


def _show_head_of_run(found: Overview) -> dict[str, str]:
    from semcom.studies.analysis.overview import list_changed_settings
    from semcom.studies.overrides import format_set_override

    (course,) = found.courses
    fields = [format_set_override(name, value) for name, value in list_changed_settings(course.run).items()]
    return {
        "run": f"{course.run.hash} of {course.run.fields['method']}, in {found.folder}",
        "setting": ", ".join(fields) or "the defaults",
        "progress": f"{course.state}, round {course.round} of {course.rounds}",
        **({"made by": _show_origin(course.run.summary)} if course.run.summary else {}),
        **({"repeat": again.command, **again.blanks()} if (again := found.repeat()) else {}),
        **({"running": "; ".join(found.workers) or "a process of its own"} if course.state == "running" else {}),
    }


def _show_origin(summary: Mapping[str, Any]) -> str:
    """Describe the code and the machine of a run, as far as a run of an older version has stored them."""
    machine, versions = summary.get("machine", {}), summary.get("versions", {})
    commit = str(summary.get("commit") or "no checkout").replace("-dirty", " (changed)")
    units = f"{machine['vector']}, {machine['threads']} threads" if machine else "processor not recorded"
    where = [machine.get("processor"), machine.get("accelerator"), units, summary.get("begun")]
    return ", ".join(filter(None, [f"commit {commit}", f"torch {machine.get('torch', versions.get('torch'))}", *where]))


def _show_runs(found: Overview, rows: int) -> Iterator[RenderableType]:
    """Yield a table with a row per run that has begun; of too many, those that are not done come first."""
    begun = [course for course in found.courses if course.state != "pending"]
    if len(begun) > rows:
        begun.sort(key=lambda course: ORDER.index(course.state))
    if begun:
        yield _show_table(
            ("run", "state", "round", *_name_columns(begun)), [_format_row(course) for course in begun[:rows]]
        )
        yield _make_text(_explain_means(begun), style="dim")
    if len(begun) > rows:
        yield _make_text(f"and {len(begun) - rows} more runs: semcom results {found.folder} --what runs")


def _explain_means(courses: Sequence[Course]) -> str:
    """Explain accuracies: which evaluations a mean is over, and at which of several SNRs they were measured."""
    several = (course.run.test_snrs for course in courses if course.views and len(course.run.test_snrs) > 1)
    first = " or ".join(dict.fromkeys(f"{snrs[0]:g}" for snrs in several))
    names = dict.fromkeys(course.run.metrics[0].label.replace("accuracy", "accuracies") for course in courses)
    return f"{MEAN}\n{' or '.join(names)} tested at {first} dB" if first else MEAN


def _name_columns(courses: Sequence[Course]) -> list[str]:
    units = dict.fromkeys(course.run.metrics[0].shown_unit for course in courses)
    return [f"{name} {' or '.join(units)}".rstrip() for name in ("last", "best", "mean")]


def _format_row(course: Course) -> list[str]:
    """Format the row of a run: the accuracies of its first view."""
    metric = course.run.metrics[0]
    shown = [
        _format_metric(metric, course.first.get(name)) for name in (metric.key("last"), metric.key("best"), metric.name)
    ]
    return [course.label, course.state, f"{course.round}/{course.rounds or '?'}", *shown]


def _show_run(found: Overview) -> RenderableType:
    """Show the accuracies of a run so far, and its traffic."""
    from rich.console import Group

    (course,) = found.courses
    parts: list[RenderableType] = []
    if course.views:
        last, best, mean = _name_columns([course])
        names, metric = ("view", last, best, "in round", mean, "std", "worst 10 %"), course.run.metrics[0]
        parts = [_show_table(names, [_format_view(name, view, metric) for name, view in course.views.items()])]
        parts.append(_make_text(_explain_means([course]), style="dim"))
    run = course.run
    if run.summary:
        joule = is_in_joule(run.field("network.kind"), run.field("air.symbol_energy"))
        kind = run.fields.get("channel.kind", "")
        # A link of a plug-in that is not loaded counts as a channel.
        radio = kind not in LINKS or describe_entry(LINKS, kind).radio
        parts.append(_make_text("\n".join(format_air_lines(run.summary, radio, joule))))
    return Group(*parts)


def _format_view(name: str, view: Mapping[str, Any], metric: Metric) -> list[str]:
    before = [_format_metric(metric, view.get(metric.key(key))) for key in ("last", "best")]
    after = [_format_metric(metric, view.get(key)) for key in (metric.name, metric.key("std"), metric.key("worst10"))]
    return [name, *before, str(view.get("best_round", "-")), *after]


def _show_air(found: Overview) -> RenderableType:
    """Tabulate the received SNR and the traffic of the finished runs of a study."""
    from rich.console import Group

    air = found.air()
    if air.empty:
        return _make_text("received SNR and traffic: with the first run that is done")
    rows = [[str(point), *map(_format_number, air, values)] for point, *values in air.itertuples()]
    snr = "received SNR in dB, and " if any(name.startswith("SNR") for name in air) else ""
    title = f"{snr}traffic per participating client and round: means over the runs that are done"
    table = _show_table(("", *(name.replace(" ", "\n") for name in air)), rows)
    return Group(_make_text("\n".join(hang_text("", title))), table)


def _make_text(text: str, **style: Any) -> Text:
    """Make a text without signs that a terminal obeys."""
    from rich.text import Text

    return Text(escape_controls(text), **style)


def _show_table(columns: Sequence[str], rows: list[list[str]]) -> Table:
    """Make a table: the first column to the left, where long texts wrap, the others to the right."""
    from rich.table import Table

    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="")
    for number, name in enumerate(columns):
        table.add_column(
            escape_controls(name), justify="right" if number else "left", overflow="fold", no_wrap=number > 0
        )
    for row in rows:
        table.add_row(*map(escape_controls, row))
    return table


def _format_metric(metric: Metric, value: float | None) -> str:
    return "-" if value is None else metric.format(value)


def _format_number(name: str, value: float) -> str:
    return "-" if value != value else f"{round(value, 1) + 0.0:.1f}" if name.startswith("SNR") else _show_short(value)


def _show_short(value: float) -> str:
    """Format a large number with three digits: 920,714 is 921 k."""
    for unit, size in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if value >= size:
            return f"{value / size:.3g} {unit}"
    return f"{value:.3g}"
