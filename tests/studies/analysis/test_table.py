"""The table of a sweep: values worked out by hand."""

from __future__ import annotations

import math
from pathlib import Path

import pandas as pd
import pytest

from semcom.config.identity import flatten_table
from semcom.studies.analysis.means import check_seeds_alone, compute_means
from semcom.studies.results.table import (
    list_configuration_columns,
    make_table,
    read_number_in_row,
    read_table,
    write_table,
)
from tests.refusals import refuses

AXIS = "channel.snr_db"


def test_mixed_columns_survive_parquet(tmp_path: Path) -> None:
    common = dict.fromkeys(("experiment", "scale", "command", "status", "hash", "method"), "x") | {
        "error": None,
        "seed": 0,
    }
    rows = [common | {AXIS: 9.0, "train.lr": 0.1}, common | {AXIS: "0:18", "hyper.lam": 0.5, "seed": 1}]
    read = read_table(write_table(make_table(rows), tmp_path / "results.parquet"))
    assert list(read[AXIS]) == ["9.0", "0:18"]
    assert read["train.lr"][0] == 0.1 and math.isnan(read["train.lr"][1]) and read["hyper.lam"][1] == 0.5
    assert list(read["seed"]) == [0, 1]


def test_flatten_names_with_dots() -> None:
    assert flatten_table({"a": {"b": {"9.0": 1}, "c": [1, 2]}, "d": None}) == {
        "a.b.9.0": 1,
        "a.c": [1, 2],
        "d": None,
    }


def test_unreadable_tables_are_one_line(tmp_path: Path) -> None:
    with refuses("results", "results.parquet"):
        read_table(tmp_path)
    (tmp_path / "results.parquet").write_text("no table")
    with refuses("results", "results.parquet"):
        read_table(tmp_path)
    pd.DataFrame({"a": [1]}).to_parquet(tmp_path / "results.parquet")
    with refuses("results", "experiment"):
        read_table(tmp_path)


def runs(**fields: object) -> pd.DataFrame:
    """Two runs of one method at one SNR, with seeds 0 and 1."""
    plain = {
        "variant": "a",
        "method": "a",
        AXIS: 9.0,
        "status": "done",
        "accuracy": 0.5,
        "accuracy_std": 0.1,
        "seed": [0, 1],
    }
    return pd.DataFrame(plain | fields)


@pytest.mark.parametrize(
    ("name", "values", "shown"),
    [
        ("partition.ways", [2, 3], "2 and 3"),
        ("partition.options.ways", [2, 3], "2 and 3"),
        ("hyper.lam", [0.5, None], "0.5 and None"),
        ("data.name", ["digits", "mnist"], "digits and mnist"),
        ("clients", [5, 10], "5 and 10"),
        ("new_clients", [0, 2], "0 and 2"),
    ],
)
def test_runs_that_differ_in_a_field_are_not_averaged(name: str, values: list[object], shown: str) -> None:
    with refuses(name, f"{shown} for a at channel.snr_db 9"):
        check_seeds_alone(runs(**{name: values}), [AXIS])
    ones = compute_means(runs(**{name: values, "variant": ["a", "b"]}), ["variant", AXIS], "accuracy")
    assert ones["n"].tolist() == [1, 1], "variants may differ in anything"
    assert compute_means(runs(**{name: values}), ["variant", name], "accuracy")["n"].tolist() == [1, 1]


def test_columns_that_are_no_fields_may_differ() -> None:
    """Metrics, what identifies nothing, and where a run was made."""
    others = {
        "hash": ["x", "y"], "command": ["c", "d"], "commit": ["1", "2"], "versions.torch": ["2.9", "2.10"],
        "samples": [1, 2], "device": ["cpu", "cuda"], "chunk": [1, 2], "data.root": ["here", "there"],
        "out": ["r", "s"], "new_clients.head.accuracy": [0.1, 0.2], "traffic.up.floats": [1.0, 2.0],
    }  # fmt: skip
    assert compute_means(runs(**others), ["variant", AXIS], "accuracy")["n"].tolist() == [2]
    table_of_runs = runs(**others, clients=5, **{"train.lr": 0.1, "hyper": None})
    assert list_configuration_columns(table_of_runs) == ["method", AXIS, "seed", "clients", "train.lr", "hyper"]


def test_a_failed_run_of_another_setting_counts_too() -> None:
    frame = runs(**{"partition.ways": [2, 3], "status": ["done", "failed"]})
    with refuses("partition.ways", "2 and 3"):
        check_seeds_alone(frame, [AXIS])


def test_a_seed_that_occurs_twice_and_an_unknown_axis_are_refused() -> None:
    with refuses("seed", 0):
        check_seeds_alone(runs(seed=[0, 0]), [AXIS])
    with refuses("axis", "channel"):
        check_seeds_alone(runs(), ["channel"])


def test_tests_at_several_snrs_are_no_seeds() -> None:
    tested = runs(seed=0, **{"test_snr_db": [9.0, -3.0]})
    with refuses("test_snr_db", "9 and -3"):
        check_seeds_alone(tested, [AXIS])
    check_seeds_alone(tested, [AXIS, "test_snr_db"])


def test_a_row_has_numbers_of_its_run_and_of_its_views() -> None:
    row = {"view": "own", "accuracy": 0.5, "views.own.last": 0.4, "views.own.last_at.-3": 0.25, "views.all.last": 0.75}
    assert read_number_in_row(row, "accuracy") == 0.5 and read_number_in_row(row, "last") == 0.4
    assert read_number_in_row(row, "last", "all") == 0.75 and read_number_in_row(row, "last", test_snr_db=-3.0) == 0.25
    assert math.isnan(read_number_in_row(row, "last", "all", -3.0)) and math.isnan(read_number_in_row({}, "last"))
