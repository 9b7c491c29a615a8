"""Reader of .npz archives from users: it executes no content, and describes any damage in one line."""

from __future__ import annotations

import math
import os
import struct
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from semcom.config import ConfigError
from semcom.config.errors import shorten_error
from semcom.data.pickled import read_pickled_dictionary

DAMAGED = (OSError, ValueError, OverflowError, EOFError, RuntimeError, struct.error, zipfile.BadZipFile, zlib.error)
"""Errors of NumPy and zipfile for files that are no archive, cut short, encrypted or hold pickled objects."""


def read_archive(path: Path, blame: str, wanted: Callable[[str], bool]) -> dict[str, npt.NDArray[Any]]:
    """Read those arrays of an .npz file whose names are wanted, by name.

    An array whose header claims more than the file's size is refused before memory is allocated.

    Raises ConfigError that starts with `blame` (field and value) if the file is missing or no archive of plain arrays.
    """
    if not os.path.isfile(path):
        raise ConfigError(f"{blame} is not there; give the path of an .npz file")
    try:
        with zipfile.ZipFile(path) as archive:  # not np.load, which allocates what a header promises
            return {name: _read_member(archive, member) for name, member in _list_members(archive, wanted)}
    except DAMAGED as error:
        raise ConfigError(f"{blame} is no readable .npz archive of plain arrays ({shorten_error(error)})") from None


def read_pickled(path: Path, blame: str, name: str) -> dict[str, npt.NDArray[Any]]:
    """Read the arrays of numbers in the dictionary that an .npz file holds under a name, by name.

    The pickle in the file is never executed (`semcom.data.pickled`).

    Raises ConfigError that starts with `blame` if the file is missing, damaged, or has other content.
    """
    if not os.path.isfile(path):
        raise ConfigError(f"{blame} is not there")
    try:
        with zipfile.ZipFile(path) as archive, archive.open(f"{name}.npy") as file:
            _read_promised_size(file)
            return read_pickled_dictionary(file.read())
    except (*DAMAGED, KeyError) as error:
        raise ConfigError(f"{blame} is no .npz archive of a dictionary of arrays ({shorten_error(error)})") from None


def measure_archive(path: Path, wanted: Callable[[str], bool]) -> int:
    """Measure the bytes of the wanted arrays of an .npz file, or return 0 if `read_archive` refuses the file."""
    if not os.path.isfile(path):
        return 0
    try:
        with zipfile.ZipFile(path) as archive:
            return sum(member.file_size for _, member in _list_members(archive, wanted))
    except DAMAGED:
        return 0


def _list_members(archive: zipfile.ZipFile, wanted: Callable[[str], bool]) -> list[tuple[str, zipfile.ZipInfo]]:
    """List the wanted arrays of an archive: their names, and their entries in the archive's directory."""
    named = [(member.filename.removesuffix(".npy"), member) for member in archive.infolist()]
    return [(name, member) for name, member in named if wanted(name)]


def _read_member(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> npt.NDArray[Any]:
    """Read an array of an archive. Raises ValueError for none, or one whose header claims more or fewer bytes."""
    with archive.open(member) as file:
        promised = _read_promised_size(file)
        if promised > member.file_size - file.tell():
            raise ValueError(f"{member.filename} promises {promised} bytes and has {member.file_size}")
        file.seek(0)
        array = np.lib.format.read_array(file, allow_pickle=False)
        if file.read(1):  # also what looks at the checksum, which covers the whole member
            raise ValueError(f"{member.filename} promises {promised} bytes and has {member.file_size}")
        return array


def _read_promised_size(file: IO[bytes]) -> int:
    """Read the number of bytes that the header of an array claims, and leave the file positioned behind the header."""
    version = np.lib.format.read_magic(file)
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    try:
        shape, _, dtype = read(file)
    except Exception as error:  # it is parsed as Python: almost anything may come out
        raise ValueError(f"its header cannot be read: {shorten_error(error)}") from None
    return 0 if dtype.hasobject else math.prod(shape) * dtype.itemsize
