"""The lock of a folder, which only one process has at a time."""

from __future__ import annotations

import errno
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from filelock import FileLock, Timeout

from semcom.config import ConfigError, RunError

LOG = logging.getLogger(__name__)
LOCK = ".lock"
MOMENT_S = 0.5
"""Seconds that a lock is waited for: somebody may only look whether it is held."""


class BusyError(ConfigError):
    """A folder that another process has."""


def take_lock(path: Path, patience_s: float) -> FileLock:
    """Take a lock, which the system drops with the process; if the file system has none, log a warning.

    Raises:
        Timeout: another process holds it.
        OSError: its file cannot be written.
    """
    lock = FileLock(path, timeout=patience_s, fallback_to_soft=False)  # a marker would outlive its process
    try:
        lock.acquire()
    except OSError as error:
        if error.errno not in (errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS):
            raise
        LOG.warning("%s: this file system has no locks, so nothing keeps another process out", path.parent)
    return lock


@contextmanager
def hold_lock(path: Path, patience_s: float, remedy: str) -> Iterator[FileLock]:
    """Hold the lock of a run's folder, as `take_lock` takes it.

    Raises:
        BusyError: another process holds it.
        OSError: its file cannot be written.
    """
    try:
        lock = take_lock(path, patience_s)
    except Timeout:
        raise BusyError(f"out: another process is running in {path.parent}; {remedy}") from None
    try:
        yield lock
    finally:
        lock.release()


def watch_lock(lock: FileLock) -> Callable[[], None]:
    """Return a function that raises RunError when the file of a held lock has gone.

    The next process makes another file in its place, and locks that.
    """
    path = Path(lock.lock_file)

    def identify() -> tuple[int, int] | None:
        with suppress(FileNotFoundError):
            return (found := path.stat()).st_dev, found.st_ino
        return None

    def check() -> None:
        if lock.is_locked and identify() != ours:
            remedy = "the same command resumes it once nothing runs there"
            raise RunError(f"{path} was removed meanwhile, so another process may be writing there; {remedy}")

    ours = identify()
    return check


def is_lock_held(lock: Path) -> bool:
    """Check whether a process holds a lock, such as that of the folder of a run in progress.

    The check takes the lock for a moment, for which other processes wait (`MOMENT_S`).
    """
    if not lock.exists():
        return False
    taken = FileLock(lock, timeout=0, fallback_to_soft=False)
    try:
        taken.acquire()
    except Timeout:
        return True
    except OSError:  # in a folder where nothing may be written nobody else can say
        return False
    taken.release()
    return False
