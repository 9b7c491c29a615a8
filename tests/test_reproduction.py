"""What is written about the stored results, against them: how many runs there were, and how long they took."""

from __future__ import annotations

import functools
import re
from pathlib import Path

import pandas as pd
import pytest

from experiments.claims.evidence import COMMITTED
from semcom.studies.results.archive import read_stored_table

PAGE = (Path(__file__).parents[1] / "docs" / "reproduction.md").read_text("utf-8")
STORED = (COMMITTED / "README.md").read_text("utf-8")


def table(page: str, first: str) -> pd.DataFrame:
    """Return the table of a page whose first column has this name."""
    lines = page[page.index(f"\n| {first} |") + 1 :].split("\n\n")[0].splitlines()
    header, _, *rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return pd.DataFrame(rows, columns=header)


@functools.cache
def stored(archive: Path) -> pd.DataFrame:
    """Return the table of an archive, which is read once."""
    return read_stored_table(archive)


def seconds(frame: pd.DataFrame) -> pd.Series:
    """Return how long each run of a table took, by its hash."""
    return frame.filter(regex=r"^seconds\.").sum(axis=1).set_axis(frame["hash"])


@pytest.mark.parametrize("row", table(STORED, "item").to_dict("records"), ids=lambda r: r["item"])
def test_runs_and_hours_are_those_of_the_archives(row: dict[str, str]) -> None:
    frames = [stored(COMMITTED / f"{name}-small.zip") for name in re.findall(r"`([^`]+)`", row["item"])]
    assert int(row["runs"]) == sum(len(frame) for frame in frames)
    assert float(row["hours"]) == pytest.approx(sum(seconds(frame).sum() for frame in frames) / 3600, abs=0.051)
    diverged = re.search(r"(\d+) runs diverged", row["what came out"])
    assert sum((frame["status"] != "done").sum() for frame in frames) == (int(diverged[1]) if diverged else 0)


def test_every_stored_study_has_a_row() -> None:
    told = {name for item in table(STORED, "item")["item"] for name in re.findall(r"`([^`]+)`", item)}
    assert told == {path.name.removesuffix("-small.zip") for path in COMMITTED.glob("*-small.zip")}


def test_the_page_has_the_number_of_different_runs_and_their_hours() -> None:
    runs, hours = re.search(r"([\d,]+)\s+different\s+runs\s+in\s+(\d+)\s+hours", PAGE).groups()  # type: ignore[union-attr]
    each = [seconds(stored(path)) for path in COMMITTED.glob("*-small.zip")]
    different = pd.concat(each).groupby(level=0).first()
    assert (int(runs.replace(",", "")), int(hours)) == (len(different), round(different.sum() / 3600))
