"""The tables of a report: means, comparisons, failed runs, all runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any

import pandas as pd

from semcom.config import ConfigError
from semcom.files import CONFIG
from semcom.plots.report.names import Names, format_metric, name_heading, name_metric, name_value
from semcom.plots.report.subject import Subject
from semcom.studies.analysis.comparison import Comparison, Comparisons, describe_marks, describe_rule
from semcom.studies.analysis.efficiency import read_cost
from semcom.studies.analysis.study import Study
from semcom.studies.grid import TEST
from semcom.studies.overrides import name_file
from semcom.studies.results.failures import Repeat, build_repeat
from semcom.studies.results.run import Stored, locate_run_config
from semcom.studies.results.table import is_empty

MOST_COMPARISONS = 400
"""Comparisons in a report, each with its bootstrap. Beyond, it shows the command for single ones."""


@dataclass(frozen=True)
class Cell:
    """A cell of a table: its text, and its sort key."""

    text: str
    sort: float | str
    mark: str = ""
    """`best` or `second`, `code` for a command, or empty."""


@dataclass(frozen=True)
class Table:
    """A table that can be sorted by each of its columns."""

    id: str
    title: str
    note: str
    heads: Sequence[str] = ()
    rows: Sequence[Sequence[Cell]] = ()
    sentences: Sequence[str] = ()
    """Text in the place of rows."""

    @property
    def numeric(self) -> list[bool]:
        """True for each column of numbers only, which is aligned to the right."""
        return [not any(isinstance(row[i].sort, str) for row in self.rows) for i in range(len(self.heads))]


def tables(subject: Subject) -> list[Table]:
    """Make the tables of a study, except empty ones."""
    study, view = subject.study, subject.view
    found = [
        _means(study, view),
        _beside(study, view),
        _compared(study, view),
        _failed(study, subject.names),
        _runs(subject),
    ]
    return [table for table in found if table.rows or table.sentences or table.note]


# -- means and comparisons -------------------------------------------------------------------------------------------


def _means(study: Study, view: str | None) -> Table:
    """Tabulate means over seeds, with the marks that `Study.rank` supports."""
    means, axes, metric = study.marked(view=view), list(study.axes), study.metric
    rows = []
    for row in means.to_dict("records"):
        mean = Cell(format_metric(metric, row["mean"]), row["mean"], row["mark"])
        ends = [Cell(format_metric(metric, row[end]), _sortable(row[end])) for end in ("low", "high")]
        said = Cell(row["interval"], row["interval"])
        rows.append([*_place(row, ["variant", *axes], study), mean, *ends, Cell(str(row["n"]), row["n"]), said])
    heads = ["method", *map(name_heading, axes), name_metric(metric), "from", "to", "seeds", "interval"]
    return Table("means", "Means over seeds", describe_marks(bool(means["mark"].any())) if rows else "", heads, rows)


def _beside(study: Study, view: str | None) -> Table:
    """Tabulate the means over seeds of the other metrics that all finished runs measure."""
    done = [run for run in study.tests if run.summary]
    names = dict.fromkeys(metric.name for run in done for metric in run.metrics if metric != study.metric)
    known = [name for name in names if all(name in (run.view(view) or {}) for run in done)]
    rows: list[list[Cell]] = []
    metrics = [study.labels.metric(name) for name in known]
    for metric in metrics:
        found = study.marked(view=view, metric=metric.name).to_dict("records")
        rows = rows or [_place(row, ["variant", *study.axes], study) for row in found]
        for cells, row in zip(rows, found, strict=True):
            cells.append(Cell(format_metric(metric, row["mean"]), _sortable(row["mean"]), row["mark"]))
    heads = ["method", *map(name_heading, study.axes), *map(name_metric, metrics)]
    return Table("beside", "Other metrics, means over seeds", "", heads, rows)


def _compared(study: Study, view: str | None) -> Table:
    """Write a sentence for each pair of variants at each point."""
    pairs, done = list(combinations(study.variants, 2)), [run for run in study.tests if run.status == "done"]
    points = len({tuple(name_value(run.field(axis)) for axis in study.axes) for run in done})
    title, many = "Comparisons", len(pairs) * points
    if many > MOST_COMPARISONS:
        note = f"A report makes {MOST_COMPARISONS} comparisons at most, and {len(pairs)} x {points} are possible"
        return Table("compared", title, f"{note}. Ask for those that you want: semcom compare FOLDER A B.")
    found = Comparisons.corrected([each for pair in pairs for each in _pair(study, pair, view)])
    said = sum(each.supported for each in found)
    apart = "The marks above are corrected for fewer: the differences of neighbours in rank."
    rule = f"({describe_rule('all of them')})"
    note = f"{said} of {len(found)} differences can be told {rule}. {apart}" if found else ""
    return Table("compared", title, note, sentences=[each.sentence for each in found])


def _pair(study: Study, pair: tuple[str, str], view: str | None) -> Sequence[Comparison]:
    """Compare a pair; empty if the two have finished no seed in common."""
    try:
        return study.compare_all(pair, view=view)
    except ConfigError:
        return ()


# -- runs ------------------------------------------------------------------------------------------------------------


def _failed(study: Study, names: Names) -> Table:
    bad = study.runs[study.runs["status"] == "failed"]
    axes = [axis for axis in study.axes if axis != TEST]  # a run fails before it is tested
    columns = ["variant", *axes, "seed"]
    rows = [
        [*_place(row, columns, study), _text(names.text(str(row["error"]))), _text(row["hash"])]
        for row in bad.to_dict("records")
    ]
    heads = ["method", *map(name_heading, axes), "seed", "error", "hash"]
    return Table("failed", "Failed runs", "", heads, rows)


def _runs(subject: Subject) -> Table:
    """Tabulate all runs, each at its first test SNR and with the command that repeats it."""
    study, columns = subject.study, ["variant", *subject.study.axes, "seed"]
    metric = study.metric
    rows, blanks = [], dict[str, str]()
    runs = {run.hash: run for run in sorted(study.tests, key=lambda run: run.is_first_test)}  # the first one is last
    for row in study.runs.to_dict("records"):
        run = runs[row["hash"]]
        numbers = [(run.view(subject.view) or {}).get(name) for name in (metric.name, metric.key("worst10"))]
        measured = [Cell(format_metric(metric, number), _sortable(number)) for number in numbers]
        uses = read_cost(run, "uses") if run.status == "done" else None
        measured += [_measured(run.snr_received_db.get("test"), 2), _measured(uses)]
        again = _repeat(subject, run)
        command, blanks = subject.names.text(again.command), blanks | again.blanks()
        ends = [_text(run.hash), Cell(command, command, "code")]
        rows.append([*_place({**row, TEST: run.test_snr_db}, columns, study), _text(row["status"]), *measured, *ends])
    worst = name_metric(replace(metric, label="worst tenth"))
    heads = ["method", *map(name_heading, study.axes), "seed", "status", name_metric(metric), worst]
    heads += ["received SNR in dB", "channel uses", "hash", "command"]
    note = "Channel uses are those of all clients, rounds and directions. Commands write to a new folder."
    note += "".join(f" {word} is {subject.names.text(text)}." for word, text in blanks.items())
    return Table("runs", "All runs", note, heads, rows)


def _repeat(subject: Subject, run: Stored) -> Repeat:
    """Build the command that repeats a run, empty if the study's command repeats it."""
    if subject.study.record.get("own_training") or not (run.folder / CONFIG).is_file():
        return Repeat("")
    return build_repeat(locate_run_config(subject.folder, run), run.folder, f"repeated/{run.hash}")


def _place(row: Mapping[str, Any], columns: Sequence[str], study: Study) -> list[Cell]:
    return [Cell(name_value(row[name], name, study.labels), _sortable(row[name])) for name in columns]


def _text(text: str) -> Cell:
    return Cell(text, text)


def _measured(value: Any, digits: int = 0) -> Cell:
    return Cell("" if is_empty(value) else f"{value:,.{digits}f}", _sortable(value))


def _sortable(value: Any) -> float | str:
    """Convert a value to a sort key. An empty cell comes last."""
    if is_empty(value) or pd.isna(value):
        return float("inf")
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else name_file(str(value))
