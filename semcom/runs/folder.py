"""A run's folder: config.json, metrics.jsonl, summary.json, arrays.npz, checkpoint.pt and the one before it."""

from __future__ import annotations

import errno
import hashlib
import importlib.metadata
import json
import logging
import math
import os
import platform
import re
import shutil
import subprocess
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from semcom.config import ConfigError, RunConfig, RunError, from_dict, list_differences, run_hash, to_dict
from semcom.config.checks import check_config_types
from semcom.files import (
    ARRAYS,
    CHECKPOINT,
    CONFIG,
    ERROR,
    METRICS,
    PREVIOUS,
    ROWS,
    SUMMARY,
    SWEEP,
    TABLE,
    TRAINING,
    append_to_file,
    digest_of_file,
    open_file,
    read_json,
    refuse_file,
    remove_leftover_files,
    set_file_aside,
    sync_file,
    to_json,
    write_atomically,
)
from semcom.runs.arrays import Arrays, read_arrays, write_arrays
from semcom.runs.inputs import find_changed_read
from semcom.runs.schema import find_summary_fault

LOG = logging.getLogger(__name__)
LOCK = ".lock"
MOMENT_S = 0.5
"""Seconds that a lock is waited for: somebody may only look whether it is held."""
LARGEST = 64 << 20
"""Bytes of the largest config.json: that of a million clients with a rate each."""
SHOWN = 3
"""Number of fields that are named where a folder holds another run."""


class BusyError(ConfigError):
    """A folder that another process has."""


class WriteError(RunError):
    """A file of the folder that could not be written, as on a full disk: its name and the system's reason."""


@contextmanager
def name_written_file(name: str) -> Iterator[None]:
    """Turn what the system refuses inside into a WriteError that names the file."""
    try:
        yield
    except OSError as error:
        raise WriteError(f"{name}: {error.strerror or error}") from error


class DamagedRun(RunError):
    """A run of which metrics.jsonl or config.json is not what it wrote: there is nothing to make it of again."""

    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(f"{path} is damaged ({reason}); move {path.parent} away, and its command trains the run again")


class Folder:
    """The folder of one run.

    A checkpoint must not cover rounds whose lines a crash could still take away. So lines are appended as their rounds
    end, are synced before a checkpoint is renamed into place (`store`), and those that it does not cover are cut off
    when a run is taken up (`begin`).

    Args:
        path: created when it is opened.
        config: the resolved configuration.
        again: whether the run that lies there is replaced, be it this one or another.
    """

    def __init__(self, path: Path, config: RunConfig, again: bool = False) -> None:
        self.path, self.config, self.again = path, config, again
        self.check_lock: Callable[[], None] = lambda: None

    def check(self) -> None:
        """Raise ConfigError when the folder holds another run, or is no folder."""
        refuse_file(self.path)
        stored = self.path / CONFIG
        strange = [name for name in (METRICS, SUMMARY, CHECKPOINT) if (self.path / name).exists()]
        if not stored.exists():
            if strange:
                raise ConfigError(f"out: {self.path} holds {strange[0]} without a {CONFIG}; give another folder")
            if found := _find_study_sign(self.path):  # it would be hidden: what holds a run is read as that run
                raise ConfigError(f"out: {self.path} is the folder of a study: it holds {found}; give another folder")
            return
        try:
            other = read_config(stored, "config")
        except ConfigError as error:  # it may be another tool's, which `again` must not remove
            if self.again and strange:
                return
            raise ConfigError(f"out: {self.path} holds no run ({error}); give another folder") from None
        if self.again:
            return
        if run_hash(other) != run_hash(self.config):
            found = list_differences(other, self.config)
            more = f"; and {len(found) - SHOWN} more" if len(found) > SHOWN else ""
            fields = "; ".join(found[:SHOWN]) + more
            raise ConfigError(f"out: {self.path} holds another run ({fields}); give another folder, or --again")
        check_stored_reads(self.path)

    def clear(self) -> None:
        """Remove the run that is to be replaced: what says that it is finished first, what says which it is last."""
        if self.again:
            rows = (path.name for path in self.path.glob(ROWS.format("*")))
            for name in (SUMMARY, ERROR, CHECKPOINT, PREVIOUS, *rows, METRICS, ARRAYS, CONFIG):
                (self.path / name).unlink(missing_ok=True)

    @contextmanager
    def open(self) -> Iterator[None]:
        """Create the folder, keep other processes out, and remove the halves of files that a dead one left.

        The operating system drops the lock with the process, so a dead one's does not block.

        Raises:
            BusyError: another process has the folder.
            ConfigError: as `check`; another process may have had it in the meantime.
            WriteError: the folder cannot be written to.
        """
        new = not self.path.exists()
        with self._locked():
            self.check()
            for name in (CONFIG, METRICS, SUMMARY, CHECKPOINT, ARRAYS):
                remove_leftover_files(self.path / name)
            try:
                yield
            except ConfigError:
                if new and not (self.path / CONFIG).exists():  # a request that is refused leaves nothing
                    shutil.rmtree(self.path)
                raise

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Create the folder and hold its lock; one of a finished run that cannot be written to needs none."""
        with ExitStack() as stack, name_written_file(f"out: {self.path}"):
            self.path.mkdir(parents=True, exist_ok=True)
            try:
                lock = take_lock(self.path / LOCK, MOMENT_S)
                stack.callback(lock.release)
                self.check_lock = watch_lock(lock)
            except Timeout:
                wanted = "wait for it, or give another folder"
                raise BusyError(f"out: another process is running in {self.path}; {wanted}") from None
            except OSError as error:
                if error.errno not in (errno.EROFS, errno.EACCES) or not (self.path / SUMMARY).exists():
                    raise
            held = stack.pop_all()
        with held:
            yield

    @contextmanager
    def _writing(self, name: str) -> Iterator[None]:
        """Surround the writing of a file, see `name_written_file`. Raises RunError when the lock is no longer ours."""
        self.check_lock()
        with name_written_file(name):
            yield

    def begin(self, kept: Sequence[dict[str, Any]]) -> None:
        """Store the configuration, and cut the metrics back to the lines that the checkpoint covers."""
        for name, text in ((CONFIG, _config_text(self.config)), (METRICS, _text(kept))):
            path = self.path / name
            with self._writing(name):
                if not path.exists() or path.read_bytes() != text.encode():
                    write_atomically(path, text)
        (self.path / ERROR).unlink(missing_ok=True)

    def summary(self) -> dict[str, Any] | None:
        """Return the summary of a finished run, if there is one; one that is damaged is put aside, with a warning.

        Raises RunError when it is whole and metrics.jsonl is not what the run wrote.
        """
        try:
            return read_summary(self.path, run_hash(self.config))
        except DamagedRun:
            raise
        except RunError as error:
            self._set_aside(SUMMARY, error, "the run is finished again")
            return None

    def arrays(self) -> Arrays:
        """Return the arrays that a finished run has kept; a file that is damaged is put aside, with a warning."""
        try:
            return read_arrays(self.path / ARRAYS, run_hash(self.config))
        except RunError as error:
            self._set_aside(ARRAYS, error, "the arrays are made again")
            return {}

    def _set_aside(self, name: str, error: RunError, then: str) -> None:
        LOG.warning("%s; it is now %s, and %s", error, set_file_aside(self.path / name).name, then)

    def keep(self, found: Arrays) -> None:
        """Write the arrays that a run keeps on request, in the place of those that were there."""
        with self._writing(ARRAYS):
            write_arrays(self.path / ARRAYS, found, run_hash(self.config))

    def write_error(self, text: str) -> None:
        """Write error.txt; a full disk is ignored."""
        with suppress(OSError):
            write_atomically(self.path / ERROR, text)

    def append(self, line: dict[str, Any]) -> None:
        """Add one line to metrics.jsonl, or, where the disk is full (WriteError), nothing."""
        with self._writing(METRICS):
            append_to_file(self.path / METRICS, _text([line]).encode())

    @contextmanager
    def store(self) -> Iterator[Path]:
        """Surround the writing of a checkpoint, and give its path; the metrics are on the disk before it begins."""
        with self._writing(METRICS):
            sync_file(self.path / METRICS)
        with self._writing(CHECKPOINT):
            yield self.path / CHECKPOINT

    def finish(self, summary: dict[str, Any]) -> None:
        """Write summary.json: the run is done. Its checkpoints go where they are not wanted any more.

        Raises RunError when somebody else has changed metrics.jsonl meanwhile.
        """
        with self._writing(METRICS):
            if summary["metrics_digest"] != digest_of_file(self.path / METRICS):
                raise DamagedRun(self.path / METRICS, "the run did not write all of its lines")
        with self._writing(SUMMARY):
            write_atomically(self.path / SUMMARY, format_summary(summary))
        if self.config.train.drop_checkpoints:
            for path in (self.path / CHECKPOINT, self.path / PREVIOUS, *self.path.glob(ROWS.format("*"))):
                path.unlink(missing_ok=True)


def check_stored_reads(folder: Path) -> None:
    """Raise ConfigError where a stored run has read a file that is another one now."""
    stored = locate_training(folder) / CONFIG
    if stored.exists() and (changed := find_changed_read(read_config(stored, "config").contents)):
        words = f"{changed}, which it read, has changed"
        raise ConfigError(f"out: {folder} holds another run ({words}); give another folder, move it away, or --again")


def _find_study_sign(folder: Path) -> str | None:
    """Name what shows that a folder without a run is that of a study; None: nothing does."""
    of_sweep = (name for name in (SWEEP, TABLE) if (folder / name).exists())
    runs = (path.parent.name for path in folder.glob(f"*/{CONFIG}") if path.parent.name != TRAINING)
    return next(of_sweep, None) or next((f"a run in {name}" for name in runs), None)


def take_lock(path: Path, patience_s: float) -> FileLock:
    """Take a lock, which the system drops with the process; where a file system has none, a line says so.

    Raises:
        Timeout: another process holds it.
        OSError: its file cannot be written.
    """
    lock = FileLock(path, timeout=patience_s)
    try:
        lock.acquire()
    except (NotImplementedError, OSError) as error:  # the first one is what filelock makes of ENOSYS
        if isinstance(error, OSError) and error.errno not in (errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS):
            raise
        LOG.warning("%s: this file system has no locks, so nothing keeps another process out", path.parent)
    return lock


def watch_lock(lock: FileLock) -> Callable[[], None]:
    """Return a function that raises RunError when the file of a lock that is held has gone from its place.

    Whoever comes then makes another file there, and locks that.
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
    """Return whether a process holds a lock, such as that of a run's folder, as a running one does.

    To know it, the lock is taken for a moment; who wants it then waits that long (`MOMENT_S`).
    """
    if not lock.exists():
        return False
    taken = FileLock(lock, timeout=0)
    try:
        taken.acquire()
    except Timeout:
        return True
    except (OSError, NotImplementedError):  # in a folder where nothing may be written nobody else can say
        return False
    taken.release()
    return False


def write_config(folder: Path, config: RunConfig) -> Path:
    """Write config.json, and return its path. Raises OSError if it could not be written."""
    return write_atomically(folder / CONFIG, _config_text(config))


def _config_text(config: RunConfig) -> str:
    return to_json(to_dict(config), indent=2) + "\n"


def read_config(path: Path | str, asked: str) -> RunConfig:
    """Read a stored configuration: a config.json, or that of a run's folder.

    Args:
        path: of the file or the folder.
        asked: what it is read for: the first word of the error about a file that cannot be read.

    Raises:
        ConfigError: there is none, or it is no configuration.
    """
    path = os.path.join(path, CONFIG) if os.path.isdir(path) else str(path)
    try:
        with open_file(Path(path)) as file:
            content = file.read(LARGEST + 1)
        if len(content) > LARGEST:
            raise ConfigError(f"{asked}: {path!r} has more than {LARGEST >> 20} MiB, and is no configuration")
        values = json.loads(content.decode(), object_pairs_hook=_parse_json_table)
    except OSError as error:
        of_study = os.path.exists(os.path.join(os.path.dirname(path), SWEEP))
        hint = "; give the folder of one run of this study" if of_study else ""
        raise ConfigError(f"{asked}: {path!r} cannot be read: {error.strerror}{hint}") from None
    except ConfigError:
        raise
    except (ValueError, RecursionError) as error:  # of a path with NUL, of bytes that are no text, or of JSON
        raise ConfigError(f"{asked}: {path!r} is no JSON file: {error}") from None
    try:
        config = from_dict(values)
        check_config_types(config)
    except ConfigError as error:
        raise ConfigError(f"{error} (in {path!r})") from None
    return config


def _parse_json_table(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return the table that a JSON file writes as `pairs`. Raises ConfigError for a name that is there twice."""
    table = dict(pairs)
    if len(table) < len(pairs):
        names = [name for name, _ in pairs]
        raise ConfigError(f"config: {next(name for name in names if names.count(name) > 1)!r} is given twice")
    return table


def read_metrics(folder: Path, rounds: int | None = None) -> list[dict[str, Any]]:
    """Return the lines of metrics.jsonl, up to a round or to the first that is not whole (cut off in writing)."""
    whole: list[dict[str, Any]] = []
    try:
        with open_file(folder / METRICS) as file:
            for line in map(_parse_metrics_line, file):
                if line is None or (rounds is not None and line["round"] > rounds):
                    break
                whole.append(line)
    except FileNotFoundError:
        pass
    return whole


def locate_training(folder: Path) -> Path:
    """Return where the training of a run lies: in its own folder, or in one inside that."""
    apart = folder / TRAINING
    return apart if (apart / CONFIG).is_file() else folder


def check_metrics(folder: Path, summary: Mapping[str, Any] | None) -> None:
    """Check that metrics.jsonl of a run is what the run wrote, which costs what reading it does.

    Runs of older versions have left no digest of it: of theirs, as of unfinished ones, each line has to be that of its
    round; `find_lines_fault` knows more of those that have been parsed.

    Args:
        folder: of the run.
        summary: of a finished run (None: it is not finished, and its last line may be cut off).

    Raises:
        DamagedRun: it is not.
    """
    place = locate_training(folder)
    path, told = place / METRICS, summary or {}
    expected, rounds = told.get("metrics_digest"), told.get("rounds")
    try:
        with open_file(path) as file:
            content = file.read()
    except FileNotFoundError:
        if expected is not None or (rounds is not None and (place / CHECKPOINT).exists()):
            raise DamagedRun(path, "it is missing") from None
        return
    except OSError as error:
        raise DamagedRun(path, f"it cannot be read: {error.strerror}") from None
    if expected is not None:
        if hashlib.sha256(content).hexdigest() != expected:
            raise DamagedRun(path, "its digest is not that in summary.json")
        return
    *lines, rest = content.split(b"\n")
    whole = all(re.match(rb'\{"round": %d[,}].*(?<=\})$' % at, line) for at, line in enumerate(lines, 1))
    if not whole or (summary is not None and (rest or rounds not in (None, len(lines)))):
        raise DamagedRun(path, "it has not one line for each round")


def write_summary(folder: Path, summary: Mapping[str, Any]) -> Path:
    """Write summary.json, with a digest of all that it holds, and return its path.

    Args:
        folder: of the run.
        summary: as docs/metrics.md has it; `hash` (of the resolved configuration) and the
            task's headline, such as `accuracy`, at least. The digest of metrics.jsonl is that of the file there.

    Raises:
        OSError: it could not be written; no half of it is there.
    """
    values = {name: value for name, value in summary.items() if name != "metrics_digest"}
    if (lines := locate_training(folder) / METRICS).is_file():
        values["metrics_digest"] = digest_of_file(lines)
    return write_atomically(folder / SUMMARY, format_summary(values))


def format_summary(summary: Mapping[str, Any]) -> str:
    """Return the content of summary.json."""
    return to_json(seal_values(summary), indent=2) + "\n"


def seal_values(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return plain values as JSON gives them back, with a digest of them all in the place of one that they have."""
    plain = json.loads(to_json({name: value for name, value in values.items() if name != "digest"}))
    return {**plain, "digest": _digest_values(plain)}


def is_sealed(values: Mapping[str, Any]) -> bool:
    """Check whether the digest among some values is that of all others."""
    return values.get("digest") == _digest_values({name: value for name, value in values.items() if name != "digest"})


def read_summary(folder: Path, expected: str | None = None) -> dict[str, Any] | None:
    """Return the summary of the finished run in a folder; None where no run has finished.

    Args:
        folder: of the run.
        expected: hash of the run that it has to be of (None: of any).

    Raises:
        RunError: the file is damaged, or of another run.
        DamagedRun: metrics.jsonl is not what the run wrote, see `check_metrics`.
    """
    path = folder / SUMMARY
    try:
        found = read_json(path)
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise RunError(f"{path} is damaged ({error}); the command that trained the run writes it again") from None
    except OSError as error:
        raise RunError(f"{path} cannot be read: {error.strerror}") from None
    if problem := _check_summary(found, expected):
        raise RunError(f"{path} is damaged ({problem}); the command that trained the run writes it again")
    check_metrics(folder, found)
    return {name: value for name, value in found.items() if name != "digest"}


def _check_summary(found: Any, expected: str | None) -> str | None:
    """Return what is wrong with the content of summary.json; None: nothing is."""
    if not isinstance(found, dict):
        return "it holds no JSON object"
    if not is_sealed(found):
        return "its digest is not that of its content"
    if (fault := find_summary_fault(found)) is not None:
        return fault
    if expected is not None and found.get("hash") != expected:
        return f"it is of run {found.get('hash')}, not of {expected}: of another configuration or version"
    return None


def _digest_values(values: Mapping[str, Any]) -> str:
    """Return the digest of values as they come back from JSON."""
    text = json.dumps(values, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def digest_metrics(digest: hashlib._Hash, *lines: dict[str, Any]) -> list[int]:
    """Add lines of metrics.jsonl to a running digest, and return it as numbers, as a checkpoint keeps it."""
    digest.update(_text(lines).encode())
    return list(digest.digest())


def _text(lines: Iterable[dict[str, Any]]) -> str:
    return "".join(to_json(line) + "\n" for line in lines)


def _parse_metrics_line(text: bytes) -> dict[str, Any] | None:
    """Return the numbers in a line of metrics.jsonl, NaN where it has null; None where it is not whole."""
    try:
        line = _read_null(json.loads(text)) if text.endswith(b"\n") else None
    except (ValueError, RecursionError):
        return None
    return line if isinstance(line, dict) and isinstance(line.get("round"), int) else None


def _read_null(value: Any) -> Any:
    """Return values with NaN in the place of null, as which `to_json` writes it; a class that nobody tests has None."""
    if isinstance(value, dict):
        return {name: held if name == "classes" else _read_null(held) for name, held in value.items()}
    return [_read_null(held) for held in value] if isinstance(value, list) else math.nan if value is None else value


def read_versions() -> dict[str, str]:
    """Return the versions of what a result depends on."""
    names = ("semcom", "torch", "torchvision", "numpy", "scipy", "pillow", "sionna-no-rt")
    found = {"python": platform.python_version()}
    for name in names:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def read_commit() -> str | None:
    """Return the commit of this package's checkout, with "-dirty" if it was changed; None outside a checkout."""

    def git(*words: str) -> str:
        command = ["git", "-C", str(Path(__file__).parent), *words]
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=10).stdout.strip()

    try:
        git("ls-files", "--error-unmatch", Path(__file__).name)  # a wheel inside somebody's checkout is not in it
        return git("describe", "--always", "--dirty", "--abbrev=10", "--exclude=*")
    except (OSError, subprocess.SubprocessError):
        return None
