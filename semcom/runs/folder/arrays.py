"""`arrays.npz`: the arrays that a run keeps on request, by the names that docs/metrics.md explains."""

from __future__ import annotations

import hashlib
import zipfile
import zlib
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from semcom.config import RunError
from semcom.files import open_file, write_atomically

Arrays = dict[str, np.ndarray]

CONFUSION, FEATURES, CURVES, IMAGES = "confusion", "features", "curves-per-client", "images"
LEAK, BASE = "leak", "base"
"""What attacks leave, and among it the setting without a name: what the base station hears."""
PREFIX = {CONFUSION: "confusion/", FEATURES: "received/", CURVES: "curves/", IMAGES: "images/", LEAK: "leak/"}
"""What can be kept, or is left -> how the names of its arrays begin."""


def is_leak(number: str | None) -> bool:
    """Tell whether a number of a run is one of an attack, such as leak.psnr."""
    return number is not None and number.startswith(f"{LEAK}.")


def write_arrays(path: Path, arrays: Mapping[str, np.ndarray], run: str) -> None:
    """Write the arrays of the run with a hash. Raises OSError, without half a file."""
    content: dict[str, Any] = {"run": np.array([run, _digest(arrays)]), **arrays}
    write_atomically(path, lambda file: np.savez(file, **content))


def read_arrays(path: Path, expected: str) -> Arrays:
    """Read the arrays of a run's file, none if it is missing.

    Args:
        path: of the file.
        expected: hash of the run.

    Raises:
        RunError: the file is damaged, or of another run.
    """
    try:
        with open_file(path) as content, np.load(content, allow_pickle=False) as file:
            found = {name: file[name] for name in file.files}
    except FileNotFoundError:
        return {}
    except (ValueError, OSError, EOFError, KeyError, RuntimeError, zipfile.BadZipFile, zlib.error) as error:
        raise RunError(f"{path} is damaged ({type(error).__name__})") from None
    run, *digest = np.atleast_1d(found.pop("run", "none")).tolist()
    if run != expected:
        raise RunError(f"{path} is of run {run}, not of {expected}")
    if digest and digest != [_digest(found)]:  # older versions have left none
        raise RunError(f"{path} is damaged (its digest is not that of its content)")
    return found


def add_arrays(path: Path, arrays: Mapping[str, np.ndarray], run: str) -> None:
    """Add arrays to those of the run, in the place of any of these names. Errors: `read_arrays`, `write_arrays`."""
    write_arrays(path, {**read_arrays(path, run), **arrays}, run)


def _digest(arrays: Mapping[str, np.ndarray]) -> str:
    """Compute the digest of arrays by name: a file that has lost some of them looks whole."""
    total = hashlib.sha256()
    for name, array in sorted(arrays.items()):
        total.update(f"{name} {array.dtype} {array.shape} ".encode() + np.ascontiguousarray(array).tobytes())
    return total.hexdigest()


def list_lacking_arrays(found: Mapping[str, Any], keep: Collection[str]) -> list[str]:
    """List the kinds without arrays, of those that are kept in arrays."""
    return [what for what in keep if what in PREFIX and not any(name.startswith(PREFIX[what]) for name in found)]
