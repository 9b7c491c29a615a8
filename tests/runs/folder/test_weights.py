"""Weights in the place of checkpoints: the models of a finished run, once, and what a sweep keeps of its runs."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Any

import pytest
import torch

import semcom
from semcom.config import ConfigError, RunError
from semcom.files import CHECKPOINT, METRICS, PREVIOUS, SUMMARY, TRAINING, WEIGHTS
from semcom.models.weights import read_weights
from semcom.runs.folder.checkpoint import load_checkpoint
from semcom.runs.folder.weights import load_weights, write_weights
from semcom.runs.result.result import Result
from semcom.runs.rounds.load import load
from semcom.runs.rounds.runner import run
from semcom.studies.results.outcome import train_and_add_outcome
from semcom.studies.sweep.attempt import attempt_run
from semcom.studies.sweep.sweep import sweep
from tests import worlds
from tests.runs.rounds.test_run import weights

ARMS: list[dict[str, Any]] = [
    {"method": "fedavg"},
    {"method": "local", "model": {"init": "client"}, "train": {"participation": 0.5}},
    {"method": "scaffold"},
    {"method": "local", "store": "disk", "model": {"init": "client"}, "train": {"participation": 0.5}},
]


def equal(one: Any, other: Any) -> bool:
    """Whether two contents of checkpoints have the same containers and numbers, bit for bit."""
    if isinstance(one, torch.Tensor):
        return one.dtype == other.dtype and torch.equal(one, other)
    if isinstance(one, dict):
        return list(one) == list(other) and all(equal(one[name], other[name]) for name in one)
    if isinstance(one, list | tuple):
        return type(one) is type(other) and len(one) == len(other) and all(map(equal, one, other))
    return type(one) is type(other) and one == other


@pytest.mark.parametrize("arm", ARMS, ids=lambda arm: "-".join(map(str, arm.values())))
def test_weights_are_the_checkpoint_once_more(arm: dict[str, Any], tmp_path: Path) -> None:
    train = {"rounds": 3, "checkpoint_every": 1, **arm.get("train", {})}
    arm = {**arm, "train": train, "precision": "float32"}
    kept = run(worlds.request(**arm, out=str(tmp_path / "kept")))
    content = load_checkpoint(tmp_path / "kept" / CHECKPOINT)
    found = run(worlds.request(**arm, keep=("weights",), out=str(tmp_path / "once")))
    assert found.summary["hash"] == kept.summary["hash"]
    names = {path.name for path in (tmp_path / "once").iterdir()}
    assert WEIGHTS in names and not names & {CHECKPOINT, PREVIOUS}
    once = load_weights(tmp_path / "once" / WEIGHTS)
    assert equal(once["state"], content["state"]) and once["progress"]["round"] == 3
    for again in (load(tmp_path / "once"), run(worlds.request(**arm, keep=("weights",), out=str(tmp_path / "once")))):
        assert all(map(torch.equal, weights(again), weights(kept))) and again.summary == found.summary
    again = run(worlds.request(**arm, keep=("weights", "confusion"), out=str(tmp_path / "once")))
    assert all((again.confusion[view] == kept.confusion[view]).all() for view in kept.views)


@pytest.mark.parametrize("fields", [{"keep": ("weights",)}, {"train": {"rounds": 1, "drop_checkpoints": True}}])
def test_a_finished_run_gives_up_its_checkpoints_too(fields: dict[str, Any], tmp_path: Path) -> None:
    """As if it had been asked for at once; an error about models that have gone leaves no sign of a failure."""
    late, once = tmp_path / "late", tmp_path / "once"
    run(worlds.request(train={"rounds": 1}, out=str(late)))
    for folder in (late, once):
        run(worlds.request(**{"train": {"rounds": 1}, **fields}, out=str(folder)))
    files = [{path.name for path in folder.iterdir()} for folder in (late, once)]
    assert files[0] == files[1] and not files[0] & {CHECKPOINT, PREVIOUS}
    if "keep" not in fields:
        with pytest.raises(RunError, match="has kept none of its models"):
            run(worlds.request(train={"rounds": 1}, keep=("confusion",), out=str(late)))
        assert {path.name for path in late.iterdir()} == files[1]


def test_checkpoints_go_only_once_the_weights_can_be_read(tmp_path: Path) -> None:
    """Damaged ones beside a checkpoint are written again from it."""
    how: dict[str, Any] = {"train": {"rounds": 1}, "out": str(tmp_path), "precision": "float32"}
    kept = run(worlds.request(**how))
    (tmp_path / WEIGHTS).write_bytes(b"damaged")
    run(worlds.request(**how, keep=("weights",)))
    assert not (tmp_path / CHECKPOINT).exists()
    assert all(map(torch.equal, weights(load(tmp_path)), weights(kept)))


def test_weights_of_float64_are_kept_in_float32(tmp_path: Path) -> None:
    kept = run(worlds.request(precision="float64", train={"rounds": 1}, out=str(tmp_path)))
    write_weights(tmp_path)
    kinds = {t.dtype for t in read_weights(str(tmp_path / WEIGHTS)).values()}
    assert torch.float32 in kinds and torch.float64 not in kinds
    (tmp_path / CHECKPOINT).unlink()
    for one, other in zip(weights(load(tmp_path)), weights(kept), strict=True):
        assert one.dtype == torch.float64 and torch.equal(one, other.float().double())


def test_damaged_weights_are_refused(tmp_path: Path) -> None:
    run(worlds.request(train={"rounds": 1}, keep=("weights",), out=str(tmp_path)))
    whole = (tmp_path / WEIGHTS).read_bytes()
    for at in (3, 200, len(whole) // 2, len(whole) - 1):
        (tmp_path / WEIGHTS).write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        with pytest.raises(RunError, match=WEIGHTS):
            load(tmp_path)
    (tmp_path / WEIGHTS).write_bytes(whole[: len(whole) // 2])
    with pytest.raises(RunError, match=WEIGHTS):
        load(tmp_path)
    (tmp_path / WEIGHTS).unlink()
    with pytest.raises(RunError, match="--keep weights"):
        load(tmp_path)


STUDY: dict[str, Any] = {"methods": ("fedavg", "local"), "seeds": (0,)}
SMALL = {"clients": 2, "train.rounds": 2, "train.checkpoint_every": 1, "partition.shots": 4, "model.encoder": "mlp"}


@pytest.mark.parametrize("keep", [(), ("weights",), ("checkpoint",)])
def test_a_sweep_keeps_the_models_that_are_asked_for(keep: tuple[str, ...], tmp_path: Path) -> None:
    sweep(**STUDY, set={**SMALL, "keep": keep}, out=tmp_path / "a")
    models_kept = {"weights": {WEIGHTS}, "checkpoint": {CHECKPOINT, PREVIOUS}}
    wanted = set().union(*(models_kept[name] for name in keep))
    runs = [path.parent for path in (tmp_path / "a").glob(f"*/{SUMMARY}")]
    assert len(runs) == 2
    for folder in runs:
        assert {path.name for path in folder.iterdir()} & {WEIGHTS, CHECKPOINT, PREVIOUS} == wanted
        if keep:
            assert semcom.load(folder).summary["rounds"] == 2
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "a").glob("*/*")}
    sweep(**STUDY, set={**SMALL, "keep": keep}, out=tmp_path / "a")  # all runs are finished already
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "a").glob("*/*")} == before
    if keep == ("checkpoint",):  # which is not taken over, so that there is nothing to reuse
        with pytest.raises(ConfigError, match="no finished run of this sweep, or not what it keeps"):
            sweep(**STUDY, set={**SMALL, "keep": keep}, reuse=[tmp_path / "a"], out=tmp_path / "b")
        return
    sweep(**STUDY, set={**SMALL, "keep": keep}, reuse=[tmp_path / "a"], out=tmp_path / "b")
    for folder in runs if keep else ():
        assert (tmp_path / "b" / folder.name / WEIGHTS).read_bytes() == (folder / WEIGHTS).read_bytes()


def test_a_sweep_keeps_the_rows_to_which_weights_refer(tmp_path: Path) -> None:
    on_disk = {**SMALL, "store": "disk", "train.participation": 0.5, "keep": ("weights",)}
    sweep(methods="local", seeds=(0,), set=on_disk, out=tmp_path)
    (folder,) = (path.parent for path in tmp_path.glob(f"*/{SUMMARY}"))
    assert len(weights(semcom.load(folder))) > 0


def test_a_run_whose_weights_are_not_written_is_not_finished(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    request = worlds.request(train={"rounds": 1}, keep=("weights",), out=str(tmp_path))
    with monkeypatch.context() as patch:
        patch.setattr("semcom.runs.folder.weights.write_atomically", full)
        with pytest.raises(RunError, match=f"{WEIGHTS}: No space left"):
            run(request)
    assert not (tmp_path / SUMMARY).exists()
    run(request)
    assert (tmp_path / SUMMARY).exists() and (tmp_path / WEIGHTS).exists()


def full(*of: object) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


def test_weights_of_a_finished_run_are_written_from_its_checkpoint(tmp_path: Path) -> None:
    how: dict[str, Any] = {"train": {"rounds": 1}, "precision": "float32", "out": str(tmp_path)}
    kept = run(worlds.request(**how))
    state = load_checkpoint(tmp_path / CHECKPOINT)["state"]
    assert run(worlds.request(**how, keep=("weights",))).summary == kept.summary
    assert equal(load_weights(tmp_path / WEIGHTS)["state"], state)


def test_a_run_that_is_killed_while_its_checkpoints_go_is_finished(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    train = {"rounds": 2, "checkpoint_every": 1, "drop_checkpoints": True}
    unlink, gone = Path.unlink, list[str]()

    def killed(path: Path, missing_ok: bool = False) -> None:
        if path.name in (CHECKPOINT, PREVIOUS):
            gone.append(path.name)
            if len(gone) > 1:
                raise KeyboardInterrupt
        unlink(path, missing_ok)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "unlink", killed)
        with pytest.raises(KeyboardInterrupt):
            run(worlds.request(train=train, out=str(tmp_path)))
    told = (tmp_path / SUMMARY).read_bytes()
    seen: list[Any] = []
    run(worlds.request(train=train, out=str(tmp_path)), on_round=seen.append)
    assert not seen and (tmp_path / SUMMARY).read_bytes() == told


def test_an_experiments_own_training_keeps_its_models_until_it_is_done(tmp_path: Path) -> None:
    """Its measurement may fail, and needs the models of the finished training when it is tried again."""
    config = semcom.resolve(worlds.request(train={"rounds": 1}, out=str(tmp_path / "r")))
    tried: list[int] = []

    def train(config: Any) -> None:
        def measure(result: Result) -> dict[str, float]:
            tried.append(len(weights(result)))
            if len(tried) == 1:
                raise ValueError("on purpose")
            return {"more": 1.0}

        train_and_add_outcome(config, measure)

    for left in (True, False):
        attempt_run(semcom.config.to_dict(config), train, None)
        assert (tmp_path / "r" / TRAINING / CHECKPOINT).exists() == left
    assert tried[0] == tried[1] > 0 and (tmp_path / "r" / SUMMARY).exists()
    assert (tmp_path / "r" / TRAINING / METRICS).exists()
