"""Import of the user's own methods, channels, encoders and datasets, which register themselves.

The code of a plug-in is part of a run's identity: `read_plugin` returns the imported code.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
import sysconfig
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType

from semcom.channels.registry import registering_source
from semcom.config import ConfigError
from semcom.files import digest_bytes
from semcom.runs.request.sources import Code, add_imported_sources, list_read_variables, read_source
from semcom.runs.request.stop import Stopped

_PREFIX = "semcom_plugin_"
_loaded: dict[str, tuple[str, dict[str, Path]]] = {}
"""Plug-in, as `locate_plugin` spells it -> its sources, and their digest when this process imported it."""


def load_plugins(plugins: Iterable[str]) -> None:
    """Import each Python file (a path ending in .py) or module (by name), only once per process.

    Raises ConfigError with the cause for a missing plug-in, for one that fails on import or registers nothing, and for
    one whose sources have changed since this process imported it.
    """
    for plugin in plugins:
        name = locate_plugin(plugin)
        if os.sep in plugin and not name.endswith(".py"):
            raise ConfigError(f"plugin: {plugin!r} is no Python file; give FILE.py, or the name of a module")
        if name.endswith(".py") and os.path.exists(name) and not os.path.isfile(name):
            raise ConfigError(f"plugin: {plugin!r} is no file")
        problem = ""
        try:
            if name not in _loaded:
                problem = _import_and_digest(name)
            elif digest_bytes(_loaded[name][1]) != _loaded[name][0]:
                problem = ", or what it imports, has changed since this process imported it; start Python again"
        except Stopped:
            raise
        except (Exception, SystemExit) as error:  # the user's own code: whatever it raises, the request cannot be met
            raise ConfigError(f"plugin: {plugin!r} cannot be imported: {type(error).__name__}: {error}") from error
        if problem:
            raise ConfigError(f"plugin: {plugin!r}{problem}")


def locate_plugin(plugin: str) -> str:
    """Spell a plug-in independently of the current folder: an absolute path, or the name of a module."""
    return os.path.abspath(os.path.expanduser(plugin)) if plugin.endswith(".py") else plugin


def list_loaded_plugins() -> list[str]:
    """List the plug-ins that this process has imported, as `locate_plugin` spells them."""
    return list(_loaded)


def digest_plugin(plugin: str) -> str:
    """Return the digest of an imported plug-in, which covers its sources and the user's modules that they import."""
    return _loaded[locate_plugin(plugin)][0]


def read_plugin(plugin: str) -> Code:
    """Return the code of an imported plug-in."""
    digest, sources = _loaded[locate_plugin(plugin)]
    variables = list_read_variables(map(read_source, sources.values()))
    return Code(digest, variables, {str(path): frozenset() for path in sources.values()})


def _import_and_digest(name: str) -> str:
    """Import a plug-in and note the digest of its sources; return the problem, or an empty text."""
    before = set(sys.modules)
    with registering_source(name) as registered:
        if name.endswith(".py"):
            _execute_as_module(Path(name))
        else:
            importlib.import_module(name)
    sources = _list_sources(name)
    own = {name, *sources} - {"__main__"}
    earlier = {module for module in own & before if not _is_of_python(sys.modules[module])}
    if not registered and not earlier:  # what was imported before may have registered something then
        for module in own - before:
            sys.modules.pop(module, None)
        return " registers nothing: no method, link, dataset or anything else; leave it out, or see docs/extending.md"
    others = {module: path for _, held in _loaded.values() for module, path in held.items() if module != "__main__"}
    for module, path in sources.items():
        there = getattr(sys.modules.get(module), "__file__", None) or others.get(module, path)
        if module != "__main__" and not os.path.samefile(there, path):
            return f" imports {module}, which is {there} in this process, and not {path}; give one another name"
    _loaded[name] = digest_bytes(sources), sources
    return ""


def _is_of_python(module: ModuleType) -> bool:
    """Check whether a module is Python's own."""
    file, library = getattr(module, "__file__", None), Path(sysconfig.get_path("stdlib"))
    if file is None:
        return module.__name__ in sys.builtin_module_names
    return Path(file).is_relative_to(library) and "site-packages" not in Path(file).parts


def _execute_as_module(path: Path) -> None:
    """Execute a file as a module of its own name, which stays out of `sys.modules` if that fails."""
    name = f"{_PREFIX}{len(_loaded)}_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None  # it ends in .py
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look their module up while it runs
    folder = str(path.parent)
    sys.path.insert(0, folder)  # as of a script
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    finally:
        sys.path.remove(folder)
        if folder not in sys.path:
            sys.path.append(folder)  # for imports in functions; last, where it hides nothing


def _list_sources(name: str) -> dict[str, Path]:
    """List the files of a plug-in, by names that do not depend on its folder.

    For a file: itself. For a module: its file, or all modules of its package. And all of the user's own modules that
    these import, directly or not.
    """
    if name.endswith(".py"):
        return add_imported_sources({"__main__": Path(name)}, (os.path.dirname(name),))
    top: ModuleType = sys.modules[name.partition(".")[0]]
    if not hasattr(top, "__path__"):
        file = getattr(top, "__file__", None)
        return add_imported_sources({name: Path(file)}) if file else {}
    files = {path.relative_to(folder): path for folder in top.__path__ for path in Path(folder).rglob("*.py")}
    own = {path.as_posix(): file for path, file in files.items()}
    modules = {".".join((top.__name__, *path.with_suffix("").parts)).removesuffix(".__init__"): path for path in files}
    found = add_imported_sources({module: files[path] for module, path in modules.items()})
    return dict(sorted({**own, **{module: file for module, file in found.items() if module not in modules}}.items()))
