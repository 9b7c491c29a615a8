"""Accuracy of every arm against the varied field: the numbers behind a figure, as plain text and as Markdown."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

UNITS = {"channel.snr_db": ("SNR", " dB")}
"""Varied field -> its name and the unit after its values; any other is shown by its own name."""


def aggregate(frame: pd.DataFrame, axis: str) -> pd.DataFrame:
    """One row per arm and value of `axis`, over the seeds that finished.

    Args:
        frame: the table of a sweep (`experiments.results`).
        axis: name of the varied field.

    Returns:
        Columns: method, `axis`, accuracy (fraction of 1, mean over seeds), std_over_seeds (n - 1; NaN for one seed),
        std_over_clients (mean over seeds), seeds (finished), failed (runs). Arms keep their order; values ascend.
    """
    rows = []
    for (method, value), cell in frame.groupby(["method", axis], sort=False):
        done = cell[cell["status"] == "done"]
        metrics = done.reindex(columns=["accuracy", "accuracy_std"]).astype(float)
        mean = metrics.mean()
        spread = metrics["accuracy"].std(ddof=1)
        failed = len(cell) - len(done)
        rows.append((method, value, mean["accuracy"], spread, mean["accuracy_std"], len(done), failed))
    names = ["method", axis, "accuracy", "std_over_seeds", "std_over_clients", "seeds", "failed"]
    return _sorted(pd.DataFrame(rows, columns=names), axis)


def _sorted(cells: pd.DataFrame, axis: str) -> pd.DataFrame:
    """Arms in their order of appearance, values ascending (as numbers where they are numbers)."""
    order = {name: i for i, name in enumerate(cells["method"].unique())}
    values = pd.to_numeric(cells[axis], errors="coerce")
    keys = pd.DataFrame({"arm": cells["method"].map(order), "value": values}, index=cells.index)
    return cells.loc[keys.sort_values(["arm", "value"], kind="stable").index].reset_index(drop=True)


def over_seeds(cells: pd.DataFrame) -> bool:
    """Whether the spread shown is that over seeds (somewhere two or more finished) or that over clients."""
    return bool((cells["seeds"] > 1).any())


def heading(cells: pd.DataFrame) -> str:
    """What the numbers of the table are, in one line."""
    spread = "seeds" if over_seeds(cells) else "clients"
    return f"Accuracy in %, mean over clients ± standard deviation over {spread}"


def text_table(cells: pd.DataFrame, axis: str) -> str:
    """The aggregated cells as aligned text: a row per arm, a column per value of `axis`."""
    lines = _grid(cells, axis)
    widths = [max(len(line[i]) for line in lines) for i in range(len(lines[0]))]
    body = ["  ".join(cell.ljust(w) for cell, w in zip(line, widths, strict=True)).rstrip() for line in lines]
    return "\n".join([heading(cells), *body])


def markdown_table(cells: pd.DataFrame, axis: str) -> str:
    """The same as a Markdown table with its heading."""
    head, *body = (f"| {' | '.join(line)} |" for line in _grid(cells, axis))
    rule = "| --- |" + " ---: |" * (len(_grid(cells, axis)[0]) - 1)
    return "\n".join([f"{heading(cells)}.", "", head, rule, *body])


def _grid(cells: pd.DataFrame, axis: str) -> list[list[str]]:
    """The table's cells as text, the head line first."""
    name, unit = UNITS.get(axis, (axis, ""))
    keyed = {(r["method"], r[axis]): _cell(r, over_seeds(cells)) for _, r in cells.iterrows()}
    methods, values = list(cells["method"].unique()), _ascending(cells[axis])
    head = ["method", *(f"{name} {_number(v)}{unit}" for v in values)]
    return [head, *([m, *(keyed.get((m, v), "") for v in values)] for m in methods)]


def _ascending(column: pd.Series) -> Sequence[object]:
    """The distinct values of a column; numbers ascend, texts keep their order."""
    values = column.drop_duplicates()
    return list(values.sort_values(key=lambda v: pd.to_numeric(v, errors="coerce"), kind="stable"))


def _number(value: object) -> str:
    """A value of the axis, without needless decimals."""
    return f"{value:g}" if isinstance(value, float) else str(value)


def _cell(cell: pd.Series, seeds: bool) -> str:
    """Mean ± spread in percent; says how many runs failed."""
    if not cell["seeds"]:
        return "failed"
    spread = cell["std_over_seeds"] if seeds else cell["std_over_clients"]
    text = f"{100 * cell['accuracy']:.1f}" + ("" if pd.isna(spread) else f" ± {100 * spread:.1f}")
    return text + (f" ({cell['failed']} failed)" if cell["failed"] else "")
