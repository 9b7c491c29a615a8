"""A disk that is full stops a run with one line; its last good state stays, and the run can be taken up again."""

from __future__ import annotations

import errno
import json
import os
import re
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from semcom.config import RunConfig, RunError
from semcom.files import PREVIOUS
from semcom.runs.folder.checkpoint import load_checkpoint
from semcom.runs.folder.folder import CHECKPOINT, CONFIG, METRICS, SUMMARY
from semcom.runs.result.result import Result
from semcom.runs.rounds.runner import run
from tests import worlds
from tests.runs.kills import trace
from tests.runs.rounds.test_run import interrupt, lines, one_line, same, snapshot, stored, timeless

FILES = (CONFIG, METRICS, CHECKPOINT, SUMMARY)
MOMENTS = [
    *(f"{moment} {name}" for name in FILES for moment in ("in a write to", "before fsync of")),
    *(f"before replace of {name}" for name in (CONFIG, CHECKPOINT, SUMMARY)),
]
"""When the system refuses; see `tests.runs.kills.trace`."""


def request(folder: Path, **overrides: Any) -> RunConfig:
    """Four rounds with fading, checkpoints after rounds 2 and 4."""
    train = {"rounds": 4, "checkpoint_every": 2, "participation": 0.75}
    return worlds.request("fedcl", out=str(folder), train=train, channel={"kind": "rayleigh"}, **overrides)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Result:
    return run(request(tmp_path_factory.mktemp("whole") / "out"))


@pytest.fixture(scope="module")
def happened(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """What an undisturbed run does to its files."""
    events: list[str] = []
    with pytest.MonkeyPatch.context() as patch:
        trace(events.append, patch.setattr)
        run(request(tmp_path_factory.mktemp("counted") / "out"))
    return events


def last_before(events: list[str], at: int, name: str) -> int:
    return max(i for i in range(at) if events[i] == name)


@pytest.mark.parametrize("store", ["host", "disk"])
def test_a_checkpoint_gets_its_name_after_all_that_it_counts_on(
    store: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its own bytes, the metrics and, where they lie in a file, the rows of clients are on the disk by then."""
    events: list[str] = []
    with monkeypatch.context() as patch:
        trace(events.append, patch.setattr)
        run(request(tmp_path, store=store))
    named = [i for i, name in enumerate(events) if name == f"before replace of {CHECKPOINT}"]
    assert len(named) == 2
    for at in named:
        for name in (METRICS, CHECKPOINT, *(["rows"] if store == "disk" else [])):
            written, synced = (
                last_before(events, at, f"{moment} {name}") for moment in ("in a write to", "after fsync of")
            )
            assert written < synced, name
        assert events[at + 2] == "before fsync of a folder"


def check_taken_up(config: RunConfig, whole: Result) -> None:
    again = run(config)
    assert timeless(again.summary) == timeless(whole.summary)
    assert [timeless(row) for row in lines(Path(str(config.out)))] == [timeless(row) for row in whole.metrics]
    assert same(stored(config)["state"], stored(whole.config)["state"])


def check_last_good(folder: Path, error: str, reason: str) -> None:
    """The error names the round, the file, the reason and the state that is kept; nothing half is left."""
    path = next((p for p in (folder / CHECKPOINT, folder / PREVIOUS) if p.exists()), folder / CHECKPOINT)
    kept = f"round {load_checkpoint(path)['progress']['round']}, in {path}" if path.exists() else "none"
    assert re.fullmatch(rf"round \d: [\w.]+: {reason}; last good state: {re.escape(kept)}", error)
    assert not [p.name for p in folder.iterdir() if p.name not in (*FILES, PREVIOUS, ".lock")]
    if (folder / METRICS).exists():
        assert (folder / METRICS).read_bytes()[-1:] in (b"", b"\n")
    if (folder / CONFIG).exists():
        json.loads((folder / CONFIG).read_text())


@pytest.mark.parametrize(
    ("moment", "last"),
    [(m, last) for m in MOMENTS for last in (False, True) if not last or m.endswith((METRICS, CHECKPOINT))],
)
def test_at_every_moment(
    moment: str, last: bool, happened: list[str], whole: Result, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    times, seen = happened.count(moment), 0
    assert times > last

    def full(name: str) -> None:
        nonlocal seen
        seen += name == moment
        if name == moment and seen == (times if last else 1):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    config = request(tmp_path / "out")
    with monkeypatch.context() as patch, pytest.raises(RunError) as error:
        trace(full, patch.setattr)
        run(config)
    check_last_good(tmp_path / "out", one_line(error.value), "No space left on device")
    assert moment.rpartition(" ")[2] in str(error.value)
    check_taken_up(config, whole)


@contextmanager
def largest_file(size: int) -> Iterator[None]:
    """Within it the kernel refuses to let any file of this process grow beyond `size` bytes."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize("room", [0, 1, 100])
def test_a_row_that_the_kernel_cuts_off(room: int, whole: Result, tmp_path: Path) -> None:
    config = request(tmp_path)
    interrupt(config, 3)
    before = snapshot(tmp_path)
    with pytest.raises(RunError) as error, largest_file(len(before[METRICS]) + room):
        run(config)
    path = tmp_path / CHECKPOINT
    assert one_line(error.value) == f"round 4: metrics.jsonl: File too large; last good state: round 3, in {path}"
    assert snapshot(tmp_path) == before
    check_taken_up(config, whole)


def test_rows_of_clients_that_the_kernel_refuses(tmp_path: Path) -> None:
    whole = run(request(tmp_path / "whole", store="disk"))
    config = request(tmp_path / "out", store="disk")
    interrupt(config, 2)
    checkpoint = (tmp_path / "out" / CHECKPOINT).read_bytes()
    with pytest.raises(RunError) as error, largest_file(2000):
        run(config)
    path = tmp_path / "out" / CHECKPOINT
    assert one_line(error.value) == f"round 3: training: File too large; last good state: round 2, in {path}"
    assert path.read_bytes() == checkpoint
    again = run(config)
    assert timeless(again.summary) == timeless(whole.summary)


def test_a_folder_that_cannot_be_made_gets_one_line(tmp_path: Path) -> None:
    with pytest.raises(RunError) as error:
        run(request(Path("/proc/no-folder")))
    assert one_line(error.value).startswith("out: /proc/no-folder: ")


def test_a_diverging_run_on_a_full_disk_says_that_it_diverged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(name: str) -> None:
        if name.endswith(CHECKPOINT):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    train = {"lr": (0.01, 0.01, 1e300, 0.01), "optimizer": "sgd", "batch_size": 50}
    options: dict[str, Any] = {"channel": {"kind": "ideal"}, "partition": {"shots_spread": 0}}
    with monkeypatch.context() as patch, pytest.raises(RunError) as error:
        trace(full, patch.setattr)
        run(worlds.request("local", out=str(tmp_path), train=train, **options))
    expected = "round 1: non-finite answers in tests at client 2; last good state: none"
    assert one_line(error.value) == expected and not (tmp_path / CHECKPOINT).exists()
