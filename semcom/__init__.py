"""semcom: federated learning of semantic communication over noisy channels.

    import semcom

    result = semcom.run(semcom.RunConfig(method="fedcl", clients=5))
    print(result.summary["accuracy"])

A module is imported when one of its names is first used, so that `import semcom` is quick.
"""

from __future__ import annotations

import ast
import importlib
from importlib import metadata
from pathlib import Path
from typing import Any

# First, so that no file of the user's is imported unheard.
importlib.import_module("semcom.runs.request.sources").listen_to_imports()

try:
    __version__ = metadata.version("semcom")
except metadata.PackageNotFoundError:  # run from a source tree that was never installed
    __version__ = "0.0.0"

_STUB = ast.parse(Path(__file__).with_suffix(".pyi").read_text(encoding="utf-8"))
_LAZY = {
    alias.name: str(node.module) for node in _STUB.body if isinstance(node, ast.ImportFrom) for alias in node.names
}
"""Exported name -> the module that is imported when it is first asked for, as type checkers know them."""

__all__ = [*_LAZY, "__version__"]


def __getattr__(name: str) -> Any:
    """Import the module of an exported name at its first use (PEP 562)."""
    if name not in _LAZY:
        raise AttributeError(f"module 'semcom' has no attribute {name!r}")
    return getattr(importlib.import_module(_LAZY[name]), name)
