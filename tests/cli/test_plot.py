"""`semcom plot` and `semcom table`: the files they write, what they print, and what they refuse."""

from __future__ import annotations

import shlex
from dataclasses import fields
from pathlib import Path

import pandas as pd
import pytest

import semcom
from semcom.cli import main as cli
from semcom.cli.plot import PlotFlags
from semcom.config import run_hash
from semcom.plots import Plot
from semcom.studies.analysis.sheet import make_sheet
from semcom.tasks.metric import Metric
from tests.cli.test_analysis import folder  # noqa: F401 - a fixture
from tests.commands import told
from tests.studies.conftest import quick_resolve  # noqa: F401 - a fixture
from tests.studies.folders import begin, config, line, write


def test_plot_writes_picture_numbers_and_page(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:  # noqa: F811
    lines = told(capsys, "plot s --x channel.snr-db --hue method --out out --name mine")
    assert lines == [f"figure: out/mine.{kind}" for kind in ("pdf", "png", "csv", "md")]
    means = semcom.study(folder).mean(["method", "channel.snr_db"])
    pd.testing.assert_frame_equal(pd.read_csv("out/mine.csv")[["mean", "low", "high"]], means[["mean", "low", "high"]])
    page = Path("out/mine.md").read_text()
    assert "bars: 95 % intervals over seeds (Student's t)" in page and "1 of 13 runs failed and are missing." in page
    assert "| FedCL | **60.5** ± " in page and "dataset digits, clients 2, partition shots" in page
    told(capsys, "plot s --at channel.snr_db=9 seed=0,1")
    assert Path("s/bars.png").stat().st_size > 1000, "beside the study, by the name of the kind"


def test_the_command_on_the_page_draws_the_same(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:  # noqa: F811
    points = "--x method --hue channel.snr_db --at method=fedcl,fedavg seed=0,1"
    told(capsys, f"plot s --kind dots {points} --name a --out 'my figures'")
    command = Path("my figures/a.md").read_text().rpartition("```sh\n")[2].splitlines()[0]
    assert command == (
        "semcom plot s --name a --out 'my figures' --kind dots --x method --hue channel.snr_db "
        "--at method=fedcl,fedavg seed=0,1"
    )
    first = Path("my figures/a.csv").read_bytes()
    Path("my figures/a.csv").unlink()
    assert cli.main(shlex.split(command)[1:]) == 0 and Path("my figures/a.csv").read_bytes() == first


def test_flags_are_the_fields_of_a_request() -> None:
    usual = {field.name: field.default for field in fields(PlotFlags)}
    own = {field.name: field.default for field in fields(Plot) if field.name not in ("at", "labels")}
    assert {name: usual[name] for name in own} == own and set(usual) == {*own, "at", "name", "out", "plugins", "trust"}


def test_table_prints_or_writes(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:  # noqa: F811
    found = make_sheet(semcom.study(folder), ["method"], ["channel.snr_db"])
    line = "table s --rows method --columns channel.snr-db"
    assert told(capsys, line) == found.markdown().splitlines()
    assert told(capsys, f"{line} --format tex") == found.latex("s").splitlines()
    assert told(capsys, f"{line} --format csv --out deep/t.csv") == ["table: deep/t.csv"]
    assert Path("deep/t.csv").read_text() == found.csv()
    assert (
        told(capsys, f"{line} --spread std --view fedcl=personal")
        == make_sheet(semcom.study(folder), ["method"], ["channel.snr_db"], view={"fedcl": "personal"}, spread="std")
        .markdown()
        .splitlines()
    )
    assert told(capsys, "table s --at channel.snr_db=9 --metric worst10")[4].startswith("| FedAvg | 50.0 ± ")


OWN = '''
from dataclasses import replace

from semcom.plots.bars import DOTS
from semcom.plots.kinds import KINDS
from semcom.tasks.metric import Metric
from semcom.tasks.reconstruction import Reconstruction
from semcom.tasks.registry import TASKS


@TASKS.register("own-task")
class Own(Reconstruction):
    """Another metric."""

    metrics = (Metric("error", "misfit", unit="mm", higher=False),)


KINDS.register("own-kind")(replace(DOTS, title="dots of one's own"))
'''


def test_commands_on_a_study_take_a_plug_in(
    folder: Path,  # noqa: F811
    capsys: pytest.CaptureFixture[str],
    own_names: None,
) -> None:
    """Without it a kind is unknown, and so is how a run that is not done will be judged."""
    of, metric = config("fedavg", task="own-task"), Metric("error", "misfit", unit="mm", higher=False)
    view = {"error": 2.0, "clients": [2.0, 2.0]}
    begin(Path("open", run_hash(of)), of, [line(1, {"personal": view})])
    done = config("fedcl", task="own-task")
    write(Path("done", run_hash(done)), done, [line(4, {"personal": view})], (metric,))
    Path("own.py").write_text(OWN)
    lines = ["show open", "results open --what rounds", "plot open --kind curves", "report open"]
    lines += ["plot s --kind own-kind --x method --hue channel.snr_db", "plot done --kind own-kind --x method"]
    for words in lines:
        assert cli.main(shlex.split(words)) == 2 and capsys.readouterr().err.startswith("semcom: error: "), words
    for words in [*lines, "table done", "results done", "compare s fedcl fedavg"]:
        assert "error" not in told(capsys, f"{words} --plugin own.py")[0], words
    told(capsys, "plot s --kind dots --x method --hue channel.snr_db --name dots")
    assert Path("s/own-kind.csv").read_bytes() == Path("s/dots.csv").read_bytes()
    assert "Misfit in mm" in Path("done/own-kind.md").read_text()
