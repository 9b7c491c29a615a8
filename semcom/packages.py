"""The packages that come with semcom, and what other installed packages declare."""

from __future__ import annotations

import functools
import os
from importlib import metadata
from importlib.util import find_spec
from typing import Any

from semcom.config import ConfigError


@functools.cache
def list_own_folders() -> tuple[str, ...]:
    """List the folders of the packages that come with semcom; in a checkout they lie side by side.

    Raises:
        ImportError: they are of two installations, as in a second checkout that was not installed.
    """
    folders = [os.path.dirname(os.path.abspath(__file__))]
    for name in ("semcom.channels", "semcom_papers.experiments", "semcom_papers.figures"):
        spec = find_spec(name)
        folders += spec.submodule_search_locations or [] if spec is not None else []
    root = os.path.dirname(folders[0])
    for folder in folders:
        if os.path.realpath(folder).startswith(os.path.realpath(root) + os.sep):
            continue
        raise ImportError(
            f"{folders[0]} and {folder} are of two installations; install the first one: pip install -e {root}"
        )
    return tuple(os.path.join(folder, "") for folder in folders)


def find_installed_packages(group: str) -> tuple[list[Any], str]:
    """Load the objects that installed packages, semcom among them, declare under a group of entry points.

    Returns:
        The objects; a line about those that cannot be loaded, "" if all can.
    """
    found, problems = [], []
    for entry in metadata.entry_points(group=group):
        try:
            found.append(entry.load())
        except Exception as error:  # whatever a package of somebody else's raises
            problems.append(f"{entry.value} cannot be imported: {type(error).__name__}: {error}")
    return found, "; ".join(problems)


def read_package_catalogue(group: str) -> tuple[dict[str, str], str]:
    """Collect the tables of names that installed packages declare under a group, see `find_installed_packages`."""
    tables, problem = find_installed_packages(group)
    return {name: place for table in tables for name, place in table.items()}, problem


def check_extra_package(asked: str, package: str, extra: str) -> None:
    """Check that a package of an extra of semcom is installed, without importing it.

    Args:
        asked: what needs it, with the field or command in front, such as "backend: 'ray'".
        package: its name in Python.
        extra: of pyproject.toml.

    Raises:
        ConfigError: it is not.
    """
    if find_spec(package) is None:
        raise ConfigError(f"{asked} needs {package}; pip install 'semcom[{extra}]'")
