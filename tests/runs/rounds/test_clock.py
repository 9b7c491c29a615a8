"""A clock that goes back, as when a machine finds out what time it is, changes no number, and ends nothing early."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import semcom
from semcom.config import RunConfig
from semcom.files import CHECKPOINT
from semcom.runs.rounds.runner import run
from tests import worlds
from tests.runs.rounds.test_run import interrupt, lines, timeless

TRAIN = {"rounds": 4, "checkpoint_every": 100, "checkpoint_minutes": 30.0}


def asked(out: Path, **options: Any) -> RunConfig:
    return worlds.request("fedavg", out=str(out), train=TRAIN, channel={"kind": "rayleigh"}, **options)


@pytest.fixture
def backwards(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    hours = itertools.count(2_000_000_000, -3600)
    monkeypatch.setattr(time, "time", lambda: float(next(hours)))
    monkeypatch.setattr(time, "time_ns", lambda: next(hours) * 10**9)
    yield


@pytest.mark.parametrize("store", ["host", "disk"])
def test_a_run_and_its_resumption_are_the_same(store: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    whole = run(asked(tmp_path / "whole", store=store))
    request.getfixturevalue("backwards")
    config = asked(tmp_path / "out", store=store)
    interrupt(config, 3)
    found = run(config)
    assert timeless(found.summary) == timeless(whole.summary)
    assert [timeless(line) for line in found.metrics] == [timeless(line) for line in whole.metrics]
    assert min([*found.summary["seconds"].values(), *(line["seconds"] for line in lines(tmp_path / "out"))]) >= 0


def test_checkpoints_by_time_do_not_come_early(tmp_path: Path, backwards: None) -> None:
    def look(line: dict[str, Any]) -> None:
        assert not (tmp_path / CHECKPOINT).exists()

    run(asked(tmp_path), on_round=look)


def test_a_sweep_has_its_time(tmp_path: Path, backwards: None, capsys: pytest.CaptureFixture[str]) -> None:
    small = {"clients": 2, "train.rounds": 1, "data.name": "test-bars", "model.encoder": "test-patches"}
    small |= {"partition.ways": 2, "partition.shots": 4, "model.features": 4, "device": "cpu"}
    table = semcom.sweep(methods="local", seeds=(0, 1), set=small, out=tmp_path / "study", limit_minutes=10.0)
    assert set(pd.read_parquet(str(table))["status"]) == {"done"}
    assert "-" not in " ".join(line.split(" s]")[0] for line in capsys.readouterr().err.splitlines() if " s]" in line)
