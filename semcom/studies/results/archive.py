"""A study in one file, for a repository or a paper's supplement: everything but checkpoints and kept arrays, as a ZIP.

`semcom.study` reads it like the folder that it was made of, and so do the commands. Paths of one machine are
left out. The same results give the same bytes. Runs repeat each other, so they lie in an archive within the archive
that is compressed as a whole: half as large as with each file by itself.
"""

from __future__ import annotations

import errno
import io
import logging
import shutil
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from tempfile import SpooledTemporaryFile, gettempdir
from typing import Any

import pandas as pd
from pandas.api.types import is_numeric_dtype

from semcom.config import ConfigError, RunError
from semcom.escape import escape_texts
from semcom.files import (
    ARRAYS,
    CONFIG,
    ERROR,
    METRICS,
    REPORT,
    SUMMARY,
    SWEEP,
    TABLE,
    TRAINING,
    format_json,
    open_file,
    read_json,
    resolve_file,
    write_atomically,
)
from semcom.packed import DAMAGED, Archive, BoundedArchive, Packed
from semcom.runs.folder.summary import format_summary, read_summary, seal_summary
from semcom.runs.result.places import Places, strip_places
from semcom.studies.results.run import list_damaged_runs, read_stored_runs
from semcom.studies.results.table import read_table

LOG = logging.getLogger(__name__)
KINDS = (CONFIG, METRICS, SUMMARY, ERROR)
"""Files of a run's folder that an archive holds."""
OF_SWEEP = (SWEEP, TABLE, REPORT)
"""Files of a sweep's folder that it holds."""
RUNS = "runs.zip"
"""The part of an archive with all runs but their arrays: files as they are, compressed together by LZMA."""
MOST, LARGEST = 200_000, 4 * 2**30
"""Files, and their bytes, of the largest archive that is read: small ones may hold any number of zeros."""
PLAIN, RATIO = 2**26, 200
"""Bytes that any archive may become, and how many times its size a larger one."""
EPOCH = (1980, 1, 1, 0, 0, 0)
"""Date of every entry: that of no machine."""


def pack_archive(folder: Path | str, file: Path | str | None = None, *, arrays: bool = False) -> Path:
    """Write the archive of a study and return its path.

    Args:
        folder: as of `semcom.study`; runs that are not done are packed as they are.
        file: the archive (None: the folder's name with .zip, beside it).
        arrays: whether kept arrays (matrices, features) go in too.

    Raises:
        ConfigError: there is no run in the folder, or the archive would not be a .zip file.
    """
    folder = resolve_file(folder)
    whole = folder.resolve()
    path = whole.with_name(f"{whole.name}.zip") if file is None else resolve_file(file)
    if path.suffix != ".zip":
        raise ConfigError(f"out: {path} is no .zip file; give one")
    runs, record = read_stored_runs(folder)  # or an error that says what is wrong with it
    for line in list_damaged_runs(runs, record):
        LOG.warning("%s: %s", folder, line)
    configs = [file for run in runs for file in (run.folder / CONFIG, run.trained / CONFIG) if file.is_file()]
    places = Places(map(_read_values, configs), whole)
    folders, kinds = sorted(run.folder for run in runs), (*KINDS, ARRAYS) if arrays else KINDS
    buffer, inner = io.BytesIO(), io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive, zipfile.ZipFile(inner, "w") as texts:
        for source in _list_files(folder, folders, kinds):
            name, content = source.relative_to(folder).as_posix(), _read_content(source, places)
            if name in OF_SWEEP or source.name == ARRAYS:
                _write_entry(archive, name, content, zipfile.ZIP_DEFLATED)
            else:  # runs repeat each other, which compression sees across the whole of them only
                _write_entry(texts, name, content, zipfile.ZIP_STORED)
        texts.close()
        _write_entry(archive, RUNS, inner.getvalue(), zipfile.ZIP_LZMA)
    return write_atomically(path, buffer.getvalue())


def _write_entry(archive: zipfile.ZipFile, name: str, content: bytes, kind: int) -> None:
    entry = zipfile.ZipInfo(name, EPOCH)
    # Fixed date and mode, so that the same study always gives the same bytes.
    entry.compress_type, entry.external_attr = kind, 0o644 << 16
    archive.writestr(entry, content, compresslevel=9)


def read_stored_table(path: Path | str) -> pd.DataFrame:
    """Read the table that a sweep has left, from its folder or its archive. Errors: `read_table`, `read_archive`."""
    path = Path(path)
    frame = read_table(Packed(read_archive(path, TABLE)) if path.is_file() else path)
    return frame.apply(lambda column: column if is_numeric_dtype(column) else column.map(escape_texts))


def open_archive(path: Path) -> Path:
    """Find the folder of a study or of a run, in an archive too, where its files are read as they lie.

    Args:
        path: a folder, ARCHIVE.zip, or ARCHIVE.zip/HASH, which is one run of it.

    Raises:
        ConfigError: the archive has no such run, or `read_archive` refuses it.
    """
    file = path.parent if path.parent.is_file() else path
    if not file.is_file():
        return path
    whole = Packed(read_archive(file))
    folder = whole if file is path else whole / path.name
    if not folder.is_dir():
        raise ConfigError(f"study: {file} has no run {path.name}; semcom results {file} --what runs has their hashes")
    return folder


def _list_files(folder: Path, runs: list[Path], kinds: tuple[str, ...]) -> Iterator[Path]:
    """Yield the files that an archive holds: those of the sweep, and those of each run."""
    yield from (folder / name for name in OF_SWEEP if (folder / name).is_file())
    places = [folder, *(place for run in runs for place in (run, run / TRAINING))]
    yield from (place / name for place in dict.fromkeys(places) for name in kinds if (place / name).is_file())


def _read_content(path: Path, places: Places) -> bytes:
    """Read a file without the places of this machine."""
    if path.name == ERROR:  # its traceback names files of this machine
        return f"{places.words(path.read_text(encoding='utf-8', errors='replace').partition(chr(10))[0])}\n".encode()
    if path.name == REPORT:
        return places.words(path.read_text(encoding="utf-8", errors="replace")).encode()
    if path.name == TABLE:
        try:
            return places.frame(read_table(path)).to_parquet(index=False)
        except ConfigError:  # a damaged one says nothing
            return b""
    if path.name in (CONFIG, SWEEP):
        found = strip_places(_read_values(path))
        found = places.config(found) if path.name == CONFIG else seal_summary(places.values(found))
        return format_json(found, indent=1).encode()
    if path.name == SUMMARY:
        try:
            return format_summary(places.words(read_summary(path.parent) or {})).encode()
        except RunError:  # as it is it may tell where something lay
            return b""
    return path.read_bytes()


def _read_values(path: Path) -> dict[str, Any]:
    """Read a table of plain values; empty if the file holds none, which a reader skips as well."""
    with suppress(OSError, ValueError):
        return found if isinstance(found := read_json(path), dict) else {}
    return {}


def read_archive(file: Path, only: str | None = None) -> Archive:
    """Open an archive of a study, to read its files as they lie.

    Files of other names, and folders, are not seen: an archive may be anybody's.

    Args:
        file: the archive.
        only: the one file, or the one run beside the files of the sweep, that is wanted (None: all).

    Raises:
        ConfigError: it is no archive, damaged, or too large.
        RunError: there is no room for its runs, which are unpacked into a temporary file where they are large.
    """
    with _explain_damage(file), ExitStack() as stack:
        return Archive(file, _open_parts(file, only, stack), stack.pop_all())


@contextmanager
def _explain_damage(file: Path) -> Iterator[None]:
    """Turn the errors of a damaged archive, and of a full disk, into ConfigError and RunError."""
    try:
        yield
    except (ConfigError, RunError):
        raise
    except DAMAGED as error:
        if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise RunError(f"{gettempdir()} has no room for {file}; free some, or set TMPDIR") from None
        raise ConfigError(
            f"study: {file} is no archive of a study ({error}); give a folder, or a file of pack"
        ) from None


def _open_parts(file: Path, only: str | None, stack: ExitStack) -> list[tuple[BoundedArchive, list[zipfile.ZipInfo]]]:
    """Open an archive, and the archive of the runs within it, and list the entries of each that are of the study.

    The first versions have no archive within, and runs beside the sweep.
    """
    outer = stack.enter_context(BoundedArchive(stack.enter_context(open_file(file))))
    found, parts = [entry for entry in outer.infolist() if entry.filename == RUNS and only not in OF_SWEEP], [outer]
    if found:
        _check_size(file, found)
        if found[0].file_size > PLAIN:
            _check_room(file, found[0].file_size)
        plain: Any = stack.enter_context(SpooledTemporaryFile(max_size=PLAIN))  # noqa: SIM115 - the stack closes it
        with outer.open(found[0]) as packed:
            shutil.copyfileobj(packed, plain)
        parts.append(stack.enter_context(BoundedArchive(plain)))
    wanted = [(part, [e for e in part.infolist() if _is_of_study(e.filename, only)]) for part in parts]
    _check_size(file, [entry for _, entries in wanted for entry in entries])
    return wanted


def _is_of_study(name: str, only: str | None) -> bool:
    """Check whether a file of an archive belongs to a study: to its sweep, a run, or a run's training."""
    *folders, last = name.split("/")
    if only in OF_SWEEP:
        return name == only
    if not name.isprintable() or {"", ".", ".."} & {*folders} or last not in (*OF_SWEEP, *KINDS, ARRAYS):
        return False
    return not folders or (only in (None, folders[0]) and folders[1:] in ([], [TRAINING]))


def _check_size(file: Path, entries: Sequence[zipfile.ZipInfo]) -> None:
    """Raise ConfigError for more than is read of an archive, which says how much it is."""
    size, packed = sum(entry.file_size for entry in entries), file.stat().st_size
    if len(entries) > MOST:
        raise ConfigError(f"study: {file} holds {len(entries):,} files; the largest archive has {MOST:,}")
    if size > LARGEST:
        raise ConfigError(f"study: {file} holds {size:,} bytes; the largest archive has {LARGEST:,}")
    if size > PLAIN and size > RATIO * packed:
        raise ConfigError(f"study: {file} of {packed:,} bytes would become {size:,}, as no results do")


def _check_room(file: Path, size: int) -> None:
    """Raise RunError where there is no room for the bytes of an archive."""
    if size > shutil.disk_usage(gettempdir()).free:
        raise RunError(f"{gettempdir()} has no room for the {size:,} bytes of {file}; free some, or set TMPDIR")
