"""The head of a report: the runs and their settings."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date
from pathlib import Path
from typing import Any

from semcom.files import SUMMARY
from semcom.plots.report.names import join_names, name_heading, name_value
from semcom.plots.report.subject import Subject
from semcom.studies import names as study_names
from semcom.studies.analysis.overview import list_changed_settings
from semcom.studies.analysis.study import Study
from semcom.studies.results.failures import read_repeat
from semcom.studies.results.run import Stored, list_damaged_runs

Fact = tuple[str, str]
"""Its subject and its text."""


def title_study(study: Study, folder: Path) -> str:
    """Title a study by its experiment with the scale, and the name of its folder."""
    sweep, name = study.record, folder.resolve().name
    known = sweep.get("experiment") not in (None, "study")  # a study that nobody has declared
    return f"{sweep['experiment']}, scale {sweep.get('scale')} ({name})" if known else name


def facts(subject: Subject) -> list[Fact]:
    """List the facts of a study: command, runs and their states, varied and common settings, versions, days."""
    study, names = subject.study, subject.names
    swept = read_repeat(study.record.get("command"))
    runs = study.runs
    states = ", ".join(f"{count} {status}" for status, count in runs["status"].value_counts().items())
    found = [
        (
            "Command",
            names.text(
                "; ".join([*swept.command.splitlines(), *map(": ".join, swept.blanks().items())]) if swept else ""
            ),
        ),
        ("Runs", f"{len(runs)} ({states})"),
        ("Methods", ", ".join(name_value(name, "variant", study.labels) for name in study.variants)),
        *(
            (f"Varied: {name_heading(axis)}", ", ".join(map(name_value, sort_field_values(study, axis))))
            for axis in study.axes
        ),
        ("Seeds", join_names(sort_field_values(study, "seed"))),
        ("Set in all runs", names.text(_settings(subject))),
        (study_names.capitalise(study.metric.label), _state_headline(study, subject.view)),
        ("Intervals", _intervals(study)),
        ("Versions", _versions(study)),
        ("Commit", _list_entries(study, "commit")),
        ("Device", _list_entries(study, "device")),
        ("Machine", _machines(study)),
        ("Finished", _days(study, subject.folder.is_file())),
        ("Left out", names.text("; ".join(list_damaged_runs(study.stored, study.record)))),
        ("Warnings", _warnings(study)),
    ]
    return [(name, text) for name, text in found if text]


def sort_field_values(study: Study, field: str) -> list[Any]:
    """List the values of a field in a study: numbers ascending, others in their order, None at the end.

    Runs with unknown configuration do not count.
    """
    found = list(dict.fromkeys(run.field(field) for run in study.tests if run.fields))
    values = [value for value in found if value is not None]
    numeric = all(isinstance(value, int | float) for value in values)
    return [*(sorted(values) if numeric else values), *([None] if None in found else [])]


def _settings(subject: Subject) -> str:
    """List the fields that all runs share and that differ from their defaults."""
    runs = [run for run in subject.study.stored if run.fields]
    apart = {"seed", *subject.study.axes}
    first = list_changed_settings(runs[0]) if runs else {}
    common = {n: v for n, v in first.items() if n not in apart and all(v == run.fields.get(n) for run in runs)}
    return ", ".join(f"{name} {_format_value(value)}" for name, value in common.items())


def _format_value(value: Any) -> str:
    return " ".join(map(name_value, value)) or "none" if isinstance(value, list | tuple) else name_value(value)


def _state_headline(study: Study, view: str | None) -> str:
    """State the meaning of an accuracy, and the view of each method."""
    results = study.results
    views = results[results["headline"].astype(bool)] if view is None else results[results["view"] == view]
    of = {name: views.loc[views["view"] == name, "variant"].unique() for name in views["view"].unique()}
    said = ", ".join(of) if len(of) == 1 else "; ".join(f"{name} of {', '.join(each)}" for name, each in of.items())
    return f"mean over clients and over the last evaluations of a run, at most ten; view {said}" if of else ""


def _intervals(study: Study) -> str:
    """State the basis of intervals, or why they are missing."""
    seeds = study.results.groupby(["variant", *study.axes], dropna=False)["seed"].nunique()
    counts = sorted(set(seeds))
    if not counts:
        return ""
    if counts == [1]:
        return "none: each point has one seed, which says nothing of how sure a mean is"
    one = "; none for points with one seed" if counts[0] == 1 else ""
    cut = ", cut at 0 and 100 %" if study.metric.shown_unit == "%" else ""
    return f"95 % t intervals over {' or '.join(str(n) for n in counts if n > 1)} seeds{cut}{one}"


def _versions(study: Study) -> str:
    columns = [name for name in study.runs if name.startswith("versions.")]
    return ", ".join(f"{name.removeprefix('versions.')} {join_names(list(study.runs[name]))}" for name in columns)


def _list_entries(study: Study, name: str) -> str:
    """List the distinct values of an entry in the summaries of finished runs."""
    return join_names([run.summary[name] for run in study.stored if run.summary and run.summary.get(name)])


def _machines(study: Study) -> str:
    """List the processors of finished runs, with their vector units; older versions did not store them."""
    found = [run.summary["machine"] for run in study.stored if run.summary and run.summary.get("machine")]
    return join_names([f"{each.get('accelerator', each['processor'])} ({each['vector']})" for each in found])


def _warnings(study: Study) -> str:
    first = [warnings[0] for run in study.stored if (warnings := (run.summary or {}).get("warnings"))]
    return f"in {len(first)} of {len(study.stored)} runs; the first one: {first[0]}" if first else ""


def _days(study: Study, archived: bool) -> str:
    found = sorted(_finished(study.stored)) if not archived else []  # an archive keeps no dates
    return " to ".join(dict.fromkeys(day.isoformat() for day in (found[0], found[-1]))) if found else ""


def _finished(runs: tuple[Stored, ...]) -> Iterator[date]:
    for run in runs:
        if run.status == "done":
            yield date.fromtimestamp((run.folder / SUMMARY).stat().st_mtime)
