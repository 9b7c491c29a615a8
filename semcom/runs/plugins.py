"""Imports the user's own methods, channels, encoders and datasets, so that they register themselves."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType

from semcom.config import ConfigError

_PREFIX = "semcom_plugin_"
_loaded: dict[Path, ModuleType] = {}


def load_plugins(plugins: Iterable[str]) -> None:
    """Imports each Python file (a path ending in .py) or module (by name), each only once per process.

    Raises ConfigError with the cause for a plugin that is not there or that fails when it is imported.
    """
    for plugin in plugins:
        try:
            _load_file(Path(plugin).resolve()) if plugin.endswith(".py") else importlib.import_module(plugin)
        except Exception as error:  # a plugin is the user's own code: whatever it raises, the request cannot be met
            raise ConfigError(f"plugin: {plugin!r} cannot be imported: {type(error).__name__}: {error}") from error


def _load_file(path: Path) -> None:
    """Executes a file as a module of its own name, which stays out of `sys.modules` if that fails."""
    if path in _loaded:
        return
    name = f"{_PREFIX}{len(_loaded)}_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None  # it ends in .py
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look their module up while it runs
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    _loaded[path] = module
