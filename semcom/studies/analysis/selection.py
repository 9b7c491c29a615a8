"""The fields that vary in a study, and the selection of a part of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from semcom.config import ConfigError
from semcom.studies.grid import TEST, TEST_SNR
from semcom.studies.results.run import Stored, read_variants
from semcom.studies.results.table import list_configuration_columns, make_table

OF_METHOD = ("hyper", "train", "plugins")
"""Sections of a configuration that a method may settle: its hyperparameters, its paper's schedule, its plug-in."""


def find_axes(found: Sequence[Stored], record: Mapping[str, Any]) -> tuple[str, ...]:
    """List the fields that vary in a study, beside method, variant and seed; the test SNR is the last of them.

    These are the fields that differ between runs of one variant. Where the study does not declare its variants they are
    methods, and fields that only differ between methods are axes too, unless they are the method's own (`OF_METHOD`).
    A field that follows from those that were swept, and from the variant where these are declared, is none: it tells no
    runs apart that they do not, as the options that one kind of channel has and another has not.

    Args:
        found: the runs.
        record: the content of sweep.json.
    """
    known = [run for run in found if run.fields]
    fields = dict.fromkeys(name for run in known for name in run.fields)
    several = [name for name in fields if len({run.fields.get(name) for run in known}) > 1]  # few of a hundred
    frame = make_table([{name: run.fields.get(name) for name in several} for run in known], ()).astype(object)
    frame = frame.where(frame.notna(), None)  # which equals itself
    columns = {name: frame[name].tolist() for name in frame}
    variants, declared = [run.variant for run in known], bool(read_variants(record))
    swept = [name for key in record.get("axes", ()) for name in key.split(",") if name != "seed"]
    places = [columns[name] for name in swept if name in columns]

    def varies(name: str) -> bool:
        if len({*columns[name]}) < 2:
            return False
        between = not declared and name.partition(".")[0] not in OF_METHOD
        return between or not follows(name, [variants])

    def follows(name: str, by: list[list[Any]]) -> bool:
        first = dict[tuple[Any, ...], Any]()
        places = zip(*by, strict=True) if by else [()] * len(known)
        return all(first.setdefault(at, value) == value for at, value in zip(places, columns[name], strict=True))

    settled = [*([variants] if declared else ()), *places]
    names = [name for name in list_configuration_columns(frame) if name not in ("method", "seed") and varies(name)]
    found = [name for name in names if name in swept or not follows(name, settled)]
    tests = [TEST] if TEST_SNR in found or any(len(run.test_snrs) > 1 for run in known) else []
    return (*(name for name in found if name != TEST_SNR), *tests)


def tabulate_keys(found: Sequence[Stored], axes: Sequence[str]) -> pd.DataFrame:
    """Tabulate the columns that tell runs apart, a row per run: hash, method, variant, seed, axes."""
    names = ["hash", "method", "variant", "seed", *axes]
    known = ({"hash": run.hash, "variant": run.variant, TEST: run.test_snr_db, **run.fields} for run in found)
    frame = make_table([{name: fields.get(name) for name in names} for fields in known], names)
    return frame.astype({TEST: float}) if TEST in names else frame


def order_runs(found: Sequence[Stored], axes: Sequence[str]) -> tuple[Stored, ...]:
    """Sort runs by variant, in the order of their appearance, then by the values of axes and seeds, ascending."""
    place = tabulate_keys(found, axes).sort_values(["variant", *axes, "seed"], kind="stable", key=_make_sortable).index
    return tuple(found[i] for i in place)


def select_runs(found: Sequence[Stored], at: Mapping[str, Any], axes: Sequence[str]) -> list[Stored]:
    """Select the runs in which fields have given values.

    Args:
        found: the runs.
        at: dotted field, or method, variant, seed, status or hash -> its value, or a list of values. Numbers may be
            written as texts, and names as on the command line (`hyper.lam`, `partition.test-per-class`).
        axes: fields that vary, for errors.

    Raises:
        ConfigError: there is no such field, or no run with such a value.
    """
    for name, wanted in at.items():
        field = parse_selection_field(name)
        several = list(wanted) if isinstance(wanted, (list, tuple, set, frozenset)) else [wanted]
        values, held = (
            [make_comparable(value) for value in several],
            [make_comparable(run.field(field)) for run in found],
        )
        if all(run.field(field) is None for run in found):
            raise ConfigError(f"at: {name} is no field of these runs; {', '.join(axes) or 'none'} vary")
        if missing := [value for value in values if value not in held]:
            there = ", ".join(dict.fromkeys(f"{value:g}" if isinstance(value, float) else value for value in held))
            raise ConfigError(f"at: no run has {name} {several[values.index(missing[0])]}; there are {there}")
        found = [run for run, value in zip(found, held, strict=True) if value in values]
    return list(found)


def parse_selection_field(name: str) -> str:
    """Turn a flag into the name of a field in results: `channel.snr-db` -> `channel.snr_db`.

    That of the test SNRs, of which a run has several, becomes that of the single one: `test_snr_db`.
    """
    field = name.replace("-", "_")
    return TEST if field == TEST_SNR else field


def make_comparable(value: Any) -> float | str:
    """Convert a value to a number if it is one, also as text, and to text otherwise."""
    try:
        return str(value) if isinstance(value, bool) else float(value)
    except (TypeError, ValueError):
        return str(value)


def _make_sortable(column: pd.Series) -> pd.Series:
    """Make a column sortable: variants as they come, numbers by size, other values by their text."""
    if column.name == "variant":
        return pd.Series(pd.factorize(column)[0], index=column.index)
    numbers = pd.to_numeric(column, errors="coerce")
    return numbers if numbers.notna().any() else column.astype(str)
