"""Requests of `semcom sweep` that are refused before anything is trained, and scales of any name."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from semcom.cli import main as cli
from semcom.config import ConfigError
from semcom.studies.results.table import read_table

PLUGIN = """
from pathlib import Path

from semcom.studies.experiment import Experiment, Grid
from semcom.studies.registry import EXPERIMENTS
from semcom.studies.results.table import read_table
from semcom.plots.base import Drawing, Plot
from semcom.plots.registry import FIGURES
from semcom import RunConfig, TrainConfig
from semcom.config import run_hash
from semcom.runs.folder.summary import write_summary


def train(config):
    Path("trained").touch()
    write_summary(Path(config.out), {{"accuracy": 0.5, "hash": run_hash(config)}})


grid = Grid(RunConfig(clients=2, train=TrainConfig(rounds=1)), {{"{axis}": {values}}})
EXPERIMENTS.register("mine")(
    Experiment(
        name="mine", title="t", paper="none", variants=("{method}",), scales={{{scales}}},
        axis="{axis}", figures=({figure!r},), train=train,
    )
)
FIGURES.register("mine")(Drawing("mine", "mine", Plot(kind="lines", x="channel.snr_db", hue="variant")))
"""
GOOD = {"axis": "channel.snr_db", "values": "(9.0,)", "method": "fedavg", "figure": "mine", "scales": '"smoke": grid'}


@pytest.fixture
def plugin(here: Path, own_names: None) -> Callable[..., str]:
    """Writes a plug-in whose experiment `mine` leaves the file "trained" beside it as soon as it trains."""

    def write(**fields: str) -> str:
        path = here / "mine.py"
        path.write_text(PLUGIN.format(**GOOD | fields))
        return str(path)

    return write


def refused(words: list[str], capsys: pytest.CaptureFixture[str]) -> ConfigError:
    assert cli.main(words) == 2
    captured = capsys.readouterr()
    assert captured.out == "" and captured.err.count("\n") == 1
    assert not Path("trained").exists() and not Path("results").exists()
    return ConfigError(captured.err.removeprefix("semcom: error: "))


@pytest.mark.parametrize(
    "fields", [{"figure": "mien"}, {"figure": "demo"}, {"axis": "partition.ways", "values": "(2, 3)"}]
)
def test_a_figure_of_other_fields_is_refused_before_training(
    plugin: Callable[..., str], capsys: pytest.CaptureFixture[str], fields: dict[str, str]
) -> None:
    assert refused(["sweep", "mine", "--plugin", plugin(**fields)], capsys).field == "figure"


@pytest.mark.parametrize(
    ("words", "field"),
    [("--limit-minutes 0", "limit_minutes"), ("--track nope", "track"), ("--jobs 0", "jobs")],
)
def test_a_preview_refuses_what_the_sweep_would(words: str, field: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert refused([*f"sweep demo --scale smoke --dry-run {words}".split()], capsys).field == field


def test_a_scale_of_any_name(plugin: Callable[..., str], capsys: pytest.CaptureFixture[str]) -> None:
    file = plugin(scales='"mine": grid, "other": grid')
    error = refused(["sweep", "mine", "--plugin", file, "--scale", "small"], capsys)
    assert error.field == "scale" and "mine, other" in str(error)
    assert cli.main(["sweep", "mine", "--plugin", file]) == 0
    assert Path("trained").exists() and Path("results/mine-mine/mine.pdf").is_file()
    assert cli.main(["sweep", "mine", "--plugin", file, "--scale", "other"]) == 0
    assert Path("results/mine-other/results.parquet").is_file()
    capsys.readouterr()
    assert cli.main(["sweep", "mine", "--plugin", file, "--scale", "other", "--out", "results/mine-mine"]) == 2
    assert f"(semcom sweep mine --plugin {file})" in capsys.readouterr().err


OWN = """
from semcom import METHODS
from semcom.methods.local import Local


@METHODS.register("later-local")
class Mine(Local):
    pass
"""
FEW = "--set clients=2 --set train.rounds=1 --set partition.shots=2 --set partition.test_per_class=2"


@pytest.mark.usefixtures("own_names", "thin", "here")
def test_later_methods_join_a_study_under_its_settings() -> None:
    """Also beside a method of a plug-in; in an experiment what is set is for such a method alone, and none joins it."""
    Path("own.py").write_text(OWN)
    for out, methods, more in (("a", ("local", "fedavg"), ""), ("b", ("later-local", "fedavg"), "--plugin own.py")):
        for method in methods:
            assert cli.main(f"sweep --methods {method} {FEW} {more} --out {out}".split()) == 0
        frame = read_table(Path(out)).set_index("variant")
        assert set(frame.index) == set(methods) and set(frame["train.rounds"]) == {1} and set(frame["clients"]) == {2}
    first, later = (f"sweep demo --methods {name} {FEW} --plugin own.py --out c" for name in ("later-local", "fedavg"))
    assert cli.main([*first.split(), "--seeds", "0"]) == 0
    assert cli.main([*later.split(), "--seeds", "0"]) == 2


@pytest.mark.usefixtures("thin")
def test_finished_runs_without_what_is_to_be_kept_are_named(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for seeds, what in (("0", ""), ("0,1", "weights"), ("0,1", "confusion"), ("0,1", "confusion")):
        keep = ["--keep", what] if what else []
        assert cli.main([*f"sweep --methods local {FEW} --out a --seeds {seeds}".split(), *keep]) == 0
        said = capsys.readouterr()
        lacks = 1 if what == "weights" else 2
        assert (f"keep: finished runs have not kept {what} ({lacks}: " in said.out + said.err) == bool(what)
