"""The table of a sweep: values worked out by hand."""

from __future__ import annotations

import math
from pathlib import Path

import pandas as pd
import pytest

from semcom.config import ConfigError
from semcom.studies.analysis.means import aggregate, markdown_table, text_table
from semcom.studies.results.table import configuration, flatten, read_table, table, write_table

AXIS = "channel.snr_db"


def frame(*rows: tuple[str, float, float | None, float]) -> pd.DataFrame:
    names = ("variant", AXIS, "accuracy", "accuracy_std")
    cells = pd.DataFrame(rows, columns=list(names))
    return cells.assign(status=["failed" if a is None else "done" for a in cells["accuracy"].replace({math.nan: None})])


def test_one_seed_shows_the_spread_over_clients() -> None:
    cells = aggregate(frame(("b", 9.0, 0.5, 0.1), ("b", -3.0, 0.25, 0.125), ("a", 9.0, 0.75, 0.05)), AXIS)
    assert text_table(cells, AXIS).splitlines() == [
        "Accuracy in %, mean over clients ± standard deviation over clients",
        "method    SNR -3 dB     SNR 9 dB",
        "b       25.0 ± 12.5  50.0 ± 10.0",
        "a                     75.0 ± 5.0",
    ]
    assert cells["std_over_seeds"].isna().all()


def test_several_seeds_show_the_spread_over_seeds() -> None:
    # mean of .5, .6, .7 is .6; their deviation with n - 1 is .1
    cells = aggregate(
        frame(*(("a", 0.0, v, 0.3) for v in (0.5, 0.6, 0.7)), ("a", 0.0, None, 0.0), ("a", 9.0, None, 0.0)), AXIS
    )
    assert cells["accuracy"][0] == pytest.approx(0.6) and cells["std_over_seeds"][0] == pytest.approx(0.1)
    assert cells[["seeds", "failed"]].values.tolist() == [[3, 1], [0, 1]]
    assert markdown_table(cells, AXIS).splitlines() == [
        "Accuracy in %, mean over clients ± standard deviation over seeds.",
        "",
        "| method | SNR 0 dB | SNR 9 dB |",
        "| --- | ---: | ---: |",
        "| a | 60.0 ± 10.0 (1 failed) | failed |",
    ]


def test_other_axes_show_their_own_name() -> None:
    cells = aggregate(frame(("a", 0.0, 0.5, 0.1)).rename(columns={AXIS: "partition.ways"}), "partition.ways")
    assert text_table(cells, "partition.ways").splitlines()[1] == "method  partition.ways 0"


def test_mixed_columns_survive_parquet(tmp_path: Path) -> None:
    common = dict.fromkeys(("experiment", "scale", "command", "status", "hash", "method"), "x") | {
        "error": None,
        "seed": 0,
    }
    rows = [common | {AXIS: 9.0, "train.lr": 0.1}, common | {AXIS: "0:18", "hyper.lam": 0.5, "seed": 1}]
    read = read_table(write_table(table(rows), tmp_path / "results.parquet"))
    assert list(read[AXIS]) == ["9.0", "0:18"]
    assert read["train.lr"][0] == 0.1 and math.isnan(read["train.lr"][1]) and read["hyper.lam"][1] == 0.5
    assert list(read["seed"]) == [0, 1]


def test_flatten_names_with_dots() -> None:
    assert flatten({"a": {"b": {"9.0": 1}, "c": [1, 2]}, "d": None}) == {"a.b.9.0": 1, "a.c": [1, 2], "d": None}


def test_unreadable_tables_are_one_line(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"^results: .*results.parquet cannot be read: there is no such file$"):
        read_table(tmp_path)
    (tmp_path / "results.parquet").write_text("no table")
    with pytest.raises(ConfigError, match=r"^results: .*results.parquet cannot be read: [^\n]*$"):
        read_table(tmp_path)
    pd.DataFrame({"a": [1]}).to_parquet(tmp_path / "results.parquet")
    with pytest.raises(ConfigError, match="is not the table of a sweep: it has no column 'experiment'$"):
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
    with pytest.raises(ConfigError) as error:
        aggregate(runs(**{name: values}), AXIS)
    wanted = "would be averaged as seeds; give one value of it"
    assert str(error.value) == f"{name}: {shown} for a at channel.snr_db 9 {wanted}"
    ones = aggregate(runs(**{name: values, "variant": ["a", "b"]}), AXIS)  # variants may differ in anything
    assert ones["seeds"].tolist() == [1, 1]
    if name != "data.name":
        assert aggregate(runs(**{name: values}), name)["seeds"].tolist() == [1, 1]


def test_columns_that_are_no_fields_may_differ() -> None:
    """Metrics, what identifies nothing, and where a run was made."""
    others = {
        "hash": ["x", "y"], "command": ["c", "d"], "commit": ["1", "2"], "versions.torch": ["2.9", "2.10"],
        "samples": [1, 2], "device": ["cpu", "cuda"], "chunk": [1, 2], "data.root": ["here", "there"],
        "out": ["r", "s"], "new_clients.head.accuracy": [0.1, 0.2], "traffic.up.floats": [1.0, 2.0],
    }  # fmt: skip
    assert aggregate(runs(**others), AXIS)["seeds"].tolist() == [2]
    table_of_runs = runs(**others, clients=5, **{"train.lr": 0.1, "hyper": None})
    assert configuration(table_of_runs) == ["method", AXIS, "seed", "clients", "train.lr", "hyper"]


def test_a_failed_run_of_another_setting_counts_too() -> None:
    frame = runs(**{"partition.ways": [2, 3], "status": ["done", "failed"]})
    with pytest.raises(ConfigError, match=r"^partition.ways: 2 and 3 "):
        aggregate(frame, AXIS)


def test_a_seed_that_occurs_twice_and_an_unknown_axis_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"^seed: 0 occurs twice for a at channel.snr_db 9; give each run once$"):
        aggregate(runs(seed=[0, 0]), AXIS)
    with pytest.raises(ConfigError, match=r"^axis: 'channel' is no column of the table; "):
        aggregate(runs(), "channel")


def test_every_value_of_the_axis_has_a_column_of_its_own() -> None:
    """An open field, and numbers that are equal in their first digits."""
    cells = aggregate(runs(**{"channel.downlink_snr_db": [None, 3.0]}), "channel.downlink_snr_db")
    head = text_table(cells, "channel.downlink_snr_db").splitlines()[1]
    assert head == "method  channel.downlink_snr_db 3  channel.downlink_snr_db None"
    cells = aggregate(runs(**{"train.lr": [0.10000001, 0.10000002]}), "train.lr")
    assert markdown_table(cells, "train.lr").splitlines()[2] == "| method | train.lr 0.10000001 | train.lr 0.10000002 |"
