"""`semcom results` and `semcom compare`: what they print and write, and what they refuse."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

import semcom
from semcom.cli import main as cli
from tests.commands import told
from tests.studies.conftest import quick_resolve  # noqa: F401 - a fixture
from tests.studies.folders import begin, config, simple


@pytest.fixture
def folder(here: Path) -> Path:
    """Two methods at two SNRs with three seeds, and one run that failed."""
    for snr in (0.0, 9.0):
        for seed, accuracy in enumerate((0.5, 0.55, 0.45)):
            simple(here / "s", config("fedavg", seed, snr), [accuracy, accuracy])
            simple(here / "s", config("fedcl", seed, snr), [accuracy + 0.1 + seed / 100, accuracy + 0.1])
    begin(here / "s" / "bad", config("fedcl", 3, 9.0), [])
    (here / "s" / "bad" / "error.txt").write_text("RunError: the loss is NaN\n")
    return here / "s"


def test_results_prints_means_or_a_table(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    head, names, *lines = told(capsys, "results s")
    assert head == "Study of 13 runs (12 done, 1 failed) of fedavg, fedcl; varied: channel.snr_db"
    assert names.split() == ["variant", "channel.snr_db", "mean", "low", "high", "n", "interval"]
    assert " ".join(lines[0].split()) == "fedavg 0 0.5 0.3758 0.6242 3 95 % t interval over 3 seeds"
    _, names, *lines = told(capsys, "results s --what runs --at seed=3")
    assert names.split()[-2:] == ["status", "error"] and lines[0].endswith("failed RunError: the loss is NaN")
    _, names, *lines = told(capsys, "results s --what traffic --at method=fedcl channel.snr_db=9 seed=0,1")
    assert len(lines) == 4 and names.split()[5] == "direction"


def test_results_writes_csv(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert told(capsys, "results s --csv out --what clients") == ["table: out/clients.csv"]
    assert len(pd.read_csv("out/clients.csv")) == 24
    names = ["runs", "mean", "results", "rounds", "clients", "classes", "traffic"]  # no run kept its matrices
    assert told(capsys, "results s --csv all") == [f"table: all/{name}.csv" for name in names]
    assert sorted(path.stem for path in Path("all").iterdir()) == sorted(names)
    assert pd.read_csv("all/runs.csv")["accuracy"].count() == 12


def test_compare_prints_a_sentence_for_each_point(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = told(capsys, "compare s fedcl fedavg --csv out.csv")
    study = semcom.study(folder)
    assert lines == [*str(study.compare_all(["fedcl", "fedavg"])).splitlines(), "table: out.csv"]
    assert lines[0].startswith("At SNR 0 dB, fedcl is 10.5 percentage points more accurate than fedavg")
    assert pd.read_csv("out.csv")["difference"].tolist() == pytest.approx([0.105, 0.105])
    one = told(capsys, "compare s fedcl fedavg --at channel.snr_db=9 --metric worst10 --view fedavg=personal")
    of_view = study.where({"channel.snr_db": 9}).compare(
        "fedcl", "fedavg", metric="worst10", view={"fedavg": "personal"}
    )
    assert one == [str(of_view)] and "between fedcl and fedavg (personal) can" in one[0]
    both = told(capsys, "compare s fedcl fedavg --at channel.snr_db=9 --view personal")
    assert " fedcl (personal) is 10.5 percentage points more accurate than fedavg (personal) (" in both[0]
    assert " With fedcl (personal) the accuracy is higher for" in both[0]


def test_compare_tells_what_a_target_costs(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = told(capsys, "compare s fedcl fedavg --at channel.snr_db=9 --until 0.3 --cost rounds --csv out.csv")
    found = semcom.study(folder).where({"channel.snr_db": 9}).until(0.3, "rounds")
    table = pd.read_csv("out.csv")
    assert table["rounds"].tolist() == found["cost"].tolist() and set(table["variant"]) == {"fedcl", "fedavg"}
    assert lines[-1] == "table: out.csv" and "fedcl" in lines[1] + lines[2]


def test_a_flag_that_would_do_nothing_is_refused(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for words, field in (
        ("compare s fedcl fedavg --until 0.3 --metric worst10", "metric"),
        ("compare s fedcl fedavg --cost rounds", "cost"),
        ("results s --at seed=0 seed=1", "at"),
    ):
        assert cli.main(words.split()) == 2
        assert capsys.readouterr().err.startswith(f"semcom: error: {field}: ")


@pytest.mark.parametrize(
    "line",
    [
        "report {0} --out {0}",
        "table {0} --out {0}",
        "compare {0} fedavg local --csv {0}",
        "image-curve --uses 128 --csv {0}",
        "plot {0} --name a/b",
    ],
)
def test_a_place_that_takes_no_file_is_refused_before_the_work(
    line: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (error,) = told(capsys, line.format(tmp_path), 2)
    assert error.endswith(" is a folder; give a file") or "is no name of a file" in error


def test_the_help_explains_the_words(capsys: pytest.CaptureFixture[str]) -> None:
    for command, words in (("results", "FOLDER"), ("compare", "FOLDER A B")):
        text = "\n".join(told(capsys, f"{command} --help"))
        assert f"usage: semcom {command} {words}" in text and "--at" in text and "--csv" in text
