"""Check that Python finds the packages that come with semcom: their names are plain words, which a user may take."""

from __future__ import annotations

import os
import sys
from importlib.util import find_spec


def hidden(*names: str) -> str | None:
    """Return one line about the first of some packages that is hidden by something of the user's; None: none is.

    Nothing is imported.
    """
    root = os.path.dirname(os.path.dirname(os.path.realpath(__file__)))
    for name in names:
        found = _place(name)
        if found is None:
            return f"the package {name!r}, which comes with semcom, is not here; install semcom again"
        if os.path.realpath(found) != os.path.join(root, name):
            return f"{found} hides the package {name!r} that comes with semcom; rename it or move it away"
    return None


def _place(name: str) -> str | None:
    """Return the folder of a package, or the file of a module, that Python finds under a name."""
    spec = getattr(sys.modules.get(name), "__spec__", None) or find_spec(name)
    if spec is None:
        return None
    if spec.submodule_search_locations:
        return next(iter(spec.submodule_search_locations))
    return spec.origin


def is_command() -> bool:
    """Return whether this process was started as the command `semcom` or as `python -m semcom`."""
    first = sys.argv[0] if sys.argv else ""
    if first == "-m":  # while Python looks for the module that it is to run
        return sys.orig_argv[-len(sys.argv)].endswith("semcom")
    return os.path.splitext(os.path.basename(first))[0] == "semcom"
