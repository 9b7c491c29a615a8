"""Means over seeds with their intervals, and tables as Markdown.

Only this module averages runs. It takes runs that differ only in the seed, and refuses others.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import pandas as pd

from semcom.config import ConfigError
from semcom.studies.analysis.statistics import compute_t_interval
from semcom.studies.grid import TEST
from semcom.studies.overrides import format_plain_value
from semcom.studies.results.table import list_configuration_columns
from semcom.tasks.metric import Metric


def check_seeds_alone(frame: pd.DataFrame, fields: Sequence[str], lines: str = "variant") -> None:
    """Check that runs of one line and one value of each field differ only in their seeds, and have each seed once.

    Args:
        frame: the table of a sweep, or its configurations alone.
        fields: columns that tell runs of a line apart.
        lines: the column that tells the lines apart.

    Raises:
        ConfigError: there is no such field, runs differ in another field (the error names it and its values), or have
            the same seed.
    """
    missing = [name for name in fields if name not in frame]
    if missing:
        wanted = "give a field of the runs, such as channel.snr_db"
        raise ConfigError(f"axis: {missing[0]!r} is no column of the table; {wanted}")
    shown = (lines, *fields, "seed")
    known = [*list_configuration_columns(frame), *([TEST] if TEST in frame else [])]
    hidden = [name for name in known if name not in shown and frame[name].nunique(dropna=False) > 1]
    for (line, *values), cell in _find_doubtful_seeds(frame, [lines, *fields], hidden):
        at = ", ".join(f"{name} {format_plain_value(value)}" for name, value in zip(fields, values, strict=True))
        where = f"for {line}" + (f" at {at}" if at else "")
        for name in hidden:
            found = cell[name].drop_duplicates()
            if len(found) > 1:
                several = [format_plain_value(value) for value in found]
                one = f"give one value of it, such as --at {name}={several[0]}"
                raise ConfigError(f"{name}: {' and '.join(several)} {where} would be averaged as seeds; {one}")
        if "seed" in cell and cell["seed"].duplicated().any():
            seed = cell["seed"][cell["seed"].duplicated()].iloc[0]
            raise ConfigError(f"seed: {seed} occurs twice {where}; give each run once: move an older one away")


def _find_doubtful_seeds(
    frame: pd.DataFrame, places: Sequence[str], hidden: Sequence[str]
) -> Iterator[tuple[Any, pd.DataFrame]]:
    """Yield each place with its runs if at any of them hidden fields differ or a seed occurs twice; else nothing."""
    codes = _number_values(frame, hidden)
    where = _number_values(frame, places)
    # All places at once, by numbers: looking at them one by one took much of a short sweep's time.
    several = bool(hidden) and bool((codes.groupby(list(where.to_numpy().T)).nunique() > 1).any(axis=None))
    twice = "seed" in frame and bool(where.assign(seed=frame["seed"]).duplicated().any())
    if several or twice:
        yield from frame.groupby(list(places), sort=False, dropna=False)


def _number_values(frame: pd.DataFrame, names: Sequence[str]) -> pd.DataFrame:
    """Number the distinct values of columns; an empty cell is a value too."""
    return pd.DataFrame({name: pd.factorize(frame[name], use_na_sentinel=False)[0] for name in names}, frame.index)


def format_markdown(texts: pd.DataFrame) -> str:
    """Format a table of texts as Markdown: the first column to the left, the others to the right.

    Cells are not padded, unlike those of `DataFrame.to_markdown`: pages are kept in git, where one longer name would
    otherwise change every line.
    """
    rule = ["---", *["---:"] * (texts.shape[1] - 1)]
    return "\n".join(f"| {' | '.join(row)} |" for row in (texts.columns, rule, *texts.itertuples(index=False)))


def compute_means(frame: pd.DataFrame, by: Sequence[str], value: str) -> pd.DataFrame:
    """Average a column over seeds with its 95 % interval, a row per combination of the columns `by`.

    Args:
        frame: a row per finished run.
        by: the columns that separate the averaged groups, that of the lines first.
        value: the column that is averaged; empty cells do not count.

    Returns:
        Columns: `by`, mean, low, high (Student's t over seeds; NaN for one seed), n (seeds), interval (its description,
        in words), in the order of their first appearance.

    Raises:
        ConfigError: as `check_seeds_alone`, or no run has the column.
    """
    if value not in frame:
        raise ConfigError(f"results: no run has {value}")
    line, *fields = by
    check_seeds_alone(frame, fields, line)
    rows = []
    for key, cell in frame.dropna(subset=[value]).groupby(list(by), sort=False, dropna=False):
        found, n = compute_t_interval(cell[value]), len(cell)
        words = f"95 % t interval over {n} seeds" if n > 1 else "none: one seed"
        words = "none: all seeds are equal" if n > 1 and math.isnan(found.low) else words
        rows.append((*key, found.mean, found.low, found.high, n, words))
    return pd.DataFrame(rows, columns=[*by, "mean", "low", "high", "n", "interval"])


def cut_intervals(means: pd.DataFrame, metric: Metric, value: str = "mean") -> pd.DataFrame:
    """Cut the intervals of means of a percentage at 0 and 1, which no mean can pass: that loses no coverage.

    Args:
        means: as of `compute_means`; not differences.
        metric: the number that the means are of. One that does pass 0 or 1, although it is declared a share, keeps its
            intervals.
        value: the column of the means.
    """
    ends = means[["low", "high"]]
    inside = means[value].between(0, 1) & (metric.shown_unit == "%")
    return means.assign(**ends.where(~inside, ends.clip(0, 1)))


def find_cut_intervals(means: pd.DataFrame, metric: Metric) -> pd.Series:
    """Find the intervals that `cut_intervals` has cut, bool, a value per row."""
    return (means["low"].eq(0) | means["high"].eq(1)) & (metric.shown_unit == "%")
