"""Names of the files that runs and sweeps leave, and writing so that a reader, or a crash, never meets half a file."""

from __future__ import annotations

import contextlib
import errno
import glob
import hashlib
import json
import math
import os
import stat
from collections.abc import Callable, Mapping
from io import BufferedReader, BytesIO
from pathlib import Path
from typing import Any, BinaryIO

from semcom.config.errors import ConfigError
from semcom.packed import Packed

CONFIG, METRICS, SUMMARY, CHECKPOINT = "config.json", "metrics.jsonl", "summary.json", "checkpoint.pt"
"""Files of a run's folder."""
ARRAYS = "arrays.npz"
"""The arrays that a run keeps on request, in its folder."""
PREVIOUS = "checkpoint.previous.pt"
"""The checkpoint before the newest one."""
WEIGHTS = "weights.safetensors"
"""The models of a finished run, in the place of its checkpoints."""
EXPORT, MODEL, CARD = "export", "model.safetensors", "README.md"
"""Folder of a run's exported model, by default, and its two files."""
ROWS = "rows-{}.bin"
"""Files of the rows of a State that lie on disk, numbered; checkpoints refer to them."""
ERROR = "error.txt"
"""File that a failed run leaves in its folder: one line, then the traceback."""
ELSEWHERE = "elsewhere/"
"""Prefix of a file's name in an archive, in the place of its folder; no dataset has this name."""
TRAINING = "training"
"""Folder in that of a run where an experiment that adds to summaries leaves the training."""
SWEEP, TABLE, REPORT = "sweep.json", "results.parquet", "results.md"
"""Files of a sweep's folder: its record, a row per run, the accuracies as text."""


def write_atomically(
    path: Path | str, content: str | bytes | Callable[[BinaryIO], object], previous: Path | None = None
) -> Path:
    """Write a file under a temporary name beside it, sync and rename it; make its folder if there is none.

    Args:
        path: the file.
        content: text, bytes, or a function that writes to the open file.
        previous: new name of the existing file (None: it is overwritten).

    Returns:
        `path`.

    Raises:
        OSError: it could not be written, with its name; the old file is unchanged.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    mark = int.from_bytes(os.urandom(8), "big")  # containers share process numbers
    temporary = path.with_name(f".{path.name}.{mark}.part")
    try:
        with temporary.open("wb") as file:
            if callable(content):
                content(file)
            else:
                file.write(content.encode() if isinstance(content, str) else content)
            file.flush()
            os.fsync(file.fileno())
        if previous is not None and path.exists():
            os.replace(path, previous)
        os.replace(temporary, path)
    except OSError as error:
        if error.errno is not None:
            error.filename = error.filename or str(path)  # the system names no file where a write fails
        raise
    finally:
        temporary.unlink(missing_ok=True)
    _sync_folder(path.parent)
    return path


def resolve_file(path: Path | str) -> Path:
    """Replace a leading `~` or `~user` of a path by that user's home folder.

    An unknown user's name stays unchanged, so that the reader of the path reports it as missing; pathlib's
    own way raises a RuntimeError.
    """
    return Path(os.path.expanduser(path))


def digest_bytes(files: Mapping[str, Path]) -> str:
    """Compute the digest of several files in their order, of names without folders and contents.

    Raises OSError for one that cannot be read.
    """
    total = hashlib.sha256()
    for name, path in files.items():
        total.update(f"{name}\0{digest_of_file(path)}\0".encode(errors="surrogateescape"))  # names need not be UTF-8
    return total.hexdigest()


def digest_of_file(path: Path) -> str:
    """Compute the digest of a file's content. Raises OSError as `open_file`."""
    with open_file(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def open_file(path: Path) -> BufferedReader:
    """Open a file for reading. Raises OSError, also for a pipe and the like, which would block."""
    if isinstance(path, Packed):
        return BufferedReader(BytesIO(path.read_bytes()))  # type: ignore[arg-type]
    descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "it is no file", str(path))
    return os.fdopen(descriptor, "rb")


def read_file(path: Path) -> bytes:
    """Read all of a file. Raises OSError as `open_file`."""
    if isinstance(path, Packed):
        return path.read_bytes()
    with open_file(path) as file:
        return file.read()


def read_json(path: Path) -> Any:
    """Read plain values. Raises OSError as `open_file`, ValueError for invalid or too deeply nested JSON."""
    try:
        return json.loads(read_file(path))
    except RecursionError:
        raise ValueError("it is nested too deep") from None


def format_json(value: Any, indent: int | None = None) -> str:
    """Write plain values as JSON that any reader takes: infinity as 1e999, which is read as that, and NaN as null."""
    try:
        return json.dumps(value, indent=indent, allow_nan=False)
    except ValueError:
        text = json.dumps(_mark_infinite(value), indent=indent, allow_nan=False)
        return text.replace(f'"{_INFINITE}', "").replace(f'{_INFINITE}"', "")


_INFINITE = "<infinite>"
"""Mark around an infinite number inside a JSON string, which is cut out afterwards."""


def _mark_infinite(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _mark_infinite(held) for name, held in value.items()}
    if isinstance(value, list | tuple):
        return [_mark_infinite(held) for held in value]
    if not isinstance(value, float) or math.isfinite(value):
        return value
    return None if math.isnan(value) else f"{_INFINITE}{'-' if value < 0 else ''}1e999{_INFINITE}"


def resolve_folder(path: Path | str, field: str = "out") -> Path:
    """Resolve the path of a folder. Raises ConfigError about a field where a file lies there, or above it."""
    found = path if isinstance(path, Packed) else resolve_file(path)
    lowest = next(place for place in (found, *found.parents) if place.exists())
    if not lowest.is_dir():
        raise ConfigError(f"{field}: {lowest} is a file; give a folder")
    return found


def resolve_target(path: Path | str, field: str) -> Path:
    """Resolve the path of a file that is to be written.

    Raises:
        ConfigError: about a field where a folder lies there, or a file in the place of a folder above.
    """
    found = resolve_file(path)
    resolve_folder(found.parent, field)
    if found.is_dir():
        raise ConfigError(f"{field}: {str(path)!r} is a folder; give a file")
    return found


def remove_leftover_files(path: Path) -> None:
    """Remove the temporary files of killed writers; only safe while no other process writes the file."""
    for part in path.parent.glob(f".{glob.escape(path.name)}.*.part"):
        if part.name.split(".")[-2].isdigit():
            part.unlink(missing_ok=True)


def locate_aside(path: Path) -> Path:
    """Locate where a damaged file is set aside: `name.damaged.ext` for `name.ext`."""
    return path.with_name(f"{path.stem}.damaged{path.suffix}")


def set_file_aside(path: Path) -> Path:
    """Rename a damaged file, and return where it lies now."""
    aside = locate_aside(path)
    os.replace(path, aside)
    return aside


def append_to_file(path: Path, line: bytes) -> None:
    """Append a line to a file completely, or leave the file unchanged if the system refuses (OSError).

    A killed process may leave a part of the line; a machine that loses its power may lose it, as it is not synced.
    """
    with path.open("ab", buffering=0) as file:
        before, rest = file.seek(0, os.SEEK_END), memoryview(line)
        try:
            while rest:
                rest = rest[file.write(rest) :]
        except OSError:
            with contextlib.suppress(OSError):
                file.truncate(before)
            raise


def sync_file(path: Path) -> None:
    """Wait until all of a file is on the disk."""
    with path.open("rb+") as file:
        os.fsync(file.fileno())


def _sync_folder(folder: Path) -> None:
    """Make a renaming last through a loss of power, where a folder can be synced."""
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
