"""A study in one file, for a repository or a paper's supplement: everything but checkpoints and kept arrays, as a ZIP.

`semcom.study` reads it like the folder that it was made of, and so do the commands. What names a place on one machine
is left out. The same results give the same bytes.
"""

from __future__ import annotations

import io
import logging
import lzma
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pandas as pd

from semcom.config import ConfigError, RunError
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
    read_json,
    resolve_file,
    to_json,
    write_atomically,
)
from semcom.runs.folder import format_summary, read_summary, seal_values
from semcom.studies.results.places import Places
from semcom.studies.results.run import list_damaged_runs, read_stored_runs
from semcom.studies.results.table import encode_table, read_table

LOG = logging.getLogger(__name__)
KINDS = (CONFIG, METRICS, SUMMARY, ERROR)
"""Files of a run's folder that an archive holds."""
LARGEST = 4 * 2**30
"""Bytes of the largest archive that is unpacked: small ones may hold any number of zeros."""
EPOCH = (1980, 1, 1, 0, 0, 0)
"""Date of every entry: that of no machine."""
DAMAGED = (OSError, EOFError, zipfile.BadZipFile, zlib.error, lzma.LZMAError, UnicodeError, RuntimeError)
"""What reading a file that is no archive, or a damaged one, raises; RuntimeError: it has a password."""


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
    path = _beside(folder) if file is None else resolve_file(file)
    if path.suffix != ".zip":
        raise ConfigError(f"out: {path} is no .zip file; give one")
    runs, record = read_stored_runs(folder)  # or an error that says what is wrong with it
    for line in list_damaged_runs(runs, record):
        LOG.warning("%s: %s", folder, line)
    configs = [file for run in runs for file in (run.folder / CONFIG, run.trained / CONFIG) if file.is_file()]
    places = Places(_read_table_of_json(file) for file in configs)
    folders, kinds = sorted(run.folder for run in runs), (*KINDS, ARRAYS) if arrays else KINDS
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for source in _list_archive_files(folder, folders, kinds):
            entry = zipfile.ZipInfo(source.relative_to(folder).as_posix(), EPOCH)
            entry.compress_type, entry.external_attr = zipfile.ZIP_DEFLATED, 0o644 << 16
            archive.writestr(entry, _read_archive_content(source, places))
    return write_atomically(path, buffer.getvalue())


def read_stored_table(path: Path | str) -> pd.DataFrame:
    """Read the table that a sweep has left, from its folder or its archive. Errors: `read_table`, `unpack_archive`."""
    path = Path(path)
    if not path.is_file():
        return read_table(path)
    with unpack_archive(path, TABLE) as folder:
        return read_table(Path(folder))


def open_archive(path: Path) -> tuple[Path, TemporaryDirectory[str] | None]:
    """Find the folder of a study or of a run, unpacked where it lies in an archive, and what keeps it there.

    Args:
        path: a folder, ARCHIVE.zip, or ARCHIVE.zip/HASH, which is one run of it.

    Raises:
        ConfigError: the archive has no such run, or `unpack_archive` refuses it.
    """
    file = path.parent if path.parent.is_file() else path
    if not file.is_file():
        return path, None
    place = unpack_archive(file)
    folder = Path(place.name) if file is path else Path(place.name) / path.name
    if not folder.is_dir():
        place.cleanup()
        raise ConfigError(f"study: {file} has no run {path.name}; semcom results {file} --what runs has their hashes")
    return folder, place


def _beside(folder: Path) -> Path:
    place = folder.resolve()
    return place.with_name(f"{place.name}.zip")


def _list_archive_files(folder: Path, runs: list[Path], kinds: tuple[str, ...]) -> Iterator[Path]:
    """Yield the files that an archive holds: those of the sweep, and those of each run."""
    yield from (folder / name for name in (SWEEP, TABLE, REPORT) if (folder / name).is_file())
    places = [folder, *(place for run in runs for place in (run, run / TRAINING))]
    yield from (place / name for place in dict.fromkeys(places) for name in kinds if (place / name).is_file())


def _read_archive_content(path: Path, places: Places) -> bytes:
    """Read a file without the places of this machine."""
    if path.name == ERROR:  # its traceback names files of this machine
        return f"{places.words(path.read_text(encoding='utf-8', errors='replace').partition(chr(10))[0])}\n".encode()
    if path.name == REPORT:
        return places.words(path.read_text(encoding="utf-8", errors="replace")).encode()
    if path.name == TABLE:
        try:
            return encode_table(places.frame(read_table(path)))
        except ConfigError:  # a damaged one says nothing
            return b""
    if path.name in (CONFIG, SWEEP):
        found = _strip_places(_read_table_of_json(path))
        found = places.config(found) if path.name == CONFIG else seal_values(places.words(found))
        return to_json(found, indent=1).encode()
    if path.name == SUMMARY:
        try:
            return format_summary(places.words(read_summary(path.parent) or {})).encode()
        except RunError:
            return path.read_bytes()
    return path.read_bytes()


def _read_table_of_json(path: Path) -> dict[str, Any]:
    """Read a table of plain values; an empty one where the file holds none, of which a reader makes nothing either."""
    with suppress(OSError, ValueError):
        return found if isinstance(found := read_json(path), dict) else {}
    return {}


def _strip_places(found: dict[str, Any]) -> dict[str, Any]:
    """Copy what config.json or sweep.json says, without `out` and `data.root`, which no hash depends on."""
    kept = {name: value for name, value in found.items() if name != "out"}
    for section, place in (("data", "root"), ("set", "data.root")):
        if isinstance(kept.get(section), dict):
            kept[section] = {name: value for name, value in kept[section].items() if name != place}
    return kept


def unpack_archive(file: Path, only: str | None = None) -> TemporaryDirectory[str]:
    """Unpack an archive, or only one file of it, into a temporary folder, which is removed with the object.

    Raises:
        ConfigError: it is no archive, is damaged, or that is more than `LARGEST` bytes.
    """
    place: TemporaryDirectory[str] = TemporaryDirectory(prefix="semcom-")
    try:
        with zipfile.ZipFile(file) as archive:
            entries = [entry for entry in archive.infolist() if only in (None, entry.filename)]
            if (size := sum(entry.file_size for entry in entries)) > LARGEST:
                raise ConfigError(f"study: {file} holds {size:,} bytes; the largest archive has {LARGEST:,}")
            archive.extractall(place.name, entries)
    except DAMAGED as error:
        place.cleanup()
        raise ConfigError(
            f"study: {file} is no archive of a study ({error}); give a folder, or a file of pack"
        ) from None
    return place
