"""A process that has not imported what another one has."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

from semcom.runs.request import sources


def forget_modules(folder: Path) -> None:
    """Make this process forget the modules of a folder, as another one has not imported them."""
    for name, module in list(sys.modules.items()):
        held = getattr(module, "__dict__", {})
        places = [held.get("__file__"), *held.get("__path__", ())]
        if any(str(place).startswith(str(folder)) for place in places):
            del sys.modules[name]
    for held in (sources._kept, sources._opened):
        for path in [path for path in held if path.startswith(str(folder))]:
            del held[path]
    importlib.invalidate_caches()
