"""The owner of a sweep's folder: the sweep that sweep.json names, and the processes that are running in it.

A sweep has its folder to itself. Shards of one sweep may run in it together, each in a process of its own.
The lock of the folder is its entrance: a whole sweep holds it until it ends, a shard until it has taken the lock of
its own part. A part that two should carry out is refused like a sweep that two should.
"""

from __future__ import annotations

import itertools
import os
import platform
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, TypeVar

from filelock import FileLock, Timeout

from semcom.config import ConfigError
from semcom.config.errors import show_value
from semcom.files import CONFIG, METRICS, SUMMARY, SWEEP, TABLE, read_json, resolve_folder
from semcom.runs.folder.lock import LOCK, MOMENT_S, is_lock_held, take_lock, watch_lock
from semcom.runs.folder.summary import is_summary_sealed

T = TypeVar("T")
OWNER = ".owner"
"""File of a sweep's folder that says which process is running in it; that of a shard has its part after it."""
FIELDS = {"experiment": str, "scale": str, "command": str, "plugins": list, "set": dict, "axes": dict, "variants": dict}
"""Fields of sweep.json and their types."""
PATIENCE_S, PER_SHARD_S = 5.0, 0.5
"""Seconds that a shard waits for others which enter at the same time, and look for each other: in all, and for each."""


@dataclass(frozen=True)
class Shard:
    """Part `number` of `count`, counted from 1."""

    number: int
    count: int

    def __str__(self) -> str:
        return f"{self.number}/{self.count}"

    def of(self, runs: Mapping[str, T]) -> dict[str, T]:
        """Select every `count`-th of the runs, so that parts of a grid with the longest runs first take alike."""
        return dict(itertools.islice(runs.items(), self.number - 1, None, self.count))


def parse_shard(text: str) -> Shard:
    """Parse a part such as "3/16". Raises ConfigError for any other text."""
    found = re.fullmatch(r"(\d{1,9})/(\d{1,9})", str(text))
    shard = Shard(*map(int, found.groups())) if found else Shard(0, 0)
    if not 1 <= shard.number <= shard.count:
        raise ConfigError(f"shard: {text!r} is no part of a grid; write 3/16 for the third of sixteen")
    return shard


@contextmanager
def lock_folder(folder: Path, shard: Shard | None, settle: Callable[[bool], object]) -> Iterator[Callable[[], None]]:
    """Keep other sweeps out of a folder; the operating system drops the locks with the process.

    The yielded function raises RunError if the lock's file has disappeared, see `watch_lock`.

    Args:
        folder: made if there is none.
        shard: the part of the sweep that is carried out (None: all of it).
        settle: called while no other process can enter, with whether other shards are running: it writes sweep.json.

    Raises:
        ConfigError: another process is running in it, with all of a sweep, the same part, or parts of another size;
            nothing has been written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"out: {folder} cannot be written to: {error.strerror}") from None
    own = "" if shard is None else f"-{shard.number}-of-{shard.count}"
    with ExitStack() as stack:
        # Shards often begin at the same moment, so each waits for the others to pass the entrance.
        entrance = _take_file_lock(folder, "", PATIENCE_S + PER_SHARD_S * shard.count if shard else MOMENT_S)
        stack.callback(entrance.release)
        others = list(_list_shards(folder))
        for mark in others:
            if shard is None or mark == own or not mark.endswith(f"-of-{shard.count}"):
                raise _refuse_folder(folder, mark)
        held = entrance
        if shard is not None:
            held = _take_file_lock(folder, own, MOMENT_S)
            stack.callback(held.release)
        check = watch_lock(held)
        settle(bool(others))
        _sign_locked_folder(folder / (OWNER + own))
        stack.callback((folder / (OWNER + own)).unlink, missing_ok=True)
        # Shards work beside each other, a whole sweep alone: it keeps the entrance until its end.
        if shard is not None:
            entrance.release()
        yield check


def _take_file_lock(folder: Path, mark: str, patience_s: float) -> FileLock:
    """Take the lock of a folder, or of a part of its sweep. ConfigError: another process holds it."""
    try:
        return take_lock(folder / (LOCK + mark), patience_s)
    except Timeout:
        raise _refuse_folder(folder, mark) from None
    except OSError as error:
        raise ConfigError(f"out: {folder} cannot be written to: {error.strerror}") from None


def _list_shards(folder: Path) -> Iterator[str]:
    """Yield the marks of the shards that are running in a folder; no other can begin meanwhile."""
    for path in sorted(folder.glob(f"{LOCK}-*-of-*")):
        if is_lock_held(path):
            yield path.name.removeprefix(LOCK)


def list_lock_holders(folder: Path) -> list[str]:
    """Describe the processes that are running in a sweep's folder, but not killed ones, which leave their names."""
    marks = [path.name.removeprefix(OWNER) for path in sorted(folder.glob(f"{OWNER}*"))]
    return [_read_owner(folder, mark) + _describe_part(mark) for mark in marks if is_lock_held(folder / (LOCK + mark))]


def _read_owner(folder: Path, mark: str) -> str:
    """Read which process has a folder, or a part of its sweep, as it has signed."""
    owner = folder / (OWNER + mark)
    return owner.read_text(encoding="utf-8").strip() if owner.is_file() else "another process"


def _describe_part(mark: str) -> str:
    return f" with its shard {mark[1:].replace('-of-', '/')}" if mark else ""


def _refuse_folder(folder: Path, mark: str) -> ConfigError:
    running = f"{_read_owner(folder, mark)} is running in {folder}{_describe_part(mark)}"
    return ConfigError(f"out: {running}; wait for it, or give another folder")


def _sign_locked_folder(path: Path) -> None:
    """Leave which process has a folder, where that can be written."""
    now = datetime.now().isoformat(sep=" ", timespec="minutes")
    with suppress(OSError):
        path.write_text(f"process {os.getpid()} of {platform.node() or 'this machine'} (since {now})\n")


def read_sweep_record(folder: Path) -> dict[str, Any] | None:
    """Read sweep.json, which names the sweep that a folder belongs to; None without such a file.

    Raises:
        ConfigError: it is a file, or holds a run, or results without sweep.json.
    """
    resolve_folder(folder)
    path = folder / SWEEP
    if not path.exists():
        if found := next((name for name in (TABLE, CONFIG, METRICS, SUMMARY) if (folder / name).exists()), None):
            raise ConfigError(f"out: {folder} holds {found} without a {SWEEP}; give another folder")
        return None
    try:
        held = parse_sweep_record(path)
        if not {"experiment", "scale", "command"} <= held.keys():
            raise ValueError
    except (ValueError, OSError):
        raise ConfigError(f"out: {path} does not name a sweep; give another folder") from None
    return held


def parse_sweep_record(path: Path) -> dict[str, Any]:
    """Read sweep.json. Raises OSError, or ValueError where a field holds something else than a sweep writes."""
    found = read_json(path)
    if not isinstance(found, dict):
        raise ValueError("it holds no table")
    for name, kind in FIELDS.items():
        if not isinstance(value := found.get(name, kind()), kind):
            raise ValueError(f"its {name} is {show_value(value)}")
    for name, kind in (("axes", list), ("variants", str)):
        if wrong := [value for value in found.get(name, {}).values() if not isinstance(value, kind)]:
            raise ValueError(f"its {name} has {show_value(wrong[0])}")
    if "digest" in found and not is_summary_sealed(found):  # older versions have left none
        raise ValueError("its digest is not that of its content")
    return {name: value for name, value in found.items() if name != "digest"}


def refuse_another_sweep(folder: Path, held: dict[str, Any]) -> ConfigError:
    """Make the error about a folder that belongs to another sweep than the one that is asked for."""
    calls = "; ".join(held["command"].splitlines())
    return ConfigError(f"out: {folder} holds another sweep ({calls}); give another folder")
