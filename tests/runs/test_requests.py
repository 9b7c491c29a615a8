"""Requests that cannot be met, from Python and from the command line: one line each, before any work."""

from __future__ import annotations

import dataclasses
import datetime
import json
import logging
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest

import semcom
from semcom.cli import main as cli
from semcom.config import ConfigError, ModelConfig, RunConfig, TrainConfig, differences, run_hash, to_dict
from semcom.config.options import plain
from semcom.engine.train.view import View
from semcom.methods.fedavg import FedAvg
from semcom.methods.registry import METHODS
from semcom.runs.folder import SUMMARY
from semcom.runs.resolve import resolve
from semcom.runs.runner import run
from tests import worlds


def refused(config: Any) -> str:
    """The one line with which a request is refused."""
    with pytest.raises(ConfigError) as stop:
        resolve(config)
    assert "\n" not in str(stop.value)
    return str(stop.value)


# What Python may give ------------------------------------------------------------------------------------------------

FIELDS = {"train": {"rounds": 3, "lr_milestones": [2]}, "model": {"features": 8}, "channel": {"kind": "rayleigh"}}


def test_sections_may_be_tables_of_fields() -> None:
    expected = RunConfig(
        method="fedavg",
        train=TrainConfig(rounds=3, lr_milestones=(2,)),
        model=ModelConfig(features=8),
        channel=semcom.ChannelConfig(kind="rayleigh"),
    )
    assert resolve(RunConfig(method="fedavg", **FIELDS)) == resolve(expected)  # type: ignore[arg-type]
    assert resolve({"method": "fedavg", **FIELDS}) == resolve(expected)  # type: ignore[arg-type]


WRONG: list[tuple[Any, str]] = [
    ({"train": 3}, "train: 3 is not a table of fields"),
    ({"train": None}, "train: None is not a table of fields"),
    ({"train": ModelConfig()}, "train: ModelConfig("),
    ({"train": {"round": 3}}, "train.round: no such field; did you mean 'rounds'? known are rounds,"),
    ({"train": {3: 3}}, "train.3: no such field"),
    ({"plugins": "x.py"}, "plugins: 'x.py' is not a list of texts; write ['x.py']"),
    ({"keep": "confusion"}, "keep: 'confusion' is not a list, each one of confusion, features, curves-per-client; wri"),
    ({"finish": "lr"}, "finish: 'lr' is not a table of fields; write FinishConfig(kind='lr') or {'kind': 'lr'}"),
    ({"channel": {"power": "free"}}, "channel.power: no such field; an option is written options={'power': 'free'}; k"),
    ({"plugins": (3,)}, "plugins: (3,) is not a list of texts"),
    ({"method": 3}, "method: 3 is not a text"),
    ({"method": None}, "method: None is not a text"),
    ({"method": ["fedavg"]}, "method: ('fedavg',) is not a text"),
    ({"clients": "few"}, "clients: 'few' is not a whole number"),
    ({"device": 0}, "device: 0 is not a text"),
    ({"channel": {"kind": ["awgn"]}}, "channel.kind: ('awgn',) is not a text"),
    ({"contents": {"x": 3}}, "contents: {'x': 3} is not a table from a text to a text"),
    ({"hyper": 3}, "hyper: 3 is not a table of fields"),
    ({"hyper": {1: 2}}, "hyper.1: not for fedcl, which takes lam,"),
    ({"channel": {"options": {1: 2}}}, "channel.1: not for awgn, which takes downlink"),
    ({"contents": {"x": "y"}}, "contents: 'x' is not read by this run; leave contents empty"),
    ({"clients": 2, "processes": 3}, "processes: 3 share 2 clients; give at most one per client"),
    ({"out": ""}, "out: '' is no path"),
    ({"data": {"name": ""}}, "data.name: '' is no path"),
    ({"data": {"root": ""}}, "data.root: '' is no path"),
]


@pytest.mark.parametrize(("fields", "message"), WRONG, ids=[message.split(" is ")[0] for _, message in WRONG])
def test_wrong_types_are_one_line(fields: dict[str, Any], message: str) -> None:
    assert refused(RunConfig(**fields)).startswith(message)


def test_numbers_of_numpy_s_and_paths_are_taken(tmp_path: Path) -> None:
    fields: dict[str, Any] = {
        **{"clients": np.int64(5), "out": tmp_path / "out", "hyper": {"mu": np.float32(0.5)}},
        **{"train": {"lr": [np.float64(0.1)] * 5, "rounds": np.int32(3)}, "data": {"root": tmp_path}},
        "partition": {"scarce": np.array([1, 4]).tolist(), "options": {"ways": np.uint8(2)}},
    }
    config = resolve(RunConfig(method="fedprox", **fields))
    assert (config.clients, config.hyper.mu, config.train.lr, config.train.rounds) == (5, 0.5, (0.1,) * 5, 3)
    assert config.out == str(tmp_path / "out") and config.data.root == str(tmp_path)
    assert json.loads(json.dumps(to_dict(config)))["partition"]["options"]["ways"] == 2
    same = resolve(dataclasses.replace(config, hyper=type(config.hyper)(mu=np.float64(0.5))))
    assert same == config and type(same.hyper.mu) is float


def test_a_whole_number_is_the_number(tmp_path: Path) -> None:
    """One run, whether Python or JSON writes 10 or 10.0."""
    base = RunConfig(method="fedprox", clients=2)
    whole, real = (
        resolve(
            {**vars(base), "hyper": {"mu": kind(1)}, "channel": {"snr_db": kind(10)}, "train": {"lr": [kind(1)] * 2}}
        )
        for kind in (int, float)
    )
    assert whole == real and run_hash(whole) == run_hash(real)
    assert [type(v) for v in (whole.hyper.mu, whole.channel.snr_db, *whole.train.lr, whole.clients)] == [float] * 4 + [
        int
    ]
    assert refused({"train": {"lr": 10**400}}).startswith("train.lr: 1000")
    assert plain([1, np.int64(2)], tuple[float, ...]) == (1.0, 2.0) and repr(plain(2.0, Literal[1, 2])) == "2"
    assert differences(whole, dataclasses.replace(whole, hyper=type(whole.hyper)(mu=1))) == [
        "hyper.mu: 1.0 there, 1 here"
    ]


@pytest.mark.parametrize("value", [True, np.bool_(True)])
def test_a_truth_value_is_no_number(value: Any) -> None:
    assert refused(RunConfig(method="fedavg", clients=value)) == f"clients: {value!r} is not a whole number"


def test_a_relative_folder_is_that_of_the_process_that_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert resolve(worlds.request(out="out")).out == str(tmp_path / "out")


@pytest.mark.parametrize("config", [None, [1, 2], 3])
def test_what_is_no_configuration(config: Any) -> None:
    assert refused(config) == f"config: {config!r} is not a table of fields"


@pytest.mark.parametrize("value", [3, "print", [print], False])
def test_what_cannot_be_called_after_a_round_is_refused_before_one(value: Any, tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as error:
        run(worlds.request(out=str(tmp_path / "out")), on_round=value)
    expected = f"on_round: {value!r} cannot be called; give a function of a line of metrics.jsonl"
    assert str(error.value) == expected and not (tmp_path / "out").exists()


def test_the_name_of_a_method_is_no_configuration() -> None:
    wanted = "write RunConfig(method='fedavg') or {'method': 'fedavg'}"
    assert refused("fedavg") == f"config: 'fedavg' is not a table of fields; {wanted}"


@pytest.mark.parametrize(
    ("section", "given", "message"),
    [
        (
            semcom.ChannelConfig,
            {"power": "free"},
            "ChannelConfig.power: no such field; an option is written options={'",
        ),
        (RunConfig, {"rounds": 3}, "RunConfig.rounds: no such field; write train={'rounds': 3}; known are method,"),
        (RunConfig, {"lam": 0.5}, "RunConfig.lam: no such field; an option is written hyper={'lam': 0.5}; known are"),
        (RunConfig, {"clinets": 3}, "RunConfig.clinets: no such field; did you mean 'clients'? known are method,"),
        (TrainConfig, {"snr": 3}, "TrainConfig.snr: no such field; known are rounds, local_epochs,"),
    ],
)
def test_an_argument_that_is_no_field_says_where_it_belongs(section: Any, given: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as stop:
        section(**given)
    assert str(stop.value).startswith(message) and "\n" not in str(stop.value)


def test_what_the_messages_say_is_taken() -> None:
    advised = RunConfig("fedavg", train={"rounds": 3}, channel={"options": {"power": "free"}})  # type: ignore[arg-type]
    config = resolve(dataclasses.replace(advised, finish={"kind": "lr"}))  # type: ignore[arg-type]
    assert (config.train.rounds, config.channel.options.power, config.finish.kind) == (3, "free", "lr")


# The folder ----------------------------------------------------------------------------------------------------------


def test_a_file_above_the_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("precious")
    for out in ("file", "file/sub", "file/sub/deep"):
        with pytest.raises(ConfigError, match=r"^out: .*file is a file; give a folder$"):
            run(worlds.request(out=str(tmp_path / out)))


def test_a_finished_run_says_so(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    config = worlds.request(out=str(tmp_path), train={"rounds": 1})
    with caplog.at_level(logging.INFO):
        first = run(config)
        assert not caplog.messages
        day = datetime.datetime(2026, 11, 22, 12)
        os.utime(tmp_path / SUMMARY, (day.timestamp(), day.timestamp()))
        assert run(config).summary == first.summary
    assert caplog.messages == [f"already finished: result of {tmp_path} (2026-11-22), nothing was trained"]
    assert caplog.records[0].levelno == logging.WARNING, "Python shows it without any setting"


@pytest.mark.parametrize("text", ["[1, 2]", "3", "null", '"fedavg"'])
def test_a_stored_configuration_that_is_no_table(text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "config.json").write_text(text)
    assert cli.main(["train", "fedavg", "--config", str(tmp_path / "config.json")]) == 2
    shown = json.loads(text)
    assert f"is not a configuration (config: {shown!r} is not a table of fields" in capsys.readouterr().err


# Methods without views -----------------------------------------------------------------------------------------------


class Nothing(FedAvg):
    """Trains and shows nothing."""

    found: Any = {}

    def round(self, state: Any, world: Any) -> Any:
        raise AssertionError("it was trained")

    def views(self, state: Any, world: Any) -> Any:
        return self.found


class Asked(FedAvg):
    """Sends the models down before the first round, and whenever they are shown."""

    def setup(self, world: Any) -> Any:
        state = FedAvg.setup(self, world)
        world.air.down(state.model, "head.")
        return state

    def views(self, state: Any, world: Any) -> dict[str, View]:
        return {"sent": View(world.air.down(state.model, ("encoder.", "head.")))}


class Late(Nothing):
    """Shows something at the end."""

    def round(self, state: Any, world: Any) -> Any:
        return FedAvg.round(self, state, world)

    def views(self, state: Any, world: Any) -> dict[str, View]:
        return {}

    def finish(self, state: Any, world: Any) -> dict[str, View]:
        return FedAvg.views(self, state, world)


@pytest.fixture(autouse=True)
def methods() -> Iterator[None]:
    METHODS.register("test-nothing")(Nothing)
    METHODS.register("test-late")(Late)
    METHODS.register("test-asked")(Asked)
    yield
    METHODS._added.pop("test-asked")
    METHODS._added.pop("test-nothing")
    METHODS._added.pop("test-late")


def test_a_method_may_send_before_the_first_round() -> None:
    result = run(worlds.request("test-asked", train={"rounds": 1}))
    assert result.summary["traffic"]["down"]["airtime_s"] > 0


@pytest.mark.parametrize("found", [{}, None, {"global": 3}, [1]], ids=str)
def test_a_method_without_views_is_refused_before_training(
    found: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Nothing, "found", found)
    with pytest.raises(ConfigError) as stop:
        run(worlds.request("test-nothing", out=str(tmp_path / "out")))
    wanted = "without a `finish`, it has to give at least one View by name"
    assert str(stop.value) == f"method: `views` of test-nothing gives {found!r}; {wanted}"
    assert list(tmp_path.iterdir()) == [], "something was written"
    assert run(worlds.request("test-late", train={"rounds": 1})).summary["accuracy"] > 0


def test_asking_for_views_first_changes_no_number(monkeypatch: pytest.MonkeyPatch) -> None:
    """Per-FedAvg's views take a step of every client."""
    request = worlds.request("perfedavg", train={"rounds": 2})
    checked = run(request)
    monkeypatch.setattr("semcom.runs.loop.check_views", lambda *args: None)
    plain = run(dataclasses.replace(request))
    clock = ("seconds", "samples_per_second")
    assert {n: v for n, v in checked.summary.items() if n not in clock} == {
        n: v for n, v in plain.summary.items() if n not in clock
    }
