"""The folders of the repository and the names under which they are installed."""

from __future__ import annotations

import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
_MAPPED = {folder: name for name, folder in PROJECT["tool"]["setuptools"]["package-dir"].items()}
FOLDERS = {name: _MAPPED.get(name, name) for name in ("channels", "semcom", "experiments", "figures")}
"""Folder -> package; each may import itself and those before it."""


def name_module(path: Path, root: Path = ROOT) -> str:
    """The dotted name of the module in a file below the repository; a package is called by its own name."""
    folder, *parts = path.relative_to(root).with_suffix("").parts
    return ".".join([FOLDERS[folder], *(parts[:-1] if parts[-1:] == ["__init__"] else parts)])
