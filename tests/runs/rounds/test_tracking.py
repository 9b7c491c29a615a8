"""What trackers are told of a run."""

from __future__ import annotations

import json
import sys
import types
from importlib import util
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import Any

import pytest

import semcom
from semcom.cli import main as cli
from semcom.runs.rounds.runner import run
from tests import commands, worlds
from tests.pages import read_blocks, read_page
from tests.refusals import refuses
from tests.runs.rounds.test_run import interrupt


def read(folder: Path) -> dict[str, list[tuple[int, float]]]:
    """Every series of a TensorBoard folder: (step, value)."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    board = EventAccumulator(str(folder))
    board.Reload()
    return {tag: [(e.step, e.value) for e in board.Scalars(tag)] for tag in board.Tags()["scalars"]}


def test_scalars_by_hand() -> None:
    line = {
        "round": 3,
        "loss": 0.5,
        "views": {"own": {"accuracy": 0.75, "clients": [1.0, 0.5], "at": {"3": 0.5, "9": 1.0}, "classes": [None, 1.0]}},
        "seconds": 2,
    }
    expected = {"loss": 0.5, "own/accuracy": 0.75, "own/at/3": 0.5, "own/at/9": 1.0, "seconds": 2}
    assert semcom.scalars(line) == expected


def test_tensorboard_has_every_scalar_of_every_round(tmp_path: Path) -> None:
    config = worlds.request("fedproto", train={"rounds": 3}, channel={"kind": "awgn", "test_snr_db": "3,9"})
    result = run(config, track=f"tensorboard={tmp_path}")
    found = read(tmp_path / f"fedproto-{result.summary['hash']}")
    assert found.keys() == semcom.scalars(result.metrics[0]).keys() >= {"loss", "prototype/accuracy", "personal/at/9"}
    for name, series in found.items():
        assert [step for step, _ in series] == [1, 2, 3]
        expected = [semcom.scalars(line)[name] for line in result.metrics]
        assert [value for _, value in series] == pytest.approx(expected, rel=1e-6)  # which are float32 there


def test_the_command_writes_the_last_stage_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = "train fedavg_ft --clients 3 --train.rounds 2 --partition.shots 8 --model.features 4 --device cpu"
    assert (
        cli.main([*words.split(), "--out", str(tmp_path / "run"), "--track", f"tensorboard={tmp_path / 'board'}"]) == 0
    )
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    place = tmp_path / "board" / f"fedavg_ft-{summary['hash']}"
    said = f"folder: {tmp_path / 'run'}\ntensorboard: {place.name} in {place.parent}\n"
    assert capsys.readouterr().out.endswith(said)
    found = read(place)
    assert [step for step, _ in found["loss"]] == [1, 2] and found["personal/accuracy"][-1][0] == 3
    assert found["personal/accuracy"][-1][1] == pytest.approx(summary["finish"]["views"]["personal"]["accuracy"])


SMALL = "train fedavg --clients 2 --partition.shots 4 --model.features 4 --device cpu --train.rounds 3"


def board_of(words: list[str], capsys: pytest.CaptureFixture[str]) -> Path:
    assert cli.main([*SMALL.split(), *words]) == 0
    name, folder = capsys.readouterr().out.splitlines()[-1].removeprefix("tensorboard: ").split(" in ")
    return Path(folder) / name


def test_a_run_that_is_finished_or_taken_up_is_written_whole(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Every round once, whether or not the rounds were written when they were trained."""
    config = commands.read(*SMALL.split()[1:], "--out", str(tmp_path / "run"))
    interrupt(config, 2)
    words = ["--out", str(tmp_path / "run"), "--track", f"tensorboard={tmp_path / 'board'}"]
    lost = read(board_of(words, capsys))
    lines = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    expected = [(line["round"], pytest.approx(line["loss"])) for line in lines]
    assert len(expected) == 3 and lost["loss"] == expected, "taken up after round 2"
    again = board_of(words, capsys)
    assert read(again)["loss"] == expected and len(list(again.iterdir())) == 2, "hidden, not written twice"
    elsewhere = board_of([*words[:3], f"tensorboard={tmp_path / 'other'}"], capsys)
    assert read(elsewhere)["loss"] == expected, "finished before"


def test_without_the_package_one_line_names_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.setattr(
        "semcom.packages.find_spec", lambda name: None if name == "tensorboard" else util.find_spec(name)
    )
    assert cli.main(["train", "fedavg", "--track", f"tensorboard={tmp_path / 'board'}"]) == 2
    said = capsys.readouterr().err
    assert said.startswith("semcom: error: track: ") and "semcom[tensorboard]" in said
    assert not (tmp_path / "board").exists()


def test_a_file_is_no_place_and_a_wrong_request_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for place in (tmp_path / "file", tmp_path / "file" / "in" / "it"):
        with refuses("track", "file"):
            run(worlds.request("fedavg"), track=f"tensorboard={place}")
    with refuses("track", "given twice"):
        run(worlds.request("fedavg"), track=[f"tensorboard={tmp_path / name}" for name in ("board", "other")])
    with refuses("track", "did you mean 'tensorboard'"):
        run(worlds.request("fedavg"), track="tensorbord")
    with refuses("clients"):
        run(worlds.request("fedavg", clients=0), track=f"tensorboard={tmp_path / 'board'}")
    assert not (tmp_path / "board").exists()


class Calls(types.ModuleType):
    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.calls: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = []
        self.__spec__ = ModuleSpec(name, None)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)

        def call(*args: Any, **keywords: Any) -> Calls:
            self.calls.append((name, args, keywords))
            return self

        return call


@pytest.mark.parametrize("name", ["wandb", "mlflow"])
def test_the_others_are_called_as_they_want_it(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither is installed here: what counts is that these calls are made, in this order."""
    monkeypatch.setitem(sys.modules, name, package := Calls(name))
    result = run(worlds.request("fedavg", train={"rounds": 2}), track=[f"{name}=mine"])
    own, calls = f"fedavg-{result.summary['hash']}", package.calls
    logged = [(semcom.scalars(line), {"step": line["round"]}) for line in result.metrics]
    if name == "wandb":
        given = {"project": "mine", "name": own, "id": own, "resume": "allow"}
        silent = {"console": "off", "disable_code": True, "disable_git": True, "x_disable_meta": True}
        assert calls[0] == ("Settings", (), silent), "nothing that it would record by itself"
        assert calls[1][0] == "init" and calls[1][2].items() >= given.items() and calls[1][2]["config"]["seed"] == 0
        assert calls[2:] == [*(("log", (values,), at) for values, at in logged), ("finish", (), {})]
        return
    assert calls[:2] == [
        ("set_experiment", ("mine",), {}),
        ("start_run", (), {"run_name": own, "tags": {"mlflow.source.name": "semcom"}}),
    ]
    given = [args[0] for what, args, _ in calls if what == "log_params"]
    assert (
        all(len(some) <= 100 for some in given) and {k: v for some in given for k, v in some.items()}["clients"] == "4"
    )
    last = [*(("log_metrics", (values,), at) for values, at in logged), ("end_run", (), {})]
    assert calls[-3:] == last and len(calls) == 2 + len(given) + 3


@pytest.mark.parametrize("name", ["wandb", "mlflow"])
def test_no_tracker_is_told_where_files_lay(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, name, package := Calls(name))
    place = tmp_path / "my things, [1]"
    place.mkdir()
    plugin = place / "own.py"
    plugin.write_text(f"import semcom\n\nsemcom.TRACKERS.register('test-{name}')(semcom.TRACKERS.get('tensorboard'))\n")
    asked = worlds.request("fedavg", train={"rounds": 1}, plugins=(str(plugin),), out=str(place / "run"))
    result = run(asked, track=f"{name}=mine")
    assert str(plugin) in result.config.contents, "the run itself knows it"
    told = repr(package.calls)
    assert "my things" not in told and str(tmp_path) not in told
    assert "elsewhere/own.py" in told and result.config.contents[str(plugin)] in told


def test_a_sweep_tracks_each_of_its_runs_with_a_tracker_of_ones_own(tmp_path: Path) -> None:
    plugin = tmp_path / "lines.py"
    blocks = [block.text for block in read_blocks(read_page("docs/metrics.md"))]
    (block,) = (block for block in blocks if block.startswith("from semcom import TRACKERS"))
    plugin.write_text(block.replace('open(place, "w")', 'open(f"{place}-{config.method}", "w")'))
    small = {"clients": 2, "partition.shots": 4, "train.rounds": 2}
    words = ["--methods", "fedavg,local", "--plugin", str(plugin), "--track", f"lines={tmp_path / 'seen'}"]
    words += [word for name, value in small.items() for word in ("--set", f"{name}={value}")]
    assert cli.main(["sweep", *words, "--out", str(tmp_path / "study")]) == 0
    for method in ("fedavg", "local"):
        assert [line.split()[0] for line in (tmp_path / f"seen-{method}").read_text().splitlines()] == ["1", "2"]
    with refuses("track", "function of their own"):
        semcom.sweep(methods="fedavg", set=small, out=tmp_path / "other", train=print, track="tensorboard")
