"""Accuracy of every variant against the fields that vary: the numbers behind a figure, as plain text and as Markdown.

One place averages runs: it takes those that differ in nothing but the seed, and refuses others.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from semcom.config import ConfigError
from semcom.studies.analysis.statistics import t_interval
from semcom.studies.grid import TEST_SNR
from semcom.studies.names import FIELDS, first_test
from semcom.studies.overrides import plain_text
from semcom.studies.results.table import configuration

UNITS = {name: FIELDS[name] for name in ("channel.snr_db", TEST_SNR, "variant")}
"""Column -> its name and the unit after its values; any other is shown by the name that a command takes."""
NUMBERS = ["accuracy", "std_over_seeds", "std_over_clients", "seeds", "failed"]
"""Columns of cells that are no places in the table."""
Names = str | Sequence[str]
"""One column, or several joint ones."""


def aggregate(frame: pd.DataFrame, axis: Names, lines: str = "variant", others: Sequence[str] = ()) -> pd.DataFrame:
    """Return one row per line, value of the other fields and value of `axis`, over the seeds that finished.

    Where `channel.test_snr_db` is one of them, a run counts at each SNR that it was tested at, see `tested`.

    Args:
        frame: the table of a sweep (`semcom.studies.results.table`).
        axis: the column that varies along a line, or several joint ones.
        lines: the column that tells the lines apart.
        others: further columns that vary.

    Returns:
        Columns: `lines`, `others`, `axis`, accuracy (fraction of 1, mean over seeds), std_over_seeds (n - 1; NaN for
        one seed), std_over_clients (mean over seeds), seeds (finished), failed (runs). Lines keep their order; values
        ascend.

    Raises:
        ConfigError: as `check_seeds_alone`.
    """
    check_seeds_alone(frame, axis, lines, others)
    places = [lines, *others, *_names(axis)]
    rows = []
    for place, cell in _tested_where(frame, places).groupby(places, sort=False, dropna=False):
        done = cell[cell["status"] == "done"]
        metrics = done.reindex(columns=["accuracy", "accuracy_std"]).astype(float)
        mean = metrics.mean()
        spread = metrics["accuracy"].std(ddof=1)
        failed = len(cell) - len(done)
        rows.append((*place, mean["accuracy"], spread, mean["accuracy_std"], len(done), failed))
    return _sorted(pd.DataFrame(rows, columns=[*places, *NUMBERS]), places)


def check_seeds_alone(frame: pd.DataFrame, axis: Names, lines: str = "variant", others: Sequence[str] = ()) -> None:
    """Check that runs of one line and value of `axis` and the others differ in their seeds alone, each of which occurs
    once.

    Args:
        frame: the table of a sweep, or its configurations alone.
        axis: as of `aggregate`, or several columns, or none.
        lines: as of `aggregate`.
        others: as of `aggregate`.

    Raises:
        ConfigError: there is no such axis, or runs differ in another field (the error names it and its values), or have
            the same seed.
    """
    fields = [*_names(axis), *others]
    missing = [name for name in fields if name not in frame]
    if missing:
        wanted = "give a field of the runs, such as channel.snr_db"
        raise ConfigError(f"axis: {missing[0]!r} is no column of the table; {wanted}")
    hidden = [name for name in configuration(frame) if name not in (lines, *fields, "seed")]
    hidden = [name for name in hidden if frame[name].nunique(dropna=False) > 1]
    for (line, *values), cell in _in_doubt(_tested_where(frame, fields), [lines, *fields], hidden):
        at = ", ".join(f"{name} {plain_text(value)}" for name, value in zip(fields, values, strict=True))
        where = f"for {line}" + (f" at {at}" if at else "")
        for name in hidden:
            found = cell[name].drop_duplicates()
            if len(found) > 1:
                shown = " and ".join(map(plain_text, found))
                raise ConfigError(f"{name}: {shown} {where} would be averaged as seeds; give one value of it")
        if "seed" in cell and cell["seed"].duplicated().any():
            seed = cell["seed"][cell["seed"].duplicated()].iloc[0]
            raise ConfigError(f"seed: {seed} occurs twice {where}; give each run once")


def _in_doubt(frame: pd.DataFrame, places: Sequence[str], hidden: Sequence[str]) -> Iterator[tuple[Any, pd.DataFrame]]:
    """Yield each place with its runs if at any of them hidden fields differ or a seed occurs twice; else nothing."""
    codes = _codes(frame, hidden)
    where = _codes(frame, places)
    several = bool(hidden) and bool((codes.groupby(list(where.to_numpy().T)).nunique() > 1).any(axis=None))
    twice = "seed" in frame and bool(where.assign(seed=frame["seed"]).duplicated().any())
    if several or twice:
        yield from frame.groupby(list(places), sort=False, dropna=False)


def _codes(frame: pd.DataFrame, names: Sequence[str]) -> pd.DataFrame:
    """Return columns as whole numbers, the same for the same value; empty cells are a value too."""
    return pd.DataFrame({name: pd.factorize(frame[name], use_na_sentinel=False)[0] for name in names}, frame.index)


def tested(frame: pd.DataFrame) -> pd.DataFrame:
    """Return a table with a row per run and SNR that it was tested at, from one with a row per run.

    `channel.test_snr_db` is that SNR in dB (that of training, where a run has no other), `accuracy` the accuracy at it.
    `accuracy_std` is empty: runs keep the spread over clients at their first SNR alone.
    """
    fields = frame.reindex(columns=[TEST_SNR, "channel.snr_db"])
    wanted = [
        [trained] if pd.isna(test) else [float(snr) for snr in str(test).split(",")]
        for test, trained in fields.itertuples(index=False)
    ]
    each = frame.assign(**{TEST_SNR: pd.Series(wanted, frame.index, dtype=object)})
    rows = each.assign(open=fields[TEST_SNR].isna()).explode(TEST_SNR, ignore_index=True)

    def at(row: Mapping[str, Any]) -> float:
        return row["accuracy"] if row["open"] else of_headline(row, f"at.{row[TEST_SNR]:g}")

    found = [at(row) for row in rows.to_dict("records")] if "view" in rows else []
    accuracy = {"accuracy": pd.Series(found, rows.index, dtype=float), "accuracy_std": np.nan} if found else {}
    return rows.drop(columns="open").assign(**accuracy)


def number_of(row: Mapping[str, Any], metric: str) -> float:
    """Return a number of a run's own, such as clusters.power_common, or else of its first view; NaN for neither."""
    return row[metric] if metric in row else of_headline(row, metric)


def of_headline(row: Mapping[str, Any], metric: str) -> float:
    """Return a number of a run's first view, such as `at.10`; NaN where it has none, as a failed run."""
    return row.get(f"views.{row.get('view')}.{metric}", np.nan)


def _tested_where(frame: pd.DataFrame, places: Sequence[str]) -> pd.DataFrame:
    return tested(frame) if TEST_SNR in places else frame


def _names(axis: Names) -> tuple[str, ...]:
    return (axis,) if isinstance(axis, str) else tuple(axis)


def _sorted(cells: pd.DataFrame, places: Sequence[str]) -> pd.DataFrame:
    """Return the cells with lines in their order of appearance, values ascending (as numbers where they are such)."""
    line, *fields = places
    keys = {line: cells[line].map({name: i for i, name in enumerate(cells[line].unique())})}
    for name in fields:
        place = {label: i for i, label in enumerate(_ascending(cells[name]))}
        keys[name] = cells[name].map(plain_text, na_action=None).map(place)
    order = pd.DataFrame(keys, index=cells.index).sort_values(list(keys), kind="stable").index
    return cells.loc[order].reset_index(drop=True)


def _ascending(column: pd.Series) -> list[str]:
    """Return the labels of a column's values: numbers ascending, then others in their order of appearance."""
    values = column.drop_duplicates()
    return (
        values.sort_values(key=lambda v: pd.to_numeric(v, errors="coerce"), kind="stable")
        .map(plain_text, na_action=None)
        .tolist()
    )


def over_seeds(cells: pd.DataFrame) -> bool:
    """Return whether the spread shown is that over seeds (somewhere two or more finished) or that over clients."""
    return bool((cells["seeds"] > 1).any())


def first_tested(frame: pd.DataFrame, axis: Names, others: Sequence[str] = ()) -> str:
    """Return at which of several test SNRs the accuracies of a table are, in words; arguments as of `aggregate`."""
    if TEST_SNR in (*_names(axis), *others):
        return ""
    return first_test("accuracy", (str(snrs).split(",") for snrs in frame.get(TEST_SNR, ()) if not pd.isna(snrs)))


def heading(cells: pd.DataFrame, tested: str = "") -> str:
    """Return one line that tells what the numbers of the table are."""
    where = f" {tested}" if tested else ""
    spread = "seeds" if over_seeds(cells) else "clients"
    shown = over_seeds(cells) or cells["std_over_clients"].notna().any() or not (cells["seeds"] > 0).any()
    return f"Accuracy in %{where}, mean over clients" + (f" ± standard deviation over {spread}" if shown else "")


def text_table(cells: pd.DataFrame, axis: Names, tested: str = "") -> str:
    """Return the aggregated cells as aligned text: a row per line and other field, a column per value of `axis`.

    Args:
        cells: of `aggregate`.
        axis: as of `aggregate`.
        tested: what `first_tested` returns.
    """
    rows, texts = _grid(cells, axis)
    wide = {name: max(map(len, (name, *rows[name]))) for name in rows}
    labels = ["  ".join(text.ljust(wide[name]) for name, text in row.items()) for row in rows.to_dict("records")]
    head = "  ".join(name.ljust(wide[name]) for name in rows)
    shown = texts.set_axis(pd.Index([label.rstrip() for label in labels]), axis=0)
    shown = shown.set_axis(pd.Index(texts.columns, name=head.rstrip()), axis=1)
    return f"{heading(cells, tested)}\n{shown.to_string(col_space=[len(name) + 1 for name in shown])}"


def markdown_table(cells: pd.DataFrame, axis: Names, tested: str = "") -> str:
    """Return the same as a Markdown table with its heading."""
    rows, texts = _grid(cells, axis)
    return f"{heading(cells, tested)}.\n\n{markdown(pd.concat([rows, texts], axis=1))}"


def markdown(texts: pd.DataFrame) -> str:
    """Return a table of texts as Markdown: the first column to the left, the others to the right.

    Cells are not padded, unlike those of `DataFrame.to_markdown`: pages are kept in git, where one longer name would
    otherwise change every line.
    """
    rule = ["---", *["---:"] * (texts.shape[1] - 1)]
    return "\n".join(f"| {' | '.join(row)} |" for row in (texts.columns, rule, *texts.itertuples(index=False)))


def _grid(cells: pd.DataFrame, axis: Names) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return the labels of the rows, and the cells as texts: a row per line and other field, a column per value."""
    along = list(_names(axis))
    down = [name for name in cells if name not in (*along, *NUMBERS)]
    seeds = over_seeds(cells)
    rows = cells[down].drop_duplicates().reset_index(drop=True)
    across = _sorted(cells[along].drop_duplicates().assign(line=0), ["line", *along])[along]
    place = {(_texts(c[down]), _texts(c[along])): _cell(c, seeds) for _, c in cells.iterrows()}
    at = [_texts(row) for row in rows.itertuples(index=False)]
    columns = {
        ", ".join(_with_unit(n, v, named=True) for n, v in zip(along, value, strict=True) if _is_there(v, along)): [
            place.get((row, _texts(value)), "") for row in at
        ]
        for value in across.itertuples(index=False)
    }
    labels = {UNITS.get(name, (name, ""))[0]: [_with_unit(name, value) for value in rows[name]] for name in down}
    return pd.DataFrame(labels), pd.DataFrame(columns)


def _texts(values: Iterable[object]) -> tuple[str, ...]:
    """Return values as text, to tell places apart by."""
    return tuple(map(plain_text, values))


def _with_unit(name: str, value: object, named: bool = False) -> str:
    """Return a value of a field with its unit, and with the field's name in front."""
    shown, unit = UNITS.get(name, (name, ""))
    return (f"{shown} " if named else "") + f"{plain_text(value)}{unit}"


def _is_there(value: object, along: Sequence[str]) -> bool:
    """Return whether a value is named in a column's title: what joint fields leave open is not."""
    return len(along) == 1 or plain_text(value) != "None"


def _cell(cell: pd.Series, seeds: bool) -> str:
    """Return mean ± spread in percent, and how many runs failed."""
    if not cell["seeds"]:
        return "failed"
    spread = cell["std_over_seeds"] if seeds else cell["std_over_clients"]
    text = f"{100 * cell['accuracy']:.1f}" + ("" if pd.isna(spread) else f" ± {100 * spread:.1f}")
    return text + (f" ({cell['failed']} failed)" if cell["failed"] else "")


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
