"""The user's own modules: which they are, and which files a module consists of with all that it imports of them."""

from __future__ import annotations

import ast
import functools
import importlib.util
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from importlib.machinery import ModuleSpec
from pathlib import Path

_OURS = ("semcom", "channels", "experiments", "figures")
_INSTALLED = {"site-packages", "dist-packages"}


def ships(name: str) -> bool:
    """Return whether a module is one of semcom's."""
    return name.partition(".")[0] in _OURS


def is_own(name: str, file: str | None) -> bool:
    """Return whether a module is the user's: not semcom's, Python's or an installed package's."""
    top = name.partition(".")[0]
    return top not in (*_OURS, *sys.stdlib_module_names) and not _INSTALLED & {*Path(file or "").parts}


def add_imports(files: dict[str, Path]) -> dict[str, Path]:
    """Return modules with all of the user's own that they import, directly or not, found where Python finds them.

    Args:
        files: name of a module, as it is add_imports -> its file.
    """
    found, left, seen = dict(files), list(files), set[str]()
    while left:
        name = left.pop()
        file = found[name]
        package = name if file.name == "__init__.py" else name.rpartition(".")[0]
        wanted = _list_imports(file.read_bytes(), str(file), package) - seen if file.suffix == ".py" else set()
        seen |= wanted
        for module, place in (pair for each in wanted for pair in _find_own_files(each)):
            if module not in found:
                found[module] = place
                left.append(module)
    return dict(sorted(found.items()))


@functools.lru_cache(maxsize=4096)  # each request asks anew, of a package for all of its files
def _list_imports(source: bytes, file: str, package: str) -> frozenset[str]:
    """Return the dotted names that a file may import, wherever in it; of `from a import b` both a and a.b."""
    found = set[str]()
    for node in ast.walk(ast.parse(source, file)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            with suppress(ImportError):  # a relative import without a package, or above it, fails when it is executed
                base = importlib.util.resolve_name("." * node.level + base, package or None)
                found |= {base, *(f"{base}.{alias.name}" for alias in node.names)}
    return frozenset(found)


def _find_own_files(name: str) -> Iterator[tuple[str, Path]]:
    """Yield the files of a module and of the packages that it is in, those that are the user's; `a.*` is all of a."""
    if not is_own(name, None):  # its name alone tells, and a search takes long
        return
    path: Sequence[str] | None = None
    words = name.split(".")
    for count, word in enumerate(words, 1):
        module = ".".join(words[:count])
        if word == "*":
            for file in sorted(inside for folder in path or () for inside in Path(folder).glob("*.py")):
                if file.name != "__init__.py":
                    yield f"{module[:-1]}{file.stem}", file
            return
        spec = _find_spec(module, path)
        if spec is None:
            return
        if spec.origin and spec.has_location and is_own(module, spec.origin):
            yield module, Path(spec.origin)
        elif spec.origin:  # another's package holds nothing of the user's
            return
        path = spec.submodule_search_locations
        if path is None:
            return


def _find_spec(module: str, path: Sequence[str] | None) -> ModuleSpec | None:
    """Return where Python would find a module, without importing anything."""
    for finder in sys.meta_path:
        find = getattr(finder, "find_spec", None)
        try:
            if find is not None and (spec := find(module, path)) is not None:
                return spec
        except KeyError:  # a folder without __init__.py inside another, which Python only finds once that is imported
            spec = ModuleSpec(module, None, is_package=True)
            spec.submodule_search_locations = [str(Path(folder, module.rpartition(".")[2])) for folder in path or ()]
            return spec
    return None
