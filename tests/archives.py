"""The files of runs in an archive of a study, read without the code that packed it."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path


def open_runs(path: Path) -> zipfile.ZipFile:
    """Open what holds the runs: the archive within an archive, or an archive of the first versions itself."""
    outer = zipfile.ZipFile(path)
    if "runs.zip" not in outer.namelist():
        return outer
    with outer:
        return zipfile.ZipFile(io.BytesIO(outer.read("runs.zip")))
