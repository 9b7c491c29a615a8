"""Means over seeds as a table that can be read or printed: Markdown, CSV and LaTeX."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import pandas as pd

from semcom.config import ConfigError
from semcom.escape import escape_latex, escape_markdown, escape_tags, format_csv
from semcom.studies.analysis.compare import Views
from semcom.studies.analysis.comparison import describe_marks
from semcom.studies.analysis.means import find_cut_intervals, format_markdown
from semcom.studies.analysis.setting import describe_rounds, describe_setting
from semcom.studies.analysis.study import Study
from semcom.studies.analysis.study import study as read_study
from semcom.studies.names import SHIPPED, Labels, capitalise, field_label
from semcom.tasks.metric import Metric

Spread = Literal["interval", "std"]
FEWEST = 3
"""Seeds from which on something stands behind a mean."""
MARKDOWN = {"best": "**{}**", "second": "<ins>{}</ins>"}
LATEX = {"best": r"\mathbf{{{}}}", "second": r"\underline{{{}}}"}
"""Mark of a cell -> how its mean is written."""


@dataclass(frozen=True)
class Sheet:
    """A table of means: a row per value of some fields, a column per value of others.

    Attributes:
        cells: a row per cell: rows, columns, mean, low and high (ends of the 95 % interval, NaN for none), n (seeds)
            and, of what can be ranked, mark (best, second or nothing); with `spread` std that, too.
        rows: fields that make the rows.
        columns: fields that make the columns; none is one column.
        metric: number of a view that the means are of.
        note: further sentences, on rounds and setting.
        spread: the number behind a mean of three seeds or more: half of its interval, or the standard deviation.
        labels: the names of its methods and its number.
    """

    cells: pd.DataFrame
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    metric: str
    note: str = ""
    spread: Spread = "interval"
    labels: Labels = field(default=SHIPPED, repr=False)

    @property
    def _metric(self) -> Metric:
        return self.labels.metric(self.metric)

    def frame(self) -> pd.DataFrame:
        """Format the cells, such as "63.1 ± 2.0"; each column names its unit."""
        unit = f" ({unit})" if (unit := self._metric.shown_unit) else ""
        texts = self._texts(" ± ", {}, str)
        return texts.rename(columns={name: f"{name}{unit}" for name in texts.columns[len(self.rows) :]})

    def csv(self) -> str:
        """Format a line per cell as CSV, with all digits; accuracies are fractions of 1."""
        return format_csv(self.cells)

    def markdown(self) -> str:
        """Format the table as Markdown, with a line that explains its numbers."""
        texts = self._texts(" ± ", MARKDOWN, escape_markdown)
        words = f"{self._describe_numbers()} {self._describe_rest()}".rstrip()
        return f"{escape_tags(words)}\n\n{format_markdown(texts)}\n"

    def latex(self, name: str | None = None) -> str:
        """Format the table as LaTeX, which needs the package booktabs: a short caption, and all else in a note below.

        Args:
            name: of the label tab:NAME (None: the number's).
        """
        frame = self._texts(r" \pm ", LATEX, escape_latex, math_mode=True)
        left, right = "l" * len(self.rows), "r" * (frame.shape[1] - len(self.rows))
        lines = [
            r"% \usepackage{booktabs}",
            r"\begin{table}[t]",
            r"\centering",
            rf"\caption{{{escape_latex(self._describe_numbers())}}}",
            rf"\label{{tab:{re.sub(r'[^A-Za-z0-9]+', '-', name or self.metric)}}}",
            frame.to_latex(index=False, escape=False, column_format=left + right).rstrip(),
        ]
        if rest := self._describe_rest():
            lines += [r"\par\smallskip\raggedright\footnotesize", escape_latex(rest)]
        return "\n".join([*lines, r"\end{table}", ""])

    def _describe_numbers(self) -> str:
        """Describe the numbers in a sentence."""
        unit = f" in {unit}" if (unit := self._metric.shown_unit) else ""
        cut = ", in brackets where cut at 0 or 100 %" if self._find_cut().any() else ""
        seeds = describe_sheet_intervals(self.cells, "±", self.spread, cut)
        return f"{capitalise(self._metric.label)}{unit}, {seeds}."

    def _describe_rest(self) -> str:
        """Describe the marks, if there are any, the rounds and the setting."""
        marked = {*self.cells.get("mark", ())} & MARKDOWN.keys()
        return f"{describe_marks(True) if marked else ''} {self.note}".strip()

    def _find_cut(self) -> pd.Series:
        """Find the cells whose interval is shown, and cut."""
        shown = compute_spread(self.cells, self.spread).notna() & (self.spread == "interval")
        return find_cut_intervals(self.cells, self._metric) & shown

    def _texts(self, plus: str, marks: Mapping[str, str], escape: Any, math_mode: bool = False) -> pd.DataFrame:
        """Format the table: first the labels of the rows, then the cells."""
        halves, cut = compute_spread(self.cells, self.spread), self._find_cut()
        factor, digits = 100 if self._metric.share else 1, self._metric.choose_decimals(halves)
        found: dict[tuple[Any, ...], str] = {}
        for cell in self.cells.assign(half=halves, cut=cut)[self.cells["mean"].notna()].to_dict("records"):
            mean, low, high, half = (f"{factor * cell[name]:.{digits}f}" for name in ("mean", "low", "high", "half"))
            text = marks.get(cell.get("mark", ""), "{}").format(mean)
            text += "" if cell["cut"] or math.isnan(cell["half"]) else f"{plus}{half}"
            text = f"${text}$" if math_mode else text
            text += f" ({low} to {high})" if cell["cut"] else ""
            found[_read_place(cell, self.rows), _read_place(cell, self.columns)] = text
        down, across = (list(dict.fromkeys(place[i] for place in found)) for i in (0, 1))
        labels = [[escape(self.labels.value(*each)) for each in zip(self.rows, row, strict=True)] for row in down]
        names = [
            escape(self.labels.point(dict(zip(self.columns, column, strict=True))) or capitalise(self._metric.label))
            for column in across
        ]
        head = [escape(field_label(name)) for name in self.rows]
        body = [
            [*label, *(found.get((row, column), "") for column in across)]
            for label, row in zip(labels, down, strict=True)
        ]
        return pd.DataFrame(body, columns=[*head, *names])


def _read_place(cell: Mapping[str, Any], fields: Sequence[str]) -> tuple[Any, ...]:
    return tuple(cell[name] if isinstance(cell[name], str) or not pd.isna(cell[name]) else None for name in fields)


def compute_spread(cells: pd.DataFrame, spread: Spread) -> pd.Series:
    """Compute the spread behind the means of a table; NaN for fewer than three seeds.

    Of two seeds Student's t has one degree of freedom: their interval is 12.7 times as wide as they are apart.
    """
    return (cells["std"] if spread == "std" else (cells["high"] - cells["low"]) / 2).where(cells["n"] >= FEWEST)


def describe_sheet_intervals(cells: pd.DataFrame, shown: str, spread: Spread = "interval", cut: str = "") -> str:
    """Describe over how many seeds means are, and that `shown` (a sign or a word) is their interval, and how `cut`."""
    known = cells.loc[cells["n"] > 0, "n"]
    low, high = int(known.min()), int(known.max())
    seeds = f"{low} seeds" if low == high else f"{low} to {high} seeds"
    if high == 1:
        return "one seed, so there is no interval"
    if shown == "±" and high < FEWEST:
        return f"mean over {seeds}, too few for an interval that is worth printing"
    few = "fewer than three seeds" if shown == "±" else "one seed"
    lacking = f", which what has {few} lacks" if low < (FEWEST if shown == "±" else 2) else ""
    what = "standard deviation over seeds" if spread == "std" else f"95 % intervals over seeds (Student's t){cut}"
    return f"mean over {seeds}; {shown}: {what}{lacking}"


def make_sheet(
    study: Study,
    rows: Sequence[str] = ("variant",),
    columns: Sequence[str] | None = None,
    *,
    view: Views = None,
    metric: str = "accuracy",
    spread: Spread = "interval",
) -> Sheet:
    """Tabulate the means of a study.

    Args:
        study: it all, or a part.
        rows: fields that make the rows: method, variant, or any other.
        columns: fields that make the columns (None: those that vary and make no rows).
        view: name of a view (None: the headline of each run); or variant -> view, as of `Study.compare`.
        metric: number of a view.
        spread: the number behind the means, see `Sheet`.

    Raises:
        ConfigError: as `Study.mean`: no such field, view or metric, or runs that differ in another field.
    """
    down = study.named("rows", rows)
    across = tuple(n for n in study.axes if n not in down) if columns is None else study.named("columns", columns)
    if not (study.runs["status"] == "done").any():
        raise ConfigError("study: no run of it has finished")
    fields, along = [*down, *across], study.along([*down, *across])
    cells = along.marked(fields, view=view, metric=metric)
    cells = cells.assign(std=along.deviate(fields, view=view, metric=metric)) if spread == "std" else cells
    number = study.find_metric(metric)
    setting = f"Setting: {describe_setting(study.runs, {*down, *across})}."
    note = f"{describe_rounds(study, number, view)} {setting}".lstrip()
    return Sheet(cells, down, across, number, note, spread, study.labels)


def table(
    source: Study | Path | str,
    *metrics: str,
    at: Mapping[str, Any] | None = None,
    view: Views = None,
    spread: Spread = "interval",
) -> pd.DataFrame:
    """Tabulate means over seeds as texts: a row for each variant and point, a column for each number of a view.

    Args:
        source: a study, its folder or its archive.
        metrics: numbers, such as accuracy, pooled, auc (none: accuracy).
        at: as of `Study.where`.
        view: as of `Study.compare`.
        spread: the number behind a mean of three seeds or more: half of its 95 % interval, or the standard deviation
            (std).

    Raises:
        ConfigError: as `study` and `Study.mean`.

    Example:
        >>> import semcom
        >>> result = semcom.run(semcom.RunConfig("fedavg", clients=2, train={"rounds": 1}, out="one"))
        >>> list(semcom.table("one", "accuracy", "worst10"))
        ['Method', 'Accuracy (%)', 'Accuracy of the worst 10 % of clients (%)']
    """
    found = (read_study(source) if isinstance(source, Path | str) else source).where(at or {})
    rows = ("variant", *found.axes)
    named = list(map(field_label, rows))
    each = (make_sheet(found, rows, (), view=view, metric=n, spread=spread) for n in metrics or ("accuracy",))
    return pd.concat([sheet.frame().set_index(named) for sheet in each], axis=1).reset_index()
