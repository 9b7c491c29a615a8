"""Stand-ins for training: a function that writes a summary with a known accuracy in no time."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path

import pytest

from semcom.config import Resolved, RunConfig, fill_from_preset, run_hash
from semcom.config.options import build_options
from semcom.data.partitions import Shots
from semcom.runs.folder.summary import write_summary


@pytest.fixture(autouse=True)
def quick_resolve(monkeypatch: pytest.MonkeyPatch) -> None:
    """Resolving without torch: the common defaults, and the partition's options. No data is loaded."""

    def resolve(config: RunConfig) -> Resolved:
        given = config.partition.options
        split = dataclasses.replace(config.partition, options=build_options(Shots.Options, given, "partition", "shots"))
        return Resolved(**{**vars(config), "train": fill_from_preset(config.train, {}), "partition": split})

    monkeypatch.setattr("semcom.studies.sweep.sweep.check_sweep_data", lambda configs: None)
    monkeypatch.setattr("semcom.resolve", resolve)


@pytest.fixture
def fake_run() -> Callable[[RunConfig], None]:
    """Its accuracy is a known function of method, SNR and seed; nested, so that worker processes get its code."""

    def run(config: RunConfig) -> None:
        base = {"fedcl": 0.7, "fedproto": 0.6, "fedavg": 0.4}.get(config.method, 0.5)
        accuracy = base + float(config.channel.snr_db) / 100 + config.seed / 1000
        folder = Path(str(config.out))
        summary = {
            "method": config.method,
            "accuracy": accuracy,
            "accuracy_std": 0.05,
            "views": {"personal": {"accuracy": accuracy, "worst10": 0.3, "clients": [accuracy, accuracy]}},
            "samples_per_second": 1000.0,
            "traffic": {"up": {"floats": 64.0}, "down": {"floats": 32.0}},
            "seed": config.seed,
            "hash": run_hash(config),
            "versions": {"semcom": "0.1.0", "torch": "2.9"},
            "commit": "abc1234",
        }
        (folder / "ran.txt").open("a").write("x")
        write_summary(folder, summary)  # all or nothing, as a run does: the sweep may look at any time

    return run
