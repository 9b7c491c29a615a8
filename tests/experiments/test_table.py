"""The table of a sweep: values worked out by hand."""

from __future__ import annotations

import math
from pathlib import Path

import pandas as pd
import pytest

from experiments.results import flatten, read_table, table, write_table
from experiments.table import aggregate, markdown_table, text_table
from semcom.config import ConfigError

AXIS = "channel.snr_db"


def frame(*rows: tuple[str, float, float | None, float]) -> pd.DataFrame:
    names = ("method", AXIS, "accuracy", "accuracy_std")
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
