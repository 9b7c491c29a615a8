"""Requests that cannot be met, from Python and from the command line: one line each, before any work."""

from __future__ import annotations

import dataclasses
import datetime
import json
import logging
import os
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest

import semcom
from semcom.config import ModelConfig, RunConfig, TrainConfig, list_identity_differences, run_hash, to_dict
from semcom.config.options import parse_option_value
from semcom.engine.train.view import View
from semcom.methods.fedavg import FedAvg
from semcom.methods.registry import METHODS
from semcom.runs.folder.folder import SUMMARY
from semcom.runs.request.resolve import resolve
from semcom.runs.rounds.runner import run
from tests import worlds
from tests.refusals import refuses
from tests.runs.rounds.test_run import timeless

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
    fields = [
        {"hyper": {"mu": of(1)}, "channel": {"snr_db": of(10)}, "train": {"lr": [of(1)] * 2}} for of in (int, float)
    ]
    whole, real = (resolve({**vars(base), **each}) for each in fields)
    assert whole == real and run_hash(whole) == run_hash(real)
    numbers = (whole.hyper.mu, whole.channel.snr_db, *whole.train.lr, whole.clients)
    assert [type(number) for number in numbers] == [float] * 4 + [int]
    assert parse_option_value([1, np.int64(2)], tuple[float, ...]) == (1.0, 2.0)
    assert repr(parse_option_value(2.0, Literal[1, 2])) == "2"
    other = dataclasses.replace(whole, hyper=type(whole.hyper)(mu=1))
    assert list_identity_differences(whole, other) == ["hyper.mu: 1.0 there, 1 here"]


def test_a_relative_folder_is_that_of_the_process_that_asked(here: Path) -> None:
    assert resolve(worlds.request(out="out")).out == str(here / "out")


@pytest.mark.parametrize("value", [3, "print", [print], False])
def test_what_cannot_be_called_after_a_round_is_refused_before_one(value: Any, tmp_path: Path) -> None:
    with refuses("on_round", repr(value)):
        run(worlds.request(out=str(tmp_path / "out")), on_round=value)
    assert not (tmp_path / "out").exists()


def test_what_the_messages_say_is_taken() -> None:
    advised = RunConfig("fedavg", train={"rounds": 3}, channel={"options": {"power": "free"}})  # type: ignore[arg-type]
    config = resolve(dataclasses.replace(advised, finish={"kind": "lr"}))  # type: ignore[arg-type]
    assert (config.train.rounds, config.channel.options.power, config.finish.kind) == (3, "free", "lr")


def test_a_file_above_the_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("precious")
    for out in ("file", "file/sub", "file/sub/deep"):
        with refuses("out", tmp_path / "file"):
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


@METHODS.register("test-nothing")
class Nothing(FedAvg):
    found: Any = {}

    def round(self, state: Any, world: Any) -> Any:
        raise AssertionError("it was trained")

    def views(self, state: Any, world: Any) -> Any:
        return self.found


@METHODS.register("test-asked")
class Asked(FedAvg):
    """Sends the models down before the first round, and whenever they are shown."""

    def setup(self, world: Any) -> Any:
        state = FedAvg.setup(self, world)
        world.air.down(state.model, "head.")
        return state

    def views(self, state: Any, world: Any) -> dict[str, View]:
        return {"sent": View(world.air.down(state.model, ("encoder.", "head.")))}


@METHODS.register("test-late")
class Late(Nothing):
    def round(self, state: Any, world: Any) -> Any:
        return FedAvg.round(self, state, world)

    def views(self, state: Any, world: Any) -> dict[str, View]:
        return {}

    def finish(self, state: Any, world: Any) -> dict[str, View]:
        return FedAvg.views(self, state, world)


def test_a_method_may_send_before_the_first_round() -> None:
    result = run(worlds.request("test-asked", train={"rounds": 1}))
    assert result.summary["traffic"]["down"]["airtime_s"] > 0


@pytest.mark.parametrize("found", [{}, None, {"global": 3}, [1]], ids=str)
def test_a_method_without_views_is_refused_before_training(
    found: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Nothing, "found", found)
    with refuses("method", "test-nothing", repr(found), "at least one View by name"):
        run(worlds.request("test-nothing", out=str(tmp_path / "out")))
    assert list(tmp_path.iterdir()) == [], "something was written"
    assert run(worlds.request("test-late", train={"rounds": 1})).summary["accuracy"] > 0


def test_a_request_that_is_refused_replaces_no_run(tmp_path: Path) -> None:
    run(worlds.request(train={"rounds": 1}, out=str(tmp_path)))
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    with refuses("method", "at least one View by name"):
        run(worlds.request("test-nothing", out=str(tmp_path)), again=True)
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_asking_for_views_first_changes_no_number(monkeypatch: pytest.MonkeyPatch) -> None:
    """Per-FedAvg's views take a step of every client."""
    request = worlds.request("perfedavg", train={"rounds": 2})
    checked = run(request)
    monkeypatch.setattr("semcom.runs.rounds.loop.check_evaluated_views", lambda *args: None)
    plain = run(dataclasses.replace(request))
    assert timeless(checked.summary) == timeless(plain.summary)


@pytest.mark.parametrize(
    "sections",
    [
        {"network": {"kind": "scene", "options": {"scene": "munich-20"}}},
        {"channel": {"kind": "cir", "options": {"path": "munich-20"}}},
    ],
)
def test_a_file_of_the_run_s_clients_has_no_new_ones(sections: dict[str, Any]) -> None:
    """They would stand where clients of the run do."""
    resolve(worlds.request(**sections))
    with refuses("new_clients", "by their numbers"):
        resolve(worlds.request(**sections, new_clients=1))
