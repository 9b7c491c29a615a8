"""The identity of what a script or a notebook registers: the text of that script or those cells, and what they import.

A script counts whole, but for what it does as a program, and functions that nothing else in it mentions. Of a notebook
those cells count that registered it, that bind what these refer to by name, directly or not, or that change something
of that. Modules of one's own count whole. What no text tells, as a number from the command line, counts by its value.
"""

from __future__ import annotations

import ast
import builtins
import functools
import hashlib
import importlib
import importlib.metadata
import linecache
import os
import re
import symtable
import sys
import types
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from channels.registry import Place, read_executed_cell
from semcom.config import ConfigError
from semcom.runs.request.sources import Code, add_imports, is_own, list_variables, read_source

_PLAIN = (type(None), bool, int, float, complex, str, bytes)
_NUMERIC = ("torch", "numpy", "scipy", "semcom", "channels")
"""Packages of which any change by a cell may change a run's numbers."""
_SILENT = {*vars(builtins), "display", "get_ipython", "semcom", "channels"} - {"setattr", "delattr", "exec"}
"""Functions, and modules, that change nothing which they are given."""
_MAGIC = re.compile(r"\A\s*%%(?!writefile|file|python|pypy)\w+.*\n|^\s*%time(it)? ", re.MULTILINE)
"""What makes more of a cell, or a line, than Python does; a cell for another program stays as it is."""


def read_code(entry: Any, place: Place | None) -> Code:
    """Read what a class, a function or an object of the user's rests on.

    Args:
        entry: of a registry, or a function.
        place: the script or the cell that registered it, if one did.

    Raises:
        ConfigError: its text is kept nowhere, as of `python -c` and of what is typed into Python itself.
    """
    name = str(getattr(entry, "__module__", ""))
    file = getattr(sys.modules.get(name), "__file__", None)
    files = {name: Path(file).absolute()} if file and name != "__main__" and is_own(os.path.abspath(file)) else {}
    parts: list[object] = [] if files or name == "__main__" else [_read_version(name)]  # somebody else's
    chosen = _choose_texts(place, str(getattr(entry, "__name__", ""))) if place else []
    text = "\n".join(sorted(each.text for each in chosen))
    if place is not None and name == "__main__" and not text:
        raise ConfigError("what comes by `python -c` or is typed into Python itself leaves no text; use a file")
    if place is not None and text:
        parts += [text, _list_values(chosen, entry, place.known)]
    files = add_imports(files, text=text, package=place.known.get("__package__") or "" if place else "")
    parts += [(module, hashlib.sha256(read_source(path)).hexdigest()) for module, path in files.items()]
    sources = {str(path): frozenset[int]() for path in files.values()}
    sources |= {source: each.program for each in chosen for source in each.sources}
    digest = hashlib.sha256(repr(parts).encode(errors="surrogatepass")).hexdigest()
    return Code(digest, list_variables([text.encode(), *map(read_source, files.values())]), sources)


def find_definition(function: Any) -> Place | None:
    """Return the script or the cell that defines a function; None for one of a module."""
    code = getattr(function, "__code__", None)
    if code is None or function.__module__ != "__main__":
        return None
    return Place(code.co_filename, function.__globals__, read_executed_cell(function.__globals__))


@dataclass(frozen=True)
class _Text:
    """A script, or a cell, without comments, and the names of globals that it has to do with."""

    text: str
    sources: tuple[str, ...]
    """The file, or the cells as they were typed in, that say this."""
    program: frozenset[int]
    """Lines of what it does as a program."""
    imports: Mapping[str, str]
    """Name that an import binds -> the module that it is of."""
    bound: set[str]
    used: set[str]
    taken: set[str]
    """Those of the used ones whose value it takes at once, and not in a function."""
    inside: set[str]
    """The names that its functions and classes take, also with an attribute."""
    changed: set[str]
    """Of what it assigns parts, and what a function of it assigns as a global."""
    called: set[str]
    """What it calls a method of, is there to call, or is there to hand over."""
    varying: set[str]
    """Globals and attributes that its functions assign: a run changes them."""


# -- which texts -----------------------------------------------------------------------------------------------------


def _choose_texts(place: Place, name: str) -> list[_Text]:
    """Return the script of a place; or the cells on which the one there rests, with what binds a name."""
    if not place.cell:
        if not os.path.isfile(place.file):
            return []
        return [_read_script(read_source(place.file).decode(errors="replace"), place.file, name)]
    cells = dict[str, _Text]()  # by text, in the order in which they were executed last
    here = _read_cell("".join(linecache.getlines(place.file)) or place.cell)
    for cell in (here, *map(_read_cell, place.known["In"])):
        if cell is not None:
            held = cells.pop(cell.text, None)
            cells[cell.text] = replace(cell, sources=(*held.sources, *cell.sources)) if held else cell
    every = list(cells.values())
    imports = {bound: of for each in every for bound, of in each.imports.items()}
    tops = {bound: of.partition(".")[0] for bound, of in imports.items() if not of.startswith(".")}
    files = {bound: getattr(sys.modules.get(top), "__file__", None) for bound, top in tops.items()}
    foreign = {bound for bound, file in files.items() if not is_own(file)}
    numeric = {bound for bound, top in tops.items() if top in _NUMERIC}
    chosen = [each for each in every if (here and each.text == here.text) or "*" in each.imports]
    before, needed = -1, {name}
    while len(chosen) > before:
        before = len(chosen)
        needed.update(*(each.used for each in chosen))
        found = {each.text for each in chosen} | {each.text for word in needed for each in _find_bindings(every, word)}
        for each in every:
            if each.changed & (needed - foreign | numeric) or each.called & (needed - foreign):
                found.add(each.text)
        chosen = [each for each in every if each.text in found]
    return chosen


def _find_bindings(cells: list[_Text], name: str) -> Iterator[_Text]:
    """Yield the last cell that binds a name, and those that it goes on from."""
    for cell in reversed(cells):
        if name in cell.bound:
            yield cell
            if name not in cell.taken:
                return


@functools.lru_cache(maxsize=64)
def _read_script(text: str, file: str, name: str) -> _Text:
    """Read a script, but for what it does as a program: under `if __name__ == "__main__":`, in functions of that alone.

    What defines something there, or changes something that the script binds outside, counts.
    """
    tree, program = ast.parse(text, file), set[int]()
    whole = _describe_text(tree, (file,), frozenset())
    functions = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
    parts = [node for node in tree.body if not _changes_module(node, whole.bound - whole.imports.keys() - functions)]
    left = tree.body
    for node in [node for node in parts if isinstance(node, ast.If) and not node.orelse]:
        if "__name__ == '__main__'" not in ast.unparse(node.test):
            continue
        program |= set(range(node.lineno, (node.end_lineno or 0) + 1))
        left = [each for each in left if each is not node]
    unused = [node for node in parts if isinstance(node, ast.FunctionDef) and node.name != name]
    words = {id(node): {*re.findall(r"\w+", ast.unparse(node))} for node in left}
    before = -1
    while len(left) != before:
        before = len(left)
        gone = [n for n in unused if not any(n.name in words[id(other)] for other in left if other is not n)]
        left = [each for each in left if each not in gone]
    return _describe_text(ast.Module(left, []), (file,), frozenset(program))


def _changes_module(node: ast.stmt, bound: set[str]) -> bool:
    """Return whether a statement defines or registers something within, or may change what a module has bound."""
    for at in ast.walk(node):
        if isinstance(at, ast.ClassDef | ast.Global) or getattr(at, "decorator_list", None):
            return True
        if isinstance(at, ast.Attribute | ast.Subscript) and not isinstance(at.ctx, ast.Load):
            if _find_root(at) in {*bound, *_NUMERIC}:
                return True
        elif isinstance(at, ast.Attribute) and at.attr == "register":
            return True
        elif isinstance(at, ast.Call) and _find_root(at.func) not in _SILENT:
            given = [*at.args, at.func] if isinstance(at.func, ast.Attribute) else at.args
            if any(_find_root(each) in bound for each in given):
                return True
    return False


@functools.lru_cache(maxsize=4096)
def _read_cell(source: str) -> _Text | None:
    """Read a cell; None for one that is not in Python."""
    transform = importlib.import_module("IPython.core.inputtransformer2").TransformerManager().transform_cell
    try:
        return _describe_text(ast.parse(transform(_MAGIC.sub("", source))), (source,), frozenset())
    except SyntaxError:
        return None


def _describe_text(tree: ast.Module, sources: tuple[str, ...], program: frozenset[int]) -> _Text:
    text = ast.unparse(tree)
    top, *inner = ([*table.get_symbols()] for table in _list_tables(symtable.symtable(text, "text", "exec")))
    within = [symbol for table in inner for symbol in table]
    declared = {s.get_name() for s in within if s.is_assigned() and s.is_declared_global()}
    bound = {s.get_name() for s in top if s.is_assigned() or s.is_imported() or s.is_namespace()}
    used = {s.get_name() for s in top if s.is_referenced()}
    inside = {s.get_name() for s in within if s.is_global()}
    used |= inside
    varying = declared | {s.get_name() for s in within if s.is_assigned() and s.is_nonlocal()}
    imports, changed, called = dict[str, str](), set(declared), set[str]()
    for at, place in _walk(tree):
        if isinstance(at, ast.Import | ast.ImportFrom):
            of = "" if isinstance(at, ast.Import) else "." * at.level + (at.module or "")
            imports |= {alias.asname or alias.name.partition(".")[0]: of or alias.name for alias in at.names}
        elif isinstance(at, ast.Attribute | ast.Subscript) and not isinstance(at.ctx, ast.Load):
            names = {_find_root(at), at.attr if isinstance(at, ast.Attribute) else ""}
            if place == "function":
                varying |= names
            else:
                changed |= {_find_root(at)}
        elif isinstance(at, ast.Attribute) and place:
            inside |= {f"{_find_root(at)}.{at.attr}"}
        elif isinstance(at, ast.FunctionDef) and any(isinstance(each, ast.Global) for each in ast.walk(at)):
            used |= {at.name}  # whoever calls it binds a global
        if isinstance(at, ast.Call) and place != "function" and isinstance(at.func, ast.Attribute):
            called |= {_find_root(at.func)}
        elif isinstance(at, ast.Expr) and isinstance(call := at.value, ast.Call) and place != "function":
            roots = {_find_root(each) for each in (call.func, *call.args)}
            called |= roots if _find_root(call.func) not in _SILENT else set()
    taken, stored = set[str](), set[str]()
    for statement in tree.body:
        here = [at for at, place in _walk(statement) if not place]
        names = [at for at in here if isinstance(at, ast.Name)]
        taken |= {at.id for at in names if isinstance(at.ctx, ast.Load)} - stored
        taken |= {_find_root(at.target) for at in here if isinstance(at, ast.AugAssign)} - stored
        stored |= {at.id for at in names if isinstance(at.ctx, ast.Store)}
    return _Text(text, sources, program, imports, bound, used, taken, inside, changed, called - {""}, varying)


def _list_tables(table: symtable.SymbolTable) -> Iterator[symtable.SymbolTable]:
    yield table
    for child in table.get_children():
        yield from _list_tables(child)


def _walk(node: ast.AST, within: str = "") -> Iterator[tuple[ast.AST, str]]:
    """Yield all nodes with what they are in: a function, or else a class, or nothing."""
    yield node, within
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
        within = "function"
    elif isinstance(node, ast.ClassDef):
        within = within or "class"
    for child in ast.iter_child_nodes(node):
        yield from _walk(child, within)


def _find_root(node: ast.AST) -> str:
    """Return the name with which an expression such as `a.b[0].c` begins; of any other, nothing."""
    while isinstance(node, ast.Attribute | ast.Subscript):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""


# -- values ----------------------------------------------------------------------------------------------------------


def _list_values(chosen: list[_Text], entry: Any, known: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return the plain values that an entry holds, and those of globals in functions and classes, if none sets them."""
    own = [each for each in reversed(getattr(entry, "__mro__", ())) if each.__module__ == "__main__"]
    held = {f".{name}": value for each in own or [entry] for name, value in getattr(each, "__dict__", {}).items()}
    for function in [each for each in (entry, *held.values()) if isinstance(each, types.FunctionType)]:
        cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
        held |= {name: _read_closure(cell) for name, cell in cells}
    imported = {name for each in chosen for name in each.imports}
    for word in {word for each in chosen for word in each.inside}:
        root, _, attribute = word.partition(".")
        value = None if root in imported else known.get(root)
        held[word] = getattr(value, "__dict__", {}).get(attribute) if attribute else value
    varying = {name for each in chosen for name in each.varying}
    return sorted(
        (name, repr(value))
        for name, value in held.items()
        if value is not None and name.rpartition(".")[2] not in varying and not name.startswith(("__", ".__"))
        if all(type(each) in _PLAIN for each in (value if isinstance(value, tuple) else (value,)))
    )


def _read_closure(cell: types.CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # nothing has been assigned yet
        return None


def _read_version(module: str) -> str:
    """Return the version of the package that a module is of."""
    names = importlib.metadata.packages_distributions().get(module.partition(".")[0], [])
    return " ".join(f"{name} {importlib.metadata.version(name)}" for name in sorted(set(names)))
