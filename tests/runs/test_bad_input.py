"""Input that is broken or hostile: refused in one line, without a traceback, a wait, or all of the memory."""

from __future__ import annotations

import json
import os
import tracemalloc
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from semcom.cli import main as cli
from semcom.config import ConfigError, RunConfig, RunError
from semcom.engine.train import phase
from semcom.engine.train.phase import Phase
from semcom.runs import limits
from semcom.runs.resolve import resolve
from semcom.runs.runner import run
from tests.runs.test_nonsense import Hostile, Stranger, Text, deep


def refused(config: Any, by: Callable[[Any], Any] = resolve) -> str:
    """The one line with which a request is refused."""
    with pytest.raises(ConfigError) as stop:
        by(config)
    line = str(stop.value)
    assert line.isprintable() and len(line) <= 1005
    return line


def tiny(**fields: Any) -> dict[str, Any]:
    """A run of a moment."""
    usual: dict[str, Any] = {
        "data": {"name": "test-bars"},
        "model": {"encoder": "test-patches", "features": 4},
        "partition": {"options": {"ways": 2, "shots": 5}},
        "train": {"rounds": 1, "batch_size": 8},
    }
    merged = {name: {**table, **fields.pop(name, {})} for name, table in usual.items()}
    return {"method": "fedavg", "clients": 2, "device": "cpu", **merged, **fields}


# Values of the wrong kind --------------------------------------------------------------------------------------------

A, B = "\ud800", "a\0b"
HOSTILE: list[tuple[Any, str]] = [
    (Hostile(), "config: a value of type Hostile that cannot be written is not a table of fields"),
    ({"clients": Hostile()}, "clients: a value of type Hostile that cannot be written is not a whole number"),
    (
        {"precision": Hostile()},
        "precision: a value of type Hostile that cannot be written is not one of float32, tf32, bf16, float64",
    ),
    (
        {"train": {"optimizer": Hostile()}},
        "train.optimizer: a value of type Hostile that cannot be written is not one of adam, sgd",
    ),
    ({"store": np.zeros(3)}, "store: array([0., 0., 0.]) is not one of auto, device, host, disk"),
    ({Hostile(): 1}, "a value of type Hostile that cannot be written: no such field; known are method,"),
    ({"hyper": {Hostile(): 1}}, "hyper.a value of type Hostile that cannot be written: not for fedcl"),
    ({"hyper": Hostile()}, "hyper: a value of type Hostile that cannot be written is not a table of fields"),
    ({"method": Stranger()}, "method: Stranger(rounds=1) is not a text"),
    ({"out": Stranger()}, "out: Stranger(rounds=1) is not a text"),
    ({"contents": RunConfig}, "contents: <class 'semcom.config.fields.RunConfig'> is not a table from a text"),
    ({"precision": Stranger()}, "precision: Stranger(rounds=1) is not one of float32"),
    ({"train": {"through_link": Stranger()}}, "train.through-link: Stranger(rounds=1) is not true or false"),
    ({"train": deep()}, "train: a value of type list that cannot be written is not a table of fields"),
    ({"clients": deep()}, "config: lists within lists are nested too deep for any field"),
    ({"method": "fedprox", "hyper": {"mu": deep()}}, "hyper: lists within lists are nested too deep for any option"),
    ({"a\nb\r\x1b[1m": 1}, r"a b \x1b[1m: no such field"),
    ({"out": B}, r"out: 'a\x00b' is not a text"),
    ({"data": {"name": B}}, r"data.name: 'a\x00b' is not a text"),
    ({"plugins": [A]}, r"plugins: ('\ud800',) is not a list of texts"),
    ({"out": A}, r"out: '\ud800' is not a text"),
    ({"seed": 10**5000}, "seed: a value of type int that cannot be written is not a whole number"),
    ({"clients": -(10**5000)}, "clients: a value of type int that cannot be written is not a whole number"),
    ({"train": {"lr": 10**5000}}, "train.lr: a value of type int that cannot be written is not a number"),
    ({"clients": [1] * 10**5}, "clients: (1, 1, 1,"),
    ({"out": "x" * 10**6}, "out: 'xxx"),
]


@pytest.mark.parametrize(("config", "message"), HOSTILE, ids=[message[:40] for _, message in HOSTILE])
def test_values_of_the_wrong_kind(config: Any, message: str) -> None:
    assert refused(config).startswith(message)


def test_what_looks_odd_and_is_fine() -> None:
    """Texts of classes of their own become texts; any table is a table; a seed may have 4,000 digits less one."""
    config = resolve(tiny(train={"optimizer": Text("sgd")}, hyper=types.MappingProxyType({}), seed=10**3999))
    assert type(config.train.optimizer) is str and config.train.optimizer == "sgd" and config.seed == 10**3999


@pytest.mark.parametrize("device", ["meta", "hpu", "privateuseone", "mps:9", "xla", "nonsense", "cuda:-1", ""])
def test_devices_that_hold_no_numbers(device: str) -> None:
    assert refused({"method": "fedavg", "device": device}) == (
        f"device: {device!r} is not here; give cpu, cuda, cuda:N or auto"
    )


# Paths ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("field", ["data.name", "data.root", "new-data", "partition.path", "out"])
def test_paths_that_no_system_takes(field: str) -> None:
    long = "x" * 5000
    fields: dict[str, dict[str, Any]] = {
        "data.name": {"data": {"name": long}},
        "data.root": {"data": {"root": long}},
        "new-data": {"new_data": long, "new_clients": 1},
        "partition.path": {"partition": {"kind": "file", "options": {"path": long}}},
        "out": {"out": long},
    }
    assert refused({"method": "fedavg", **fields[field]}).endswith("xxx' cannot be looked up: File name too long")
    assert refused({"method": "fedavg", **fields[field]}).startswith(f"{field}: 'xxx")


def test_pipes_are_not_waited_for(tmp_path: Path) -> None:
    path = tmp_path / "pipe.py"
    os.mkfifo(path)
    split = {"kind": "file", "options": {"path": str(path)}}
    assert refused({"plugins": [str(path)]}) == f"plugin: {str(path)!r} is no file"
    assert refused(tiny(data={"name": str(path)}), run).startswith(f"data.name: {str(path)!r} is unknown")
    assert refused({**tiny(), "partition": split}, run).startswith(f"partition.path: {str(path)!r} is not there")
    assert refused(tiny(out=str(path)), run) == f"out: {path} is a file; give a folder"


@pytest.mark.parametrize("field", ["data.name", "new-data", "partition.path"])
def test_an_archive_larger_than_memory_is_refused(field: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A zip bomb: 64 MiB of zeros in 64 KiB."""
    path, zeros = tmp_path / "bomb.npz", np.zeros(64 << 20, np.uint8)
    np.savez_compressed(path, x_train=zeros, train_0=zeros)
    fields: dict[str, dict[str, Any]] = {
        "data.name": {"data": {"name": str(path)}},
        "new-data": {"new_data": str(path), "new_clients": 1},
        "partition.path": {"partition": {"kind": "file", "options": {"path": str(path)}}},
    }
    config = {**tiny(), **fields[field]}
    monkeypatch.setattr(limits, "free_memory", lambda device: 64 << 20)
    tracemalloc.start()
    line = refused(config)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    amounts = "its arrays take at least 0.1 GiB, and 0.1 GiB are free"
    assert line == f"{field}: {str(path)!r} is too large: {amounts}" and peak < 10 << 20


# JSON ----------------------------------------------------------------------------------------------------------------

BROKEN = [
    ("[" * 100_000, "is no JSON file: maximum recursion depth exceeded"),
    ('{"train": ' * 100_000, "is no JSON file: maximum recursion depth exceeded"),
    ('{"clients": 2, "clients": 3}', "'clients' is given twice"),
    ('{"train": {"lr": 1, "lr": 1}}', "'lr' is given twice"),
    ('{"out": "a\\u0000b"}', r"out: 'a\x00b' is not a text"),
    ('{"method": "\\ud800"}', r"method: '\ud800' is not a text"),
    ('{"clients": %s}' % ("9" * 400), "clients: 999"),
    ('{"clients": %s}' % ("9" * 5000), "is no JSON file: Exceeds the limit"),
    ('{"train": {"lr": NaN}}', "train.lr: nan is not a positive number"),
    ('{"train": {"lr": Infinity}}', "train.lr: inf is not a positive number"),
    ('{"clients": NaN}', "clients: nan is not a whole number"),
    ('{"channel": {"snr_db": -Infinity}}', "channel.snr-db: -inf is not a number in dB"),
    ("\0", "is no JSON file"),
    ("\ufeff{}", "is no JSON file"),
]


def told(path: Path | str, capsys: pytest.CaptureFixture[str]) -> str:
    """What `semcom train --config` says of a file."""
    assert cli.main(["train", "fedavg", "--device", "cpu", "--config", str(path)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    return line


@pytest.mark.parametrize(("text", "message"), BROKEN, ids=[message[:30] for _, message in BROKEN])
def test_files_that_are_no_configuration(
    text: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "config.json").write_text(text)
    line = told(tmp_path / "config.json", capsys)
    assert line.startswith("semcom: error: ") and message in line


def test_a_pipe_a_device_and_a_huge_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pipe, huge = tmp_path / "pipe", tmp_path / "huge"
    os.mkfifo(pipe)
    huge.touch()
    os.truncate(huge, (64 << 20) + 1)
    assert told(pipe, capsys) == f"semcom: error: config: {str(pipe)!r} is no file"
    assert told("/dev/zero", capsys) == "semcom: error: config: '/dev/zero' is no file"
    assert told(huge, capsys).endswith("has more than 64 MiB, and is no configuration")
    assert told("a\0b", capsys).startswith(r"semcom: error: config: 'a\x00b' is no JSON file: embedded null byte")


def test_no_noise_is_read_back(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Infinity is what config.json says of an SNR without noise."""
    (tmp_path / "config.json").write_text(json.dumps(tiny(channel={"snr_db": float("inf")})))
    assert cli.main(["train", "fedavg", "--config", str(tmp_path / "config.json")]) == 0


# Numbers at the ends of their range ----------------------------------------------------------------------------------

ENDS: list[tuple[dict[str, Any], str]] = [
    ({"channel": {"snr_db": 1e308}}, "channel.snr-db: 1e+308 is beyond -300 to 300 dB; inf is a link without noise"),
    ({"channel": {"test_snr_db": -(10.0**30)}}, "channel.test-snr-db: -1e+30 is beyond -300 to 300 dB"),
    ({"channel": {"downlink_snr_db": "9,301"}}, "channel.downlink-snr-db: '9,301' is beyond"),
    ({"air": {"bits_per_use": 5e-324}}, "air.bits-per-use: 5e-324 is not a positive number, from 1e-30 to 1e30"),
    ({"air": {"bandwidth_hz": 5e-324}}, "air.bandwidth-hz: 5e-324 is not a positive number, from 1e-30 to 1e30"),
    ({"air": {"symbol_energy": 1e308}}, "air.symbol-energy: 1e+308 is not a positive number, from 1e-30 to 1e30"),
    (
        {"channel": {"kind": "ofdm", "options": {"spacing_khz": 5e-324}}},
        "channel.spacing-khz: 5e-324 is not a positive",
    ),
    ({"channel": {"kind": "ofdm", "options": {"cyclic_prefix": 1e308}}}, "channel.cyclic-prefix: 1e+308 is not a num"),
]


@pytest.mark.parametrize(("fields", "message"), ENDS, ids=[message.split(" is ")[0] for _, message in ENDS])
def test_numbers_beyond_what_can_be_counted_with(fields: dict[str, Any], message: str) -> None:
    assert refused(tiny(**fields)).startswith(message)


@pytest.mark.parametrize("snr_db", [-300.0, 300.0])
def test_the_ends_of_the_decibels_are_numbers(snr_db: float) -> None:
    result = run(RunConfig(**tiny(channel={"snr_db": snr_db})))
    assert 0 <= result.summary["accuracy"] <= 1
    assert all(np.isfinite(v) for v in result.summary["snr_received_db"].values() if v is not None)


@pytest.mark.parametrize("kind", ["dirichlet", "dirichlet-client"])
def test_a_concentration_that_gives_no_shares(kind: str) -> None:
    """NumPy's shares are zeros where the sum of the concentrations is infinite."""
    config = {**tiny(), "partition": {"kind": kind, "options": {"beta": 1e308}}}
    assert refused(config) == "partition.beta: 1e+308 is not a positive number, from 1e-30 to 1e30"


def test_steps_that_memory_cannot_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a method's own phases, which no field of the run bounds: 8 bytes for a size, twice, and for each sample."""
    schedule = resolve(tiny()).train
    asked = []
    monkeypatch.setattr(phase, "free_memory", lambda device: asked.append(device) or 8 * (2 + 5) * 2**21)
    with pytest.raises(MemoryError, match="^Unable to allocate 0.1 GiB for 2097153 steps$"):
        Phase(steps=2**21 + 1).sizes(0, 5, schedule)
    assert len(Phase(steps=2**21).sizes(0, 5, schedule)) == 2**21 and len(asked) == 2
    monkeypatch.undo()
    with pytest.raises(RunError, match="^round 1: there is not enough memory: .* GiB more were wanted; last good"):
        run(RunConfig(**tiny(method="fedrep", hyper={"head_epochs": 10**12})))
