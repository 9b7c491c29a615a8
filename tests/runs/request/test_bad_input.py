"""Input that is broken or hostile: refused in one line, without a traceback, a wait, or all of the memory."""

from __future__ import annotations

import errno
import json
import os
import socket
import tracemalloc
import types
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from semcom.cli import main as cli
from semcom.cli.stored import read_stored
from semcom.config import RunConfig, RunError
from semcom.engine.train import phase
from semcom.engine.train.phase import Phase
from semcom.files import digest_of_file
from semcom.models.weights import read_weights
from semcom.runs.request import limits
from semcom.runs.request.resolve import resolve
from semcom.runs.rounds.runner import run
from tests.refusals import refuses
from tests.runs.request.test_nonsense import Text


def tiny(**fields: Any) -> dict[str, Any]:
    usual: dict[str, Any] = {
        "data": {"name": "test-bars"},
        "model": {"encoder": "test-patches", "features": 4},
        "partition": {"options": {"ways": 2, "shots": 5}},
        "train": {"rounds": 1, "batch_size": 8},
    }
    merged = {name: {**table, **fields.pop(name, {})} for name, table in usual.items()}
    return {"method": "fedavg", "clients": 2, "device": "cpu", **merged, **fields}


def test_what_looks_odd_and_is_fine() -> None:
    """Texts of classes of their own become texts; any table is a table; a seed may have 4,000 digits less one."""
    config = resolve(tiny(train={"optimizer": Text("sgd")}, hyper=types.MappingProxyType({}), seed=10**3999))
    assert type(config.train.optimizer) is str and config.train.optimizer == "sgd" and config.seed == 10**3999


SPECIAL = {
    "pipe": lambda path: os.mkfifo(path),
    "device": lambda path: os.symlink("/dev/zero", path),
    "socket": lambda path: _listen(path),
    "circle": lambda path: os.symlink(path, path),
    "folder": lambda path: os.symlink("/", path),
}


def _listen(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as end:
        end.bind(str(path))


@pytest.mark.parametrize("kind", SPECIAL)
def test_what_is_no_file_is_not_read(kind: str, here: Path) -> None:
    """Whatever field names it; the whole disk is digested no more than a device that has no end."""
    SPECIAL[kind](here / "it")
    (here / "it.py").symlink_to("it")
    (here / "it.safetensors").symlink_to("it")
    split = {"kind": "file", "options": {"path": "it"}}
    fields = {
        "model.weights": [tiny(model={"weights": name}) for name in ("it", "it.safetensors")],
        "partition.path": [{**tiny(), "partition": split}],
        "channel.path": [tiny(channel={"kind": "cir", "options": {"path": "it"}})],
        "plugin": [tiny(plugins=["it.py"])],
    }
    if kind != "folder":
        fields |= {"data.name": [tiny(data={"name": str(here / "it")})], "out": [tiny(out=str(here / "it"))]}
    for field, requests in fields.items():
        for request in requests:
            with refuses(field):
                run(request)
    with refuses("model.weights", "it.safetensors"):
        read_weights("it.safetensors")
    with pytest.raises(OSError):
        digest_of_file(Path("it"))


@pytest.mark.parametrize("name", ["sweep.json", "results.parquet", "a-run/config.json"])
def test_a_run_does_not_hide_a_study(name: str, tmp_path: Path) -> None:
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text("{}")
    with refuses("out", tmp_path, name.split("/")[0]):
        run(tiny(out=str(tmp_path)))
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == [tmp_path / name]


@pytest.mark.parametrize("field", ["data.name", "new_data", "partition.path"])
def test_an_archive_larger_than_memory_is_refused(field: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A zip bomb: 64 MiB of zeros in 64 KiB."""
    path, zeros = tmp_path / "bomb.npz", np.zeros(64 << 20, np.uint8)
    np.savez_compressed(path, x_train=zeros, train_0=zeros)
    fields: dict[str, dict[str, Any]] = {
        "data.name": {"data": {"name": str(path)}},
        "new_data": {"new_data": str(path), "new_clients": 1},
        "partition.path": {"partition": {"kind": "file", "options": {"path": str(path)}}},
    }
    config = {**tiny(), **fields[field]}
    monkeypatch.setattr(limits, "measure_free_memory", lambda device: 64 << 20)
    tracemalloc.start()
    with refuses(field, path, "0.1 GiB, and 0.1 GiB are free"):
        resolve(config)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 10 << 20


def test_a_pipe_a_device_and_a_huge_file(tmp_path: Path) -> None:
    pipe, huge = tmp_path / "pipe", tmp_path / "huge"
    os.mkfifo(pipe)
    huge.touch()
    os.truncate(huge, (64 << 20) + 1)
    for path, word in ((pipe, "is no file"), ("/dev/zero", "is no file"), (huge, "64 MiB"), ("a\0b", r"'a\x00b'")):
        with refuses("config", word):
            read_stored(str(path))


def test_no_noise_is_read_back(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Infinity is what config.json says of an SNR without noise."""
    (tmp_path / "config.json").write_text(json.dumps(tiny(channel={"snr_db": float("inf")})))
    assert cli.main(["train", "fedavg", "--config", str(tmp_path / "config.json")]) == 0


@pytest.mark.parametrize("snr_db", [-300.0, 300.0])
def test_the_ends_of_the_decibels_are_numbers(snr_db: float) -> None:
    result = run(RunConfig(**tiny(channel={"snr_db": snr_db})))
    assert 0 <= result.summary["accuracy"] <= 1
    assert all(np.isfinite(v) for v in result.summary["snr_received_db"].values() if v is not None)


def test_steps_that_memory_cannot_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a method's own phases, which no field of the run bounds: 8 bytes for a size, twice, and for each sample."""
    schedule = resolve(tiny()).train
    asked = []
    monkeypatch.setattr(phase, "measure_free_memory", lambda device: asked.append(device) or 8 * (2 + 5) * 2**21)
    with pytest.raises(MemoryError, match="^Unable to allocate 0.1 GiB for 2097153 steps$"):
        Phase(steps=2**21 + 1).sizes(0, 5, schedule)
    assert len(Phase(steps=2**21).sizes(0, 5, schedule)) == 2**21 and len(asked) == 2
    monkeypatch.undo()
    with pytest.raises(RunError, match="^round 1: there is not enough memory: .* GiB more were wanted; last good"):
        run(RunConfig(**tiny(method="fedrep", hyper={"head_epochs": 10**12})))


@pytest.mark.parametrize(
    ("error", "runs"),
    [(OSError(errno.ENOLCK, ""), True), (OSError(errno.ENOSYS, ""), True), (OSError(errno.EOPNOTSUPP, ""), True)]
    + [(OSError(errno.EROFS, "Read-only"), False), (PermissionError(errno.EACCES, "denied"), False)],
)
def test_locks_that_cannot_be_had(
    error: Exception, runs: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A file system without them has no guard, and of one that is read-only a finished run gives its result."""

    def refuse(*of: object) -> None:
        raise error

    first = run(tiny(out=str(tmp_path / "finished")))  # type: ignore[arg-type]
    monkeypatch.setattr("fcntl.flock" if runs else "filelock.FileLock._acquire", refuse)
    assert run(tiny(out=str(tmp_path / "finished"))).summary == first.summary  # type: ignore[arg-type]
    if runs:
        assert run(tiny(out=str(tmp_path / "new"))).summary["accuracy"] == first.summary["accuracy"]  # type: ignore[arg-type]
        assert any("no locks" in text for text in caplog.messages)
    else:
        with pytest.raises(RunError, match="out: "):
            run(tiny(out=str(tmp_path / "new")))  # type: ignore[arg-type]
