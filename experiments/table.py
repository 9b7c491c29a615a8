"""Accuracy of every method against the varied field: the numbers behind a figure, as plain text and as Markdown.

One place averages runs: it takes those that differ in nothing but the seed, and refuses others.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import pandas as pd

from experiments.results import configuration
from experiments.statistics import t_interval
from semcom.config import ConfigError

UNITS = {"channel.snr_db": ("SNR", " dB")}
"""Varied field -> its name and the unit after its values; any other is shown by its own name."""


def aggregate(frame: pd.DataFrame, axis: str, lines: str = "method") -> pd.DataFrame:
    """Return one row per line and value of `axis`, over the seeds that finished.

    Args:
        frame: the table of a sweep (`experiments.results`).
        axis: the column that varies along a line.
        lines: the column that tells the lines apart.

    Returns:
        Columns: `lines`, `axis`, accuracy (fraction of 1, mean over seeds), std_over_seeds (n - 1; NaN for one seed),
        std_over_clients (mean over seeds), seeds (finished), failed (runs). Lines keep their order; values ascend.

    Raises:
        ConfigError: as `check_seeds_alone`.
    """
    check_seeds_alone(frame, axis, lines)
    rows = []
    for (line, value), cell in frame.groupby([lines, axis], sort=False, dropna=False):
        done = cell[cell["status"] == "done"]
        metrics = done.reindex(columns=["accuracy", "accuracy_std"]).astype(float)
        mean = metrics.mean()
        spread = metrics["accuracy"].std(ddof=1)
        failed = len(cell) - len(done)
        rows.append((line, value, mean["accuracy"], spread, mean["accuracy_std"], len(done), failed))
    names = [lines, axis, "accuracy", "std_over_seeds", "std_over_clients", "seeds", "failed"]
    return _sorted(pd.DataFrame(rows, columns=names), axis, lines)


def check_seeds_alone(frame: pd.DataFrame, axis: str | Sequence[str], lines: str = "method") -> None:
    """Check that runs of one line and value of `axis` differ in their seeds alone, each of which occurs once.

    Args:
        frame: the table of a sweep, or its configurations alone.
        axis: as of `aggregate`, or several columns, or none.
        lines: as of `aggregate`.

    Raises:
        ConfigError: there is no such axis, or runs differ in another field (the error names it and its values), or have
            the same seed.
    """
    fields = [axis] if isinstance(axis, str) else list(axis)
    missing = [name for name in fields if name not in frame]
    if missing:
        wanted = "give a field of the runs, such as channel.snr_db"
        raise ConfigError(f"axis: {missing[0]!r} is no column of the table; {wanted}")
    hidden = [name for name in configuration(frame) if name not in (lines, *fields, "seed")]
    hidden = [name for name in hidden if frame[name].nunique(dropna=False) > 1]
    for (line, *values), cell in frame.groupby([lines, *fields], sort=False, dropna=False):
        at = ", ".join(f"{name} {_label(value)}" for name, value in zip(fields, values, strict=True))
        where = f"for {line}" + (f" at {at}" if at else "")
        for name in hidden:
            found = cell[name].drop_duplicates()
            if len(found) > 1:
                shown = " and ".join(map(_label, found))
                raise ConfigError(f"{name}: {shown} {where} would be averaged as seeds; give one value of it")
        if "seed" in cell and cell["seed"].duplicated().any():
            seed = cell["seed"][cell["seed"].duplicated()].iloc[0]
            raise ConfigError(f"seed: {seed} occurs twice {where}; give each run once")


def _sorted(cells: pd.DataFrame, axis: str, lines: str) -> pd.DataFrame:
    """Return the cells with lines in their order of appearance, values ascending (as numbers where they are such)."""
    order = {name: i for i, name in enumerate(cells[lines].unique())}
    values = pd.to_numeric(cells[axis], errors="coerce")
    keys = pd.DataFrame({"line": cells[lines].map(order), "value": values}, index=cells.index)
    return cells.loc[keys.sort_values(["line", "value"], kind="stable").index].reset_index(drop=True)


def over_seeds(cells: pd.DataFrame) -> bool:
    """Return whether the spread shown is that over seeds (somewhere two or more finished) or that over clients."""
    return bool((cells["seeds"] > 1).any())


def heading(cells: pd.DataFrame) -> str:
    """Return one line that tells what the numbers of the table are."""
    spread = "seeds" if over_seeds(cells) else "clients"
    return f"Accuracy in %, mean over clients ± standard deviation over {spread}"


def text_table(cells: pd.DataFrame, axis: str) -> str:
    """Return the aggregated cells as aligned text: a row per method, a column per value of `axis`."""
    texts = _grid(cells, axis)
    return f"{heading(cells)}\n{texts.to_string(col_space=[len(head) + 1 for head in texts])}"


def markdown_table(cells: pd.DataFrame, axis: str) -> str:
    """Return the same as a Markdown table with its heading."""
    texts = _grid(cells, axis).rename_axis(index="method", columns=None)
    return f"{heading(cells)}.\n\n{markdown(texts.reset_index())}"


def markdown(texts: pd.DataFrame) -> str:
    """Return a table of texts as Markdown: the first column to the left, the others to the right.

    Cells are not padded, unlike those of `DataFrame.to_markdown`: pages are kept in git, where one longer name would
    otherwise change every line.
    """
    rule = ["---", *["---:"] * (texts.shape[1] - 1)]
    return "\n".join(f"| {' | '.join(row)} |" for row in (texts.columns, rule, *texts.itertuples(index=False)))


def _grid(cells: pd.DataFrame, axis: str) -> pd.DataFrame:
    """Return the cells as texts: a row per method, a column per value."""
    name, unit = UNITS.get(axis, (axis, ""))
    values = cells[axis].drop_duplicates().sort_values(key=_as_number, kind="stable")
    seeds = over_seeds(cells)
    texts = [_cell(cell, seeds) for _, cell in cells.iterrows()]
    labels = cells[axis].map(_label, na_action=None)
    wide = pd.DataFrame({"method": cells["method"], "value": labels, "text": texts})
    wide = wide.pivot(index="method", columns="value", values="text").fillna("")
    wide = wide.loc[cells["method"].unique(), [_label(value) for value in values]]
    wide.columns = pd.Index([f"{name} {label}{unit}" for label in wide.columns], name="method")
    return wide.rename_axis(index=None)


def _as_number(column: pd.Series) -> pd.Series:
    return pd.to_numeric(column, errors="coerce")


def _label(value: object) -> str:
    """Return a value of a field as text, without needless decimals; None for an empty one."""
    if pd.isna(value):
        return "None"
    short = f"{value:g}" if isinstance(value, float) else str(value)
    return short if not isinstance(value, float) or float(short) == value else str(value)


def _cell(cell: pd.Series, seeds: bool) -> str:
    """Return mean ± spread in percent, and how many runs failed."""
    if not cell["seeds"]:
        return "failed"
    spread = cell["std_over_seeds"] if seeds else cell["std_over_clients"]
    text = f"{100 * cell['accuracy']:.1f}" + ("" if pd.isna(spread) else f" ± {100 * spread:.1f}")
    return text + (f" ({cell['failed']} failed)" if cell["failed"] else "")


def place(name: str, value: Any) -> str:
    """Return a varied field with its value in words, such as "SNR 10 dB"."""
    shown, unit = UNITS.get(name, (name, ""))
    return f"{shown} {_label(value)}{unit}"


def means(frame: pd.DataFrame, by: Sequence[str], value: str) -> pd.DataFrame:
    """Return the mean of a column over seeds with its 95 % interval, a row per combination of the columns `by`.

    Args:
        frame: a row per finished run.
        by: the columns that tell apart what is not averaged, that of the lines first.
        value: the column that is averaged; empty cells do not count.

    Returns:
        Columns: `by`, mean, low, high (Student's t over seeds; NaN for one seed), n (seeds), interval (what it is over,
        in words), in the order of their first appearance.

    Raises:
        ConfigError: as `check_seeds_alone`.
    """
    line, *fields = by
    check_seeds_alone(frame, fields, line)
    rows = []
    for key, cell in frame.dropna(subset=[value]).groupby(list(by), sort=False, dropna=False):
        found, n = t_interval(cell[value]), len(cell)
        words = f"95 % t interval over {n} seeds" if n > 1 else "none: one seed"
        words = "none: all seeds are equal" if n > 1 and math.isnan(found.low) else words
        rows.append((*key, found.mean, found.low, found.high, n, words))
    return pd.DataFrame(rows, columns=[*by, "mean", "low", "high", "n", "interval"])
