"""What is written about the stored results, against them: how many runs there were, and how long they took."""

from __future__ import annotations

import functools
import re
from pathlib import Path

import pandas as pd
import pytest

from semcom.studies.results.archive import read_stored_table
from semcom_papers.experiments.claims.evidence import COMMITTED
from tests.pages import read_table

PAGES = Path(__file__).parents[1] / "experiments"
PAGE = (PAGES / "evidence.md").read_text("utf-8")
STORED = (COMMITTED / "README.md").read_text("utf-8")


def table(page: str, first: str) -> pd.DataFrame:
    return pd.DataFrame(read_table(page, first))


@functools.cache
def stored(archive: Path) -> pd.DataFrame:
    return read_stored_table(archive)


def seconds(frame: pd.DataFrame) -> pd.Series:
    """Return how long each run of a table took, by its hash; what has a slash is a part of another number."""
    return frame.filter(regex=r"^seconds\.[^/]+$").sum(axis=1).set_axis(frame["hash"])


@functools.cache
def every_run() -> pd.DataFrame:
    """Return where, on what and of which commit each stored run was carried out."""
    columns = ["hash", "variant", "seed", "accuracy", "device", "commit"]
    found = {p.name.removesuffix("-small.zip"): stored(p) for p in sorted(COMMITTED.glob("*-small.zip"))}
    frames = [frame[frame["status"] == "done"].reindex(columns=columns).assign(study=n) for n, frame in found.items()]
    return pd.concat(frames, ignore_index=True)


@pytest.mark.parametrize("row", table(STORED, "item").to_dict("records"), ids=lambda r: r["item"])
def test_runs_and_hours_are_those_of_the_archives(row: dict[str, str]) -> None:
    frames = [stored(COMMITTED / f"{name}-small.zip") for name in re.findall(r"`([^`]+)`", row["item"])]
    assert int(row["runs"]) == sum(len(frame) for frame in frames)
    assert float(row["hours"]) == pytest.approx(sum(seconds(frame).sum() for frame in frames) / 3600, abs=0.051)
    diverged = re.search(r"(\d+) runs? diverged", row["what came out"])
    assert sum((frame["status"] != "done").sum() for frame in frames) == (int(diverged[1]) if diverged else 0)


def test_every_stored_study_has_a_row() -> None:
    told = {name for item in table(STORED, "item")["item"] for name in re.findall(r"`([^`]+)`", item)}
    assert told == {path.name.removesuffix("-small.zip") for path in COMMITTED.glob("*-small.zip")}


def test_what_reproduces_is_one_page_of_at_most_700_words() -> None:
    """Words as a reader of the site sees them: of a link its text, of a picture what stands for it."""
    shown = re.sub(r"\]\([^)]*\)", "]", (PAGES / "README.md").read_text("utf-8"))
    assert sum(any(map(str.isalnum, word)) for word in shown.split()) <= 700


def test_every_number_of_that_page_stands_on_the_page_that_its_row_links_to() -> None:
    """An interval may stand there with the other sign, as that of the difference the other way round."""
    rows = re.findall(r"^\|.* to .*\]\(.*$", (PAGES / "README.md").read_text("utf-8"), re.M)
    assert len(rows) > 20
    for row in rows:
        page = " ".join((PAGES / re.findall(r"\]\(([\w./-]+)", row)[0]).read_text("utf-8").split())
        for low, high in re.findall(r"\((-?[\d.]+) to (-?[\d.]+)\)", row):
            turned = [other.removeprefix("-") if other[0] == "-" else f"-{other}" for other in (high, low)]
            assert any(f"{a} to {b}" in page for a, b in [(low, high), turned]), row


def test_the_page_has_the_number_of_different_runs_and_their_hours() -> None:
    runs, hours = re.search(r"([\d,]+)\s+different\s+runs\s+in\s+(\d+)\s+hours", PAGE).groups()  # type: ignore[union-attr]
    frames = [stored(path) for path in sorted(COMMITTED.glob("*-small.zip"))]
    each = pd.concat(seconds(f).to_frame("seconds").assign(device=f["device"].to_numpy()) for f in frames)
    # A run on two devices took the time of both.
    different = each.groupby(["hash", "device"], dropna=False)["seconds"].first()
    counted = different.index.get_level_values("hash").nunique()
    assert (int(runs.replace(",", "")), int(hours)) == (counted, round(different.sum() / 3600))


def test_every_stored_run_is_of_committed_code() -> None:
    assert not every_run()["commit"].str.endswith("-dirty").any()


def test_the_page_says_what_the_kind_of_device_makes_of_a_run() -> None:
    runs = every_run()
    both = 100 * runs.groupby(["hash", "device"])["accuracy"].first().unstack().dropna()
    apart = (both["cuda"] - both["cpu"]).abs()
    gpu = runs[(runs["device"] == "cuda") & runs["hash"].isin(both.index)]
    assert set(gpu["study"]) == {"fedcosr-fig9", "letter-full"}
    for study, of in gpu.groupby("study"):
        end = r"by ([\d.]+) points on average, and by ([\d.]+) at most"
        told = re.search(rf"(\d+) runs of `{study}`.*?{end}", " ".join(STORED.split()))
        numbers, found = told.groups(), apart[of["hash"]]  # type: ignore[union-attr]
        for said, number in zip(numbers, (len(found), found.mean(), found.max()), strict=True):
            assert f"{number:.{len(said.partition('.')[2])}f}" == said


def test_every_study_that_mixes_devices_is_named() -> None:
    """And of those with a row the variants that were carried out on a processor."""
    runs = every_run()
    mixed = {name for name, part in runs.groupby("study") if part["device"].nunique() > 1}
    rows = table(STORED[STORED.index("**Studies that mix") :], "study")
    named = {name: set() for cell in rows["study"] for name in re.findall(r"`([^`]+)`", cell)}
    assert mixed == {*named, "fedcosr-table2", "fedcosr-table2-rates", "fedcrl-table2"}
    for row in rows.to_dict("records"):
        for name in re.findall(r"`([^`]+)`", row["study"]):
            named[name] |= set(re.findall(r"`([^`]+)`", row["on a processor (seeds, if not all)"]))
    cpu = runs[runs["device"] == "cpu"]
    assert named == {name: set(cpu[cpu["study"] == name]["variant"]) for name in named}
