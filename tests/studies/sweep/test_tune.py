"""Tuning on validation images before a study: what is searched for whom, what is chosen, and what then runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from semcom.config import RunConfig, RunError, run_hash
from semcom.files import SUMMARY
from semcom.runs.folder.stored import write_stored_config
from semcom.runs.folder.summary import write_summary
from semcom.studies.grid import read_grid_field
from semcom.studies.results.outcome import locate_run_folder
from semcom.studies.sweep.request import parse_request
from semcom.studies.sweep.sweep import sweep
from semcom.studies.sweep.tune import plan_search
from tests.pages import read_table
from tests.refusals import refuses

SCORES = {("fedavg", 0.1): 0.5, ("fedavg", 0.2): 0.7, ("fedavg", 0.4): 0.7}
SCORES |= {("fedproto", 0.1): 0.9, ("fedproto", 0.2): 0.2, ("fedproto", 0.4): 0.1}


SMALL = {"clients": 2, "train.rounds": 1, "partition.shots": 5}


def pretend(config: RunConfig) -> None:
    """A run whose validation accuracy is `SCORES`, less for a lambda of 1, and whose tests say the opposite."""
    score = SCORES[config.method, config.train.lr] - 0.01 * (read_grid_field(config, "hyper.lam") == 1)  # type: ignore[index]
    if score < 0.15:
        folder = locate_run_folder(config)
        write_stored_config(folder, config)
        raise RunError("round 1: non-finite loss or weights at client 0")
    view = {"accuracy": 1 - score, "accuracy_std": 0.0, "worst10": 0.1, "jain": 1.0, "clients": [1 - score]}
    view |= {"validation": score, "best": 1 - score, "best_round": 1, "last": 1 - score}
    write_stored_config(locate_run_folder(config), config)
    found = {"method": config.method, "accuracy": 1 - score, "views": {"only": view}, "rounds": 1, "clients": 2}
    write_summary(locate_run_folder(config), {**found, "seed": config.seed, "hash": run_hash(config)})


def tuned(out: Path, **options: Any) -> pd.DataFrame:
    sweep(
        **{
            "methods": ("fedavg", "fedproto"),
            "seeds": (0, 1),
            "set": SMALL,
            "tune": {"train.lr": (0.1, 0.2, 0.4), "hyper.lam": (1.0, 0.01)},
            "train": pretend,
            "out": out,
            **options,
        }
    )
    return pd.read_parquet(out / "results.parquet")


def test_the_best_on_validation_runs_with_all_seeds(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Of equal candidates the first; lambda is searched for the method that has it; what diverged is no candidate."""
    frame = tuned(tmp_path)
    assert list(zip(frame["variant"], frame["train.lr"], frame["seed"], strict=True)) == [
        *(("fedavg", 0.2, seed) for seed in (0, 1)),
        *(("fedproto", 0.1, seed) for seed in (0, 1)),
    ]
    assert set(frame[frame["variant"] == "fedproto"]["hyper.lam"]) == {0.01}
    assert set(frame["partition.validation"]) == {0.0}
    search = pd.read_parquet(tmp_path / "search" / "results.parquet")
    assert len(search) == 3 + 6 and set(search["seed"]) == {1000} and set(search["partition.validation"]) == {0.2}
    text = (tmp_path / "tuned.md").read_text(encoding="utf-8")
    assert text in capsys.readouterr().out
    assert [list(row.values()) for row in read_table(text)] == [
        ["fedavg", "0.1", "None", "50.0 %", ""],
        ["fedavg", "0.2", "None", "70.0 %", "chosen"],
        ["fedavg", "0.4", "None", "70.0 %", ""],
        ["fedproto", "0.1", "1", "89.0 %", ""],
        ["fedproto", "0.1", "0.01", "90.0 %", "chosen"],
        ["fedproto", "0.2", "1", "19.0 %", ""],
        ["fedproto", "0.2", "0.01", "20.0 %", ""],
        ["fedproto", "0.4", "1", "diverged", ""],
        ["fedproto", "0.4", "0.01", "diverged", ""],
    ]
    command = json.loads((tmp_path / "sweep.json").read_text(encoding="utf-8"))["command"]
    assert "tune={'train.lr': (0.1, 0.2, 0.4), 'hyper.lam': (1.0, 0.01)}" in command
    again = tuned(tmp_path, seeds=(0, 1, 2), train=fail_again)
    assert sorted(set(again["seed"])) == [0, 1, 2]


def test_a_folder_keeps_what_was_chosen_for_it(tmp_path: Path) -> None:
    """Later seeds and methods have it; another choice, or none, is another study; only asked candidates win."""
    rates = {"tune": {"train.lr": (0.1, 0.2)}}
    tuned(tmp_path / "a", methods="fedavg", seeds=0, **rates)
    frame = tuned(tmp_path / "a", methods="fedproto", seeds=0, **rates)
    assert dict(zip(frame["variant"], frame["train.lr"], strict=True)) == {"fedavg": 0.2, "fedproto": 0.1}
    frame = tuned(tmp_path / "a", methods=("fedavg", "fedproto"), seeds=(0, 1), **rates)
    assert len(frame) == 4 and set(zip(frame["variant"], frame["train.lr"], strict=True)) == {
        ("fedavg", 0.2),
        ("fedproto", 0.1),
    }
    both = {"tune": {"train.lr": (0.1, 0.2), "hyper.lam": (1.0, 0.01)}, "seeds": 0}
    tuned(tmp_path / "b", methods="fedproto", **both)
    assert len(tuned(tmp_path / "b", methods="fedavg", **both)) == 2, "which has no lambda"
    with pytest.raises(RunError):  # its rate is none of `SCORES`
        sweep(methods="fedavg", seeds=0, set=SMALL, train=pretend, out=tmp_path / "c")
    with refuses("out", tmp_path / "c"):
        tuned(tmp_path / "c", methods="fedavg", seeds=0, **rates)
    assert not (tmp_path / "c" / "search").exists()
    for other in ({"tune": ()}, {"tune": {"train.lr": (0.1,)}}):
        with refuses("out", tmp_path / "a"):
            tuned(tmp_path / "a", methods="fedavg", seeds=0, **other)


def fail_again(config: RunConfig) -> None:
    """Only what diverged and the new seed are left to do."""
    assert config.seed == 2 or config.train.lr == 0.4
    pretend(config)


def test_an_experiment_is_tuned_at_all_of_its_points(tmp_path: Path) -> None:
    """Its own axes and settings stay; images that it sets aside are those of the search, too."""
    options = {"set": {**SMALL, "partition.validation": 0.4}, "tune": {"train.lr": (0.1, 0.2)}, "methods": "fedavg"}
    frame = tuned(tmp_path, name="demo", seeds=0, **options)
    search = pd.read_parquet(tmp_path / "search" / "results.parquet")
    assert set(frame["train.lr"]) == {0.2} and set(frame["partition.validation"]) == {0.4}
    assert len(frame) > 1 and len(search) == 2 * len(frame) and set(search["partition.validation"]) == {0.4}


def test_what_cannot_be_chosen_is_told(tmp_path: Path) -> None:
    def broken(config: RunConfig) -> None:
        raise RunError("the disk is full")

    with pytest.raises(RunError, match="a run of the search failed: RunError: the disk is full"):
        tuned(tmp_path / "full", train=broken)

    def untested(config: RunConfig) -> None:
        """As `train.eval_clients` may choose clients with one image each."""
        pretend(config)
        folder = locate_run_folder(config)
        summary = json.loads((folder / SUMMARY).read_text())
        del summary["views"]["only"]["validation"]
        write_summary(folder, summary)

    with pytest.raises(RunError, match="no client with validation images"):
        tuned(tmp_path / "none", methods="fedproto", train=untested)
    with refuses("hyper.lam", "fedavg"):
        tuned(tmp_path / "idle", methods="fedavg")
    assert not (tmp_path / "idle").exists()
    with pytest.raises(RunError, match="all candidates of fedproto diverged"):
        tuned(tmp_path / "all", tune={"train.lr": (0.4,)})
    with refuses("train.lr"):
        tuned(tmp_path, vary={"train.lr": (0.1,)})
    for dry_run in (False, True):
        with refuses("shard", "1/2"):
            tuned(tmp_path, shard="1/2", dry_run=dry_run)


def test_a_field_is_searched_for_the_methods_that_use_it(tmp_path: Path) -> None:
    """pFedMe has a rate of its own, for which it has candidates of its own."""
    methods, tune = ("fedavg", "pfedme"), {"train.lr": (0.1, 0.2), "hyper.eta": (0.02, 0.05, 0.1)}
    asked = (None, None, parse_request(methods, 0, SMALL, None, tune), (), tmp_path)
    runs = plan_search(*asked).runs.values()
    found = [(run.method, run.train.lr, read_grid_field(run, "hyper.eta")) for run in runs]
    assert sorted(found, key=str) == [
        *(("fedavg", lr, None) for lr in (0.1, 0.2)),
        *(("pfedme", 1e-3, rate) for rate in (0.02, 0.05, 0.1)),
    ]
