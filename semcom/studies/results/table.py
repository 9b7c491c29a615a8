"""The results of a sweep as one tidy table: a row per run, one column per configuration field and metric."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from semcom.config import NOT_IDENTITY, ConfigError, RunConfig, run_hash, to_dict
from semcom.config.identity import flatten_table
from semcom.files import TABLE, open_file, write_atomically
from semcom.tasks.metric import name_metric_curve

PLACES = ("out", "data.root")
"""Fields with places on one machine: they are in each run's config.json, not in the table."""

FIRST = ("experiment", "scale", "command", "status", "error", "hash", "variant", "method", "seed")
"""Columns that come first, in this order."""


def is_empty(value: Any) -> bool:
    """Check whether a cell of a table has no value."""
    return value is None or (isinstance(value, float) and math.isnan(value))


def make_table_row(
    config: RunConfig, origin: Mapping[str, str], found: Mapping[str, Any] | None, error: str | None
) -> dict[str, Any]:
    """Build one row: `origin` (experiment, scale, command, variant), the configuration, a finished run's summary.

    Beside the columns of the summary's views, `view` is the name of the first one, whose accuracy is the run's.

    Args:
        config: the resolved configuration.
        origin: columns that are not in the configuration.
        found: the run's summary; None for a failed run, whose metrics stay empty.
        error: one line for a failed run, None for a finished one.
    """
    state = {"status": "failed" if error else "done", "error": error, "hash": run_hash(config)}
    view = {"view": next(iter(found["views"]))} if found and found.get("views") else {}
    return {**list_table_fields(config), **flatten_table(found or {}), **view, **origin, **state}


def list_table_fields(config: RunConfig) -> dict[str, Any]:
    """List the fields of a configuration by their dotted names on the command line, without `PLACES`."""
    values = {name: value for name, value in to_dict(config).items() if name != "contents"}  # the hash tells them
    flat = {name.replace(".options.", "."): value for name, value in flatten_table(values).items()}
    return {name: _fit_cell(value) for name, value in flat.items() if name not in PLACES}


def _fit_cell(value: Any) -> Any:
    """Fit a configuration value into one column: several values become a comma list."""
    return ",".join(str(v) for v in value) if isinstance(value, list) else value


def read_number_in_row(
    row: Mapping[str, Any], metric: str, view: str | None = None, test_snr_db: float | None = None
) -> Any:
    """Look up a number of a run in a row of a sweep's table, or in its flat summary and `view`; NaN for none.

    Args:
        row: a run.
        metric: number of a view, or of the run, such as clusters.power_common.
        view: name of the view (None: the headline, or the run).
        test_snr_db: the test SNR that it is of (None: the first one, of which all numbers are).
    """
    name = metric if test_snr_db is None else f"{name_metric_curve(metric)}.{test_snr_db:g}"
    found = row.get(f"views.{view or row.get('view')}.{name}", math.nan)
    return row.get(name, math.nan) if view is None and (found is None or found != found) else found


def make_table(rows: Sequence[Mapping[str, Any]], first: Sequence[str] = FIRST) -> pd.DataFrame:
    """Make the rows one frame, the columns `first` in front; one that mixes text and numbers becomes text."""
    names = list(dict.fromkeys([*first, *(name for row in rows for name in row)]))
    return pd.DataFrame({name: _unify_types([r.get(name) for r in rows]) for name in names})


def _unify_types(values: list[Any]) -> list[Any]:
    """Make the values of one column text where some are; Parquet stores one type per column."""
    texts = [isinstance(v, str) for v in values if v is not None]
    return [v if v is None else str(v) for v in values] if any(texts) and not all(texts) else values


def list_configuration_columns(frame: pd.DataFrame) -> list[str]:
    """List the columns of a table that identify a run: fields of its configuration that are in its hash."""
    known = {field.name: field for field in dataclasses.fields(RunConfig)}
    parts: list[tuple[str, Any]] = [(name, field.default_factory) for name, field in known.items()]
    own = {name: vars(part()) for name, part in parts if isinstance(part, type) and dataclasses.is_dataclass(part)}

    def counts(column: str) -> bool:
        section, _, rest = column.partition(".")
        if column == "task" and pd.api.types.is_numeric_dtype(frame[column]):
            return False  # that part of the loss, which methods log
        inside = section == "hyper" or rest in own.get(section, ()) or "options" in own.get(section, ())
        return (inside if rest else section in known) and column not in NOT_IDENTITY

    return [column for column in frame if counts(column)]


def write_table(frame: pd.DataFrame, path: Path) -> Path:
    """Write the table (Parquet), all of it or nothing, and return `path`."""
    return write_atomically(path, frame.to_parquet(index=False))


def read_table(path: Path) -> pd.DataFrame:
    """Read the table of a sweep, from its folder or its file.

    Raises:
        ConfigError: there is none, or it is no such table.
    """
    path = path / TABLE if path.is_dir() else path
    try:
        with open_file(path) as file:
            frame = pd.read_parquet(file)
    except (OSError, ValueError) as error:  # pyarrow's own errors are both
        reason = str(error).splitlines()[0] if path.exists() else "a sweep leaves its table when it ends"
        raise ConfigError(f"results: {path} cannot be read: {reason}") from None
    if "variant" not in frame and "method" in frame:  # of a version in which each method had one
        frame.insert(0, "variant", frame["method"])
    missing = [name for name in FIRST if name not in frame]
    if missing:
        raise ConfigError(f"results: {path} is not the table of a sweep: it has no column {missing[0]!r}")
    return frame
