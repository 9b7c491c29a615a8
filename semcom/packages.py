"""The packages that come with semcom, whose names are plain words that a user may take, and other installed ones."""

from __future__ import annotations

import os
import sys
from importlib import metadata
from importlib.util import find_spec
from typing import Any


def find_hidden_package(name: str) -> str | None:
    """Describe in one line the module of the user's that hides a package of ours; None without such a module.

    Nothing is imported.
    """
    root, found = os.path.dirname(os.path.dirname(os.path.realpath(__file__))), _locate_package(name)
    if found is None:
        return f"the package {name!r}, which comes with semcom, is not here; install semcom again"
    if os.path.realpath(found) != os.path.join(root, name):
        return f"{found} hides the package {name!r} that comes with semcom; rename it or move it away"
    return None


def find_installed_packages(group: str) -> tuple[list[Any], str]:
    """Load the objects that installed packages, semcom among them, declare under a group of entry points.

    Returns:
        The objects; a line about those that cannot be loaded, "" if all can.
    """
    found, problems = [], []
    for entry in metadata.entry_points(group=group):
        package = entry.module.partition(".")[0]
        if package in ("experiments", "figures") and (problem := find_hidden_package(package)):
            problems.append(problem)
            continue
        try:
            found.append(entry.load())
        except Exception as error:  # whatever a package of somebody else's raises
            problems.append(f"{entry.value} cannot be imported: {type(error).__name__}: {error}")
    return found, "; ".join(problems)


def read_package_catalogue(group: str) -> tuple[dict[str, str], str]:
    """Collect the tables of names that installed packages declare under a group, see `find_installed_packages`."""
    tables, problem = find_installed_packages(group)
    return {name: place for table in tables for name, place in table.items()}, problem


def _locate_package(name: str) -> str | None:
    """Find the folder of a package, or the file of a module, under the name that Python imports."""
    spec = getattr(sys.modules.get(name), "__spec__", None) or find_spec(name)
    if spec is None:
        return None
    if spec.submodule_search_locations:
        return next(iter(spec.submodule_search_locations))
    return spec.origin


def is_package_command() -> bool:
    """Check whether this process was started as the command `semcom` or as `python -m semcom`."""
    first = sys.argv[0] if sys.argv else ""
    if first == "-m":  # while Python looks for the module that it is to run
        return sys.orig_argv[-len(sys.argv)].endswith("semcom")
    return os.path.splitext(os.path.basename(first))[0] == "semcom"
