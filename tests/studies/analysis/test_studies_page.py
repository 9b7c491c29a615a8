"""docs/studies.md: its examples run, in their order and in one folder, and its words are those of the code."""

from __future__ import annotations

import contextlib
import io
import re
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path

import pandas as pd
import pytest

import semcom
from semcom.studies.analysis.comparison import Comparison
from semcom.studies.analysis.frames import TABLES
from tests.pages import SKIP, carry_out, read_blocks, read_page, read_table

PAGE = read_page("docs/studies.md")
MORE = {
    "train": ["--model.encoder", "dcgan-narrow", "--device", "cpu"],
    "sweep": ["--set", "model.encoder=dcgan-narrow", "--device", "cpu"],
}
"""Added to the training commands of the page: a smaller network, to save time."""


@pytest.fixture(autouse=True)
def quick_resolve() -> None:
    """These runs are real: the stand-in of conftest.py is not wanted."""


@pytest.fixture(scope="module")
def followed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, list[str]]]:
    """The folder in which the page was followed, and what each block printed."""
    folder, printed, names = tmp_path_factory.mktemp("studies"), [], {"__name__": "page"}
    with contextlib.chdir(folder):
        for block in read_blocks(PAGE):
            if block.language == "bash" and block.comment != SKIP:
                printed.append(carry_out(block.text, MORE))
            elif block.language == "python" and block.comment != SKIP:
                with contextlib.redirect_stdout(io.StringIO()) as out:
                    exec(compile(block.text, "docs/studies.md", "exec"), names)
                printed.append(out.getvalue())
        yield folder, printed


def test_the_commands_print_tables_and_a_sentence(followed: tuple[Path, list[str]]) -> None:
    folder, (_, _, shell, python, *_) = followed
    lines = shell.splitlines()
    assert lines[0] == "Study of 4 runs (4 done) of fedavg, fedcl" == python.splitlines()[0]
    assert lines[1].split() == ["variant", "mean", "low", "high", "n", "interval"]
    assert [line.split()[0] for line in lines[2:4]] == ["fedavg", "fedcl"]
    assert lines[-1] == python.splitlines()[-1] and "between" in lines[-1] or "accurate than" in lines[-1]
    assert "paired t over 2 seeds" in lines[-1] and re.search(r"for \d of 6 pairs of seed and client", lines[-1])


def test_csv_has_what_python_has(followed: tuple[Path, list[str]]) -> None:
    folder, _ = followed
    study = semcom.study(folder / "results" / "mine")
    written = {path.stem: pd.read_csv(path) for path in (folder / "tables").glob("*.csv")}
    assert set(written) == {*TABLES, "mean"}
    for name in TABLES:
        table = getattr(study, name)
        assert len(table) == len(written[name]) > 0 and list(table) == list(written[name]), name
    assert written["mean"]["mean"].tolist() == pytest.approx(study.mean()["mean"].tolist())


def test_the_tables_of_a_real_study_agree(followed: tuple[Path, list[str]]) -> None:
    study = semcom.study(followed[0] / "results" / "mine")
    headline = study.results[study.results["headline"]].set_index("hash")
    accuracies = study.runs.set_index("hash")["accuracy"]
    assert headline["accuracy"].to_dict() == pytest.approx(accuracies.to_dict())
    of_clients = study.clients.groupby(["hash", "view"])["accuracy"].mean()
    smooth = study.smooth().groupby(["hash", "view"])["accuracy"].last()
    for key, view in headline["view"].items():
        assert of_clients[(key, view)] == pytest.approx(accuracies[key]) == pytest.approx(smooth[(key, view)])
    counts = study.confusion.groupby(["hash", "view"])["count"].sum()
    images = study.clients.groupby(["hash", "view"])["test"].sum()
    assert counts.to_dict() == images.to_dict() and (study.clients["train"] == 45).all(), "3 ways of 15 shots"
    assert set(study.rounds["round"]) == {1, 2, 3} and study.rounds["loss"].notna().all()
    assert set(study.results["test_snr_db"]) == {10.0} and (study.traffic["total_uses"] > 0).all()
    up = study.traffic[study.traffic["direction"] == "up"]
    assert up["total_bits"].tolist() == pytest.approx((up["bits"] * 3 * 3).tolist())


# Words of the page ---------------------------------------------------------------------------------------------------


def rows(heading: str) -> list[str]:
    """The first cells of the table below a head row."""
    return re.findall(r"`(\w+)`", " ".join(row[heading] for row in read_table(PAGE, heading)))


def test_every_table_and_every_attribute_is_explained() -> None:
    assert rows("table") == list(TABLES)
    explained = {*rows("attribute"), *re.findall(r"`(mean_first|mean_second)`", PAGE)}
    own = {"first", "second", "point", "metric"}  # what was asked
    assert explained == ({field.name for field in fields(Comparison)} | {"sentence", "supported"}) - own
