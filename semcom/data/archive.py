"""Reader of .npz archives that users bring: plain arrays only, and one line about whatever is wrong with them."""

from __future__ import annotations

import struct
import zipfile
import zlib
from collections.abc import Container
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from semcom.config import ConfigError

DAMAGED = (OSError, ValueError, EOFError, RuntimeError, struct.error, zipfile.BadZipFile, zlib.error)
"""Errors of NumPy and zipfile for files that are no archive, cut short, encrypted or hold pickled objects."""


def read_archive(path: Path, blame: str, wanted: Container[str] | None = None) -> dict[str, npt.NDArray[Any]]:
    """Return the arrays of an .npz file by name, all or those that are `wanted`.

    Raises ConfigError that starts with `blame` (field and value) if the file is missing or no archive of plain arrays.
    """
    if not path.is_file():
        raise ConfigError(f"{blame} is not there; give the path of an .npz file")
    if not zipfile.is_zipfile(path):  # NumPy would take it for a pickle and advise to load it unsafely
        raise ConfigError(f"{blame} is no readable .npz archive of plain arrays (not a zip file)")
    try:
        with np.load(path, allow_pickle=False) as archive:
            arrays = {key: archive[key] for key in archive.files if wanted is None or key in wanted}
    except DAMAGED as error:
        raise ConfigError(f"{blame} is no readable .npz archive of plain arrays ({one_line(error)})") from None
    for key, value in arrays.items():
        if not isinstance(value, np.ndarray):
            raise ConfigError(f"{blame} is no readable .npz archive of plain arrays ({key} is no array)")
    return arrays


def one_line(error: Exception) -> str:
    """Return an error's message on one line."""
    return " ".join(str(error).split()) or type(error).__name__
