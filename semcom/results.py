"""A run's folder: config.json, metrics.jsonl, summary.json, checkpoint.pt."""

from __future__ import annotations

import importlib.metadata
import json
import platform
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from semcom.config import ConfigError, RunConfig, from_dict, run_hash, to_dict
from semcom.files import write_atomically

CONFIG, METRICS, SUMMARY, CHECKPOINT = "config.json", "metrics.jsonl", "summary.json", "checkpoint.pt"
LOCK = ".lock"


class BusyError(ConfigError):
    """Another process has the folder."""


class Folder:
    """The folder of one run.

    Args:
        path: created when it is opened.
        config: the resolved configuration.
    """

    def __init__(self, path: Path, config: RunConfig) -> None:
        self.path, self.config = path, config

    def check(self) -> None:
        """Raises ConfigError when the folder holds another run, or is no folder."""
        if self.path.exists() and not self.path.is_dir():
            raise ConfigError(f"out: {self.path} is a file; give a folder")
        stored = self.path / CONFIG
        if not stored.exists():
            strange = [name for name in (METRICS, SUMMARY, CHECKPOINT) if (self.path / name).exists()]
            if strange:
                raise ConfigError(f"out: {self.path} holds {strange[0]} without a {CONFIG}; give another folder")
            return
        try:
            other = run_hash(from_dict(json.loads(stored.read_text())))
        except ValueError as error:
            raise ConfigError(f"out: {stored} is not a configuration ({error}); give another folder") from None
        if other != run_hash(self.config):
            raise ConfigError(f"out: {self.path} holds another run ({other}); give another folder")

    @contextmanager
    def open(self) -> Iterator[None]:
        """Creates the folder, stores the configuration, and keeps other processes out.

        The operating system drops the lock with the process, so a dead one's does not block. Raises BusyError when
        another process has the folder.
        """
        self.path.mkdir(parents=True, exist_ok=True)
        lock = FileLock(self.path / LOCK, timeout=0)
        try:
            lock.acquire()
        except Timeout:
            raise BusyError(
                f"out: another process is at work in {self.path}; wait for it, or give another folder"
            ) from None
        try:
            write_atomically(self.path / CONFIG, json.dumps(to_dict(self.config), indent=2) + "\n")
            yield
        finally:
            lock.release()

    def summary(self) -> dict[str, Any] | None:
        """The summary of a finished run, or None."""
        path = self.path / SUMMARY
        return json.loads(path.read_text()) if path.exists() else None

    def metrics(self, rounds: int | None = None) -> list[dict[str, Any]]:
        """The metrics rows, up to a round; a last line that was cut off while it was written does not count."""
        path = self.path / METRICS
        lines = path.read_text().splitlines(keepends=True) if path.exists() else []
        rows = [json.loads(line) for line in lines if line.endswith("\n")]
        return [row for row in rows if rounds is None or row["round"] <= rounds]

    def cut(self, rounds: int) -> None:
        """Cuts metrics.jsonl back to the rounds that a checkpoint covers."""
        kept = self.metrics(rounds)
        write_atomically(self.path / METRICS, "".join(json.dumps(row) + "\n" for row in kept))

    def append(self, row: dict[str, Any]) -> None:
        """Adds one line to metrics.jsonl."""
        with (self.path / METRICS).open("a") as file:
            file.write(json.dumps(row) + "\n")

    def finish(self, summary: dict[str, Any]) -> None:
        """Writes summary.json: the run is done."""
        write_atomically(self.path / SUMMARY, json.dumps(summary, indent=2) + "\n")


def versions() -> dict[str, str]:
    """Versions of what a result depends on."""
    names = ("semcom", "torch", "torchvision", "numpy", "sionna-no-rt")
    found = {"python": platform.python_version()}
    for name in names:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def commit() -> str | None:
    """The commit of the checkout that this package runs from, with "-dirty" if it was changed; None outside one."""

    def git(*words: str) -> str:
        command = ["git", "-C", str(Path(__file__).parent), *words]
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=10).stdout.strip()

    try:
        git("ls-files", "--error-unmatch", Path(__file__).name)  # a wheel inside somebody's checkout is not in it
        return git("describe", "--always", "--dirty", "--abbrev=10", "--exclude=*")
    except (OSError, subprocess.SubprocessError):
        return None
