"""Folders of runs with known numbers: written as runs leave them, without training."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

import semcom
from semcom.config import PartitionConfig, RunConfig, TrainConfig, run_hash, to_dict
from semcom.files import CONFIG, METRICS
from semcom.runs.folder.arrays import write_arrays
from semcom.runs.folder.summary import write_summary
from semcom.runs.result.accuracy import compute_headlines
from semcom.tasks.metric import ACCURACY, Metric, describe_metrics

TRAFFIC = {"floats": 10.0, "bits": 320.0, "uses": 100.0, "airtime_s": 0.5, "energy_j": 2.0}


def marks(folder: Path) -> list[str]:
    """What the runs of a sweep have left: a mark for each time that one was carried out by `fake_run`."""
    return [path.read_text() for path in folder.glob("*/ran.txt")]


def config(method: str = "fedcl", seed: int = 0, snr: float = 10.0, clients: int = 2, **fields: Any) -> RunConfig:
    """A resolved configuration, by the stand-in of conftest.py."""
    base = RunConfig(method=method, seed=seed, clients=clients, partition=PartitionConfig(options={"ways": 3}))
    base = replace(base, channel=replace(base.channel, snr_db=snr), train=TrainConfig(rounds=fields.pop("rounds", 4)))
    return semcom.resolve(replace(base, **fields))


def line(round_: int, views: Mapping[str, Mapping[str, Any]] | None = None) -> dict[str, Any]:
    """A line of metrics.jsonl: a loss of 1 / round."""
    return {"round": round_, "loss": 1 / round_, "seconds": 0.5, **({"views": dict(views)} if views else {})}


def around(accuracy: float, clients: int) -> list[float]:
    """Return accuracies of clients with this mean: as a rule clients differ, unless they guess."""
    return [accuracy + 0.01 * (2 * i / (clients - 1) - 1) for i in range(clients)]


def scored(
    accuracies: Sequence[float], classes: Sequence[float | None] = (0.5, None, 1.0), **more: Any
) -> dict[str, Any]:
    """A view in a line of metrics.jsonl."""
    values = np.array(accuracies)
    spread = {"accuracy": values.mean(), "accuracy_std": values.std(), "worst10": values.min(), "jain": 1.0}
    return {**spread, "clients": list(accuracies), "classes": list(classes), **more}


def write(
    folder: Path,
    of: RunConfig,
    lines: Sequence[Mapping[str, Any]],
    metrics: Sequence[Metric] = (ACCURACY,),
    **summary: Any,
) -> Path:
    """Write a finished run; its summary has the headlines of the lines, and what is given over it."""
    begin(folder, of, lines)
    views = compute_headlines([*([summary["finish"]] if "finish" in summary else []), *lines], metrics[0])
    first = next(iter(views.values()))
    task = {"task": {"name": of.task, "metrics": describe_metrics(tuple(metrics))}}
    found = {
        "method": of.method,
        **({} if metrics == (ACCURACY,) else task),
        **{name: first[name] for name in (metrics[0].name, metrics[0].key("std"))},
        "views": views,
        "warnings": [],
        "rounds": of.train.rounds,
        "clients": of.clients,
        "evaluated": None,
        "samples": 1000,
        "traffic": {"up": TRAFFIC, "down": {name: 2 * value for name, value in TRAFFIC.items()}},
        "snr_received_db": {"train_up": 10.0, "train_down": 10.0, "test": 10.0},
        "seed": of.seed,
        "hash": run_hash(of),
    }
    write_summary(folder, {**found, **summary})
    return folder


def begin(folder: Path, of: RunConfig, lines: Sequence[Mapping[str, Any]]) -> Path:
    """Write what a running run has left."""
    folder.mkdir(parents=True)
    (folder / CONFIG).write_text(json.dumps(to_dict(of)))
    (folder / METRICS).write_text("".join(json.dumps(each) + "\n" for each in lines))
    return folder


def simple(folder: Path, of: RunConfig, accuracies: Sequence[float], **summary: Any) -> Path:
    """Write a finished run that was tested once, in the view `personal`."""
    rounds = of.train.rounds or 0
    return write(folder / run_hash(of), of, [line(rounds, {"personal": scored(accuracies)})], **summary)


def keep(folder: Path, of: RunConfig, confusion: np.ndarray, train: np.ndarray, test: np.ndarray) -> None:
    """Write arrays.npz with matrices `[K, C, C]` of the view `personal` and class counts `[K, C]`."""
    found = {"clients": np.arange(len(train)), "confusion/personal": confusion}
    write_arrays(folder / "arrays.npz", {**found, "counts/train": train, "counts/test": test}, run_hash(of))
