"""What a sweep will take: exact for a known pace; the pace itself is measured on a tiny run."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path

import pytest

from semcom.config import ModelConfig, RunConfig, TrainConfig
from semcom.runs.resolve import resolve
from semcom.studies.overrides import duration
from semcom.studies.results.shard import Shard
from semcom.studies.sweep import estimate
from semcom.studies.sweep.estimate import Pace, dry_run, measured
from semcom.studies.sweep.plan import planned
from semcom.studies.sweep.request import asked
from semcom.studies.sweep.sweep import sweep
from tests.worlds import divided

SMALL = RunConfig(
    method="fedproto",
    clients=6,
    partition=divided(kind="shots", ways=2, shots=10, test_per_class=5),
    model=ModelConfig(encoder="dcgan-narrow"),
    train=TrainConfig(rounds=30, eval_every=10),
    device="cpu",
)


def test_a_run_takes_its_setup_samples_and_tests() -> None:
    """30 rounds of 6 clients with 20 images; evaluated after rounds 10, 20 and each of 21 to 30, of which 30 is one."""
    config = resolve(SMALL)
    assert Pace(100.0, 0.5, 0.25).seconds(config) == 100 + 30 * 6 * 20 * 0.5 + 12 * 6 * 0.25
    some = dataclasses.replace(config, train=dataclasses.replace(config.train, eval_clients=2))
    assert Pace(0.0, 0.0, 0.25).seconds(some) == 12 * 2 * 0.25


def test_a_pace_is_that_of_few_clients(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """With a clock on which each look takes a second: setup, round and test take one each."""
    monkeypatch.chdir(tmp_path)
    looks = iter(range(1000))
    monkeypatch.setattr("semcom.bench.commands.clock_of", lambda device: lambda: float(next(looks)))
    pace = measured(resolve(SMALL))
    assert (pace.setup_s, pace.sample_s, pace.client_s) == (1.0, 1 / (4 * 20), 1 / 4)
    assert not list(tmp_path.iterdir())


def test_many_samples_take_fewer_clients(monkeypatch: pytest.MonkeyPatch) -> None:
    config = resolve(SMALL)
    monkeypatch.setattr(estimate, "SAMPLES", 45)
    assert estimate._few(config).participants == 2
    monkeypatch.setattr(estimate, "SAMPLES", 1)
    assert estimate._few(config).participants == 1


def test_a_dry_run_shows_runs_and_times(
    tmp_path: Path, fake_run: Callable[[RunConfig], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """20 clients x 45 images: 9 s for a round of FedCL at a hundredth of a second per sample, a third for others."""
    pace = {"fedcl": 0.01, "fedproto": 0.01 / 3, "fedavg": 0.01 / 3}
    monkeypatch.setattr(estimate, "measured", lambda config: Pace(0.0, pace[config.method], 0.0))
    request = asked(set={"train.rounds": 20, "channel.snr_db": 9.0}, seeds=(0, 1), vary={"partition.ways": (2, 4)})
    plan = planned("demo", request=request, out=tmp_path / "r")
    lines = dry_run(plan, jobs=2).splitlines()
    assert [" ".join(line.split()) for line in lines[:7]] == [
        "method partition.ways runs finished time",
        "fedcl 2 2 0 4 min",  # 2 x 20 x 20 x 30 x 0.01 s
        "fedcl 4 2 0 8 min",
        "fedproto 2 2 0 80 s",
        "fedproto 4 2 0 2.7 min",
        "fedavg 2 2 0 80 s",
        "fedavg 4 2 0 2.7 min",
    ]
    assert lines[8] == "12 runs, 0 of them finished"
    assert lines[9] == "about 10 min with --jobs 2: 20 min of work, the longest run 4 min"
    assert lines[10].startswith("an estimate: counted training samples times the pace of rounds with at most 4 clients")
    assert not (tmp_path / "r").exists()
    assert (
        dry_run(plan, Shard(1, 12)).splitlines()[-2]
        == "about 4 min with --jobs 1: 4 min of work, the longest run 4 min"
    )
    sweep("demo", set=request.set, vary={"partition.ways": (2, 4)}, seeds=(0, 1), out=tmp_path / "r", train=fake_run)
    assert (
        dry_run(planned("demo", request=request, out=tmp_path / "r")).splitlines()[-1] == "12 runs, 12 of them finished"
    )


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.04, "0 s"),
        (8.26, "8.3 s"),
        (89.4, "89 s"),
        (91, "1.5 min"),
        (5000, "83 min"),
        (7200, "2 h"),
        (40 * 3600, "40 h"),
    ],
)
def test_times_are_short(seconds: float, text: str) -> None:
    assert duration(seconds) == text
