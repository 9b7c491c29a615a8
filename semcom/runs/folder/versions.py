"""The versions of the code that a run used."""

from __future__ import annotations

import functools
import importlib.metadata
import platform
import subprocess
from pathlib import Path


def read_versions() -> dict[str, str]:
    """Read the versions of packages on which a result depends."""
    names = ("semcom", "torch", "torchvision", "numpy", "scipy", "pillow", "sionna-no-rt")
    found = {name: version for name in names if (version := _find_version(name)) is not None}
    return {"python": platform.python_version(), **found}


@functools.cache
def _find_version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def read_commit() -> str | None:
    """Read the commit of this package's checkout, with "-dirty" if it was changed; None outside a checkout.

    It is asked for anew each time: methods are imported when a run first needs them, maybe after an edit.
    """

    def git(*words: str) -> str:
        command = ["git", "-C", str(Path(__file__).parent), *words]
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=10).stdout.strip()

    try:
        git("ls-files", "--error-unmatch", Path(__file__).name)  # a wheel inside somebody's checkout is not in it
        return git("describe", "--always", "--dirty", "--abbrev=10", "--exclude=*")
    except (OSError, subprocess.SubprocessError):
        return None
