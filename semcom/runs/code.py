"""The identity of what a script or a notebook registers: the text of what it rests on, and the modules it imports.

Of a script, or of the cells of a notebook, these are the statements that register it, those that define what it refers
to by name, directly or not, and those that change something of that; so a run stays what it is whatever else the script
does. Modules of one's own count whole. What no text tells, as a number from the command line, counts by its value.
"""

from __future__ import annotations

import ast
import builtins
import functools
import hashlib
import importlib.metadata
import linecache
import os
import symtable
import sys
import types
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from channels.registry import Place
from semcom.config import ConfigError
from semcom.runs.sources import Code, add_imports, is_own, list_variables, read_source

_PLAIN = (type(None), bool, int, float, complex, str, bytes)
_NUMERIC = ("torch", "numpy", "scipy", "semcom", "channels")
"""Packages of which any change by a script may change a run's numbers."""
_SILENT = {*vars(builtins), "display", "semcom", "channels"} - {"setattr", "delattr", "exec"}
"""Functions, and modules, that change nothing which they are given."""


def read_code(entry: Any, place: Place | None) -> Code:
    """Read what a class, a function or an object of the user's rests on.

    Args:
        entry: of a registry, or a function.
        place: of the statement of a script or a cell that registered it, if one did.

    Raises:
        ConfigError: it was typed into Python itself, which keeps no text.
    """
    name = str(getattr(entry, "__module__", ""))
    file = getattr(sys.modules.get(name), "__file__", None)
    files = {name: Path(file).absolute()} if file and name != "__main__" and is_own(os.path.abspath(file)) else {}
    parts: list[object] = [] if files or name == "__main__" else [_read_version(name)]  # somebody else's
    chosen = _choose_statements(_read_session(place), place) if place else []
    text = "\n".join(sorted({each.text for each in chosen}))
    if place is not None:
        parts += [text or _describe_compiled(place.code), _list_values(chosen, entry, place.known)]
    files = add_imports(files, text=text, package=place.known.get("__package__") or "" if place else "")
    parts += [(module, hashlib.sha256(read_source(path)).hexdigest()) for module, path in files.items()]
    lines: dict[str, frozenset[int] | None] = {str(path): None for path in files.values()}
    for each in chosen:
        lines[each.file] = (lines.get(each.file) or frozenset()).union(each.lines)
    digest = hashlib.sha256(repr(parts).encode(errors="surrogatepass")).hexdigest()
    return Code(digest, list_variables([text.encode(), *map(read_source, files.values())]), lines)


def find_definition(function: Any) -> Place | None:
    """Return where a script or a cell defines a function; None for one of a module."""
    code = getattr(function, "__code__", None)
    if code is None or function.__module__ != "__main__":
        return None
    return Place(code.co_filename, code.co_firstlineno, function.__globals__, code)


@dataclass(frozen=True)
class _Statement:
    """A statement of a script or a cell: its text without comments, and the names that it has to do with."""

    file: str
    lines: range
    text: str
    imports: Mapping[str, str]
    """Name that an import binds -> the module that it is of."""
    bound: set[str]
    used: set[str]
    taken: set[str]
    """Those of the used ones whose value it takes at once."""
    stored: set[str]
    """Of what it assigns parts."""
    called: set[str]
    """What it is there to call, or to hand over."""
    varying: set[str]
    """Globals and attributes that its functions assign: a run changes them."""


def _read_session(place: Place) -> list[tuple[_Statement, ...]]:
    """Return the statements of the script, or of all executed cells, in which something was registered."""
    shell: Any = sys.modules["IPython"].get_ipython() if "IPython" in sys.modules else None
    cells: dict[str, str] = {}
    if shell is not None and shell.user_ns is place.known:
        names = {
            "".join(linecache.getlines(file)).strip(): file for file in [*linecache.cache, place.file] if is_own(file)
        }
        for text in place.known["In"]:
            name = names.get(text.strip(), "")
            cells = {other: held for other, held in cells.items() if other != name} | {name: text}
    elif os.path.isfile(place.file):
        cells[place.file] = read_source(place.file).decode(errors="replace")
    else:
        cells[place.file] = "".join(linecache.getlines(place.file))
        if place.file == "<stdin>" and not cells[place.file] and hasattr(sys, "ps1"):
            raise ConfigError("what is typed into Python itself leaves no text; use a file or a notebook")
    return [_split(text, file) for file, text in cells.items()]


@functools.lru_cache(maxsize=1024)
def _split(text: str, file: str) -> tuple[_Statement, ...]:
    """Return the statements of a text; one that Python does not take has none."""
    try:
        body = ast.parse(text).body
    except SyntaxError:
        return ()
    scripts = [isinstance(each, ast.If) and "'__main__'" in ast.unparse(each.test) for each in body]
    parts = [getattr(each, "body", []) if script else [each] for each, script in zip(body, scripts, strict=True)]
    return tuple(_describe_statement(node, file) for part in parts for node in part)


def _describe_statement(node: ast.stmt, file: str) -> _Statement:
    text = ast.unparse(node)
    top, *inner = ([*table.get_symbols()] for table in _list_tables(symtable.symtable(text, file, "exec")))
    within = [symbol for table in inner for symbol in table]
    bound = {s.get_name() for s in top if s.is_assigned() or s.is_imported() or s.is_namespace()}
    taken = {s.get_name() for s in top if s.is_referenced()}
    varying = {s.get_name() for s in within if s.is_assigned() and (s.is_declared_global() or s.is_nonlocal())}
    imports, stored, called = dict[str, str](), set[str](), set[str]()
    for at, in_function in _walk(node):
        if isinstance(at, ast.Import | ast.ImportFrom):
            of = "" if isinstance(at, ast.Import) else "." * at.level + (at.module or "")
            imports |= {alias.asname or alias.name.partition(".")[0]: of or alias.name for alias in at.names}
        elif isinstance(at, ast.Attribute | ast.Subscript) and not isinstance(at.ctx, ast.Load):
            names = {_find_root(at), at.attr if isinstance(at, ast.Attribute) else ""}
            varying, stored = (varying | names, stored) if in_function else (varying, stored | {_find_root(at)})
        elif isinstance(at, ast.AugAssign) and isinstance(at.target, ast.Name):
            taken |= {at.target.id}
        elif isinstance(at, ast.Expr) and isinstance(call := at.value, ast.Call) and not in_function:
            roots = {_find_root(each) for each in (call.func, *call.args)}
            called |= roots if _find_root(call.func) not in _SILENT else set()
    first = min([node.lineno, *(each.lineno for each in getattr(node, "decorator_list", ()))])
    lines, used = range(first, (node.end_lineno or first) + 1), taken | {s.get_name() for s in within if s.is_global()}
    return _Statement(file, lines, text, imports, bound, used, taken, stored, called, varying)


def _list_tables(table: symtable.SymbolTable) -> Iterator[symtable.SymbolTable]:
    yield table
    for child in table.get_children():
        yield from _list_tables(child)


def _walk(node: ast.AST, in_function: bool = False) -> Iterator[tuple[ast.AST, bool]]:
    yield node, in_function
    inner = in_function or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
    for child in ast.iter_child_nodes(node):
        yield from _walk(child, inner)


def _find_root(node: ast.AST) -> str:
    """Return the name with which an expression such as `a.b[0].c` begins; of any other, nothing."""
    while isinstance(node, ast.Attribute | ast.Subscript):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""


def _choose_statements(cells: list[tuple[_Statement, ...]], place: Place) -> list[_Statement]:
    """Return the statements on which that at a place rests."""
    every = [each for cell in cells for each in cell]
    imports = {name: of for each in every for name, of in each.imports.items() if name in each.bound}
    tops = {name: of.partition(".")[0] for name, of in imports.items() if not of.startswith(".")}
    numeric = {name for name, top in tops.items() if top in _NUMERIC}
    files = {name: getattr(sys.modules.get(top), "__file__", None) for name, top in tops.items()}
    foreign = {name for name, file in files.items() if not is_own(file)}
    chosen = [each for each in every if each.file == place.file and place.line in each.lines]
    needed, before = set[str](), -1
    while len(chosen) > before:
        before = len(chosen)
        needed.update(*(each.used for each in chosen))
        found = {id(each) for name in needed for each in _find_bindings(cells, name)} | {id(each) for each in chosen}
        changes = [s for s in every if s.stored & (needed - foreign | numeric) or s.called & (needed - foreign)]
        found |= {id(each) for each in changes}
        chosen = [each for each in every if id(each) in found]
    return chosen


def _find_bindings(cells: list[tuple[_Statement, ...]], name: str) -> Iterator[_Statement]:
    """Yield the statements that bind a name: those of the last cell that does, and those that it goes on from."""
    for cell in reversed(cells):
        found = [each for each in cell if name in each.bound]
        yield from found
        if any(name not in each.taken for each in found):
            return


def _describe_compiled(code: types.CodeType) -> tuple[object, ...]:
    """Return what compiled code does, where its text is not known, as of `python -c`."""
    held = [_describe_compiled(each) if isinstance(each, types.CodeType) else each for each in code.co_consts]
    plain = [sorted(each, key=repr) if isinstance(each, frozenset) else each for each in held]
    return code.co_code, code.co_exceptiontable, code.co_names, code.co_varnames, code.co_freevars, repr(plain)


def _list_values(chosen: list[_Statement], entry: Any, known: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return the plain values that statements refer to, or a class or a closure holds, if no function sets them."""
    held = dict(vars(entry)) if isinstance(entry, type) else {"": entry}
    for function in [each for each in held.values() if isinstance(each, types.FunctionType)]:
        cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
        held |= {name: _read_cell(cell) for name, cell in cells}
    for name in {name for each in chosen for name in each.bound - each.imports.keys()}:
        held[name] = known.get(name)
        if not isinstance(held[name], type | types.FunctionType):  # such as what argparse gives
            parts = {attribute: f"{name}.{attribute}" for attribute in getattr(held[name], "__dict__", ())}
            used = {word for word in parts if any(parts[word] in each.text for each in chosen)}
            held |= {word: getattr(held[name], word) for word in used}
    varying = {name for each in chosen for name in each.varying}
    return sorted(
        (name, repr(value))
        for name, value in held.items()
        if name not in varying and not name.startswith("__")
        if all(type(each) in _PLAIN for each in (value if isinstance(value, tuple) else (value,)))
    )


def _read_cell(cell: types.CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # nothing has been assigned yet
        return None


def _read_version(module: str) -> str:
    """Return the version of the package that a module is of."""
    names = importlib.metadata.packages_distributions().get(module.partition(".")[0], [])
    return " ".join(f"{name} {importlib.metadata.version(name)}" for name in sorted(set(names)))
