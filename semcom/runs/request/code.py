"""The identity of code that a script or a notebook registers: the text of that script or those cells, and imports.

A script counts as a whole, except for its part under `if __name__ == "__main__":` if that only calls. In a notebook
those cells count that register the code, that bind names to which it refers, directly or not, or that change such an
object. Modules of one's own count as a whole. Values that no text shows, as a number from the command line, count
themselves.
"""

from __future__ import annotations

import ast
import builtins
import functools
import hashlib
import importlib.metadata
import importlib.util
import linecache
import os
import symtable
import sys
import types
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from semcom.channels.registry import Place, locate_code_source, read_executed_cell
from semcom.config import ConfigError
from semcom.runs.request.sources import Code, add_imported_sources, is_own_file, list_read_variables, read_source

_PLAIN = (type(None), bool, int, float, complex, str, bytes)
_NUMERIC = ("torch", "numpy", "scipy", "semcom")
"""Packages of which any change by a cell may change a run's numbers."""
_SILENT = {*vars(builtins), "display", "get_ipython", "semcom"} - {"setattr", "delattr", "exec"}
"""Functions, and modules, that do not change their arguments."""


def read_code(entry: Any, place: Place | None) -> Code:
    """Collect the code on which a user's class, function or object depends.

    Args:
        entry: of a registry, or a function.
        place: the script or the cell that registered it, if one did.

    Raises:
        ConfigError: its text is not stored, as of `python -c` and of lines typed into Python itself.
    """
    name = str(getattr(entry, "__module__", ""))
    file = getattr(sys.modules.get(name), "__file__", None)
    files = {name: Path(file).absolute()} if file and name != "__main__" and is_own_file(os.path.abspath(file)) else {}
    parts: list[object] = [] if files or name == "__main__" else [_read_version(name)]  # somebody else's
    chosen, others = _choose_texts(place, str(getattr(entry, "__name__", ""))) if place else ([], [])
    text = "\n".join(sorted(each.text for each in chosen))
    if place is not None and name == "__main__" and not text:
        raise ConfigError("what comes by `python -c` or is typed into Python itself leaves no text; use a file")
    if place is not None and text:
        parts += [others, sorted(each.tree for each in chosen), _list_values(chosen, entry, place.known)]
    files = add_imported_sources(files, text=text, package=place.known.get("__package__") or "" if place else "")
    parts += [(module, hashlib.sha256(read_source(path)).hexdigest()) for module, path in files.items()]
    sources = {str(path): frozenset[int]() for path in files.values()}
    sources |= {each.source: each.program for each in chosen}
    digest = hashlib.sha256(repr(parts).encode(errors="surrogatepass")).hexdigest()
    return Code(digest, list_read_variables([text.encode(), *map(read_source, files.values())]), sources)


def find_definition(function: Any) -> Place | None:
    """Find the script or the cell that defines a function; None for a function of a module."""
    code = getattr(function, "__code__", None)
    if code is None or function.__module__ != "__main__":
        return None
    return Place(locate_code_source(code), function.__globals__, read_executed_cell(function.__globals__))


@dataclass(frozen=True)
class _Text:
    """A script, or a cell, and the names of globals that it has to do with."""

    source: str
    """The file, or the cell as it was executed."""
    text: str
    """Its Python."""
    tree: str
    """The same without comments and layout."""
    program: frozenset[int]
    """Lines of a script that do not count."""
    imports: Mapping[str, str]
    """Name that an import binds -> the module that it is of."""
    bound: set[str]
    used: set[str]
    taken: set[str]
    """Used names whose value it reads at once, before it sets any."""
    inside: set[str]
    """The names that its functions and classes take, also with an attribute."""
    changed: set[str]
    """Objects to whose parts it assigns, and globals that a function of it assigns."""
    called: set[str]
    """Objects of which it calls a method, or that it calls or passes on."""
    varying: set[str]
    """Globals and attributes that its functions assign: a run changes them."""


# -- which texts -----------------------------------------------------------------------------------------------------


def _choose_texts(place: Place, name: str) -> tuple[list[_Text], list[tuple[str, str]]]:
    """Choose the script of a place, or the cells on which its cell and a name depend, with modules of others'."""
    if not place.cell:
        return [_read_script(read_source(place.file), place.file)] if os.path.isfile(place.file) else [], []
    cells = place.known["In"] if read_executed_cell(place.known) else []
    here = _read_cell("".join(linecache.getlines(place.file)) or place.cell)
    read = [cell for cell in (here, *map(_read_cell, cells)) if cell is not None]
    every = list({cell.tree: cell for cell in reversed(read)}.values())[::-1]  # in the order of the last execution
    foreign, numeric = _list_foreign_imports(every)
    chosen = [each for each in every if (here and each.tree == here.tree) or "*" in each.imports]
    before, needed = -1, {name}
    while len(chosen) > before:
        before = len(chosen)
        needed.update(*(each.used for each in chosen))
        found = {each.tree for each in chosen}
        found |= {each.tree for word in needed - foreign.keys() for each in _find_bindings(every, word)}
        found |= {each.tree for each in every if each.changed & (needed - foreign.keys() | numeric)}
        found |= {each.tree for each in every if each.called & (needed - foreign.keys())}
        chosen = [each for each in every if each.tree in found]
    return chosen, sorted((name, of) for name, of in foreign.items() if name in needed)


def _list_foreign_imports(texts: list[_Text]) -> tuple[dict[str, str], set[str]]:
    """List the names that imports of others' modules bind, with the module, and those from `_NUMERIC`."""
    imports = {name: of for each in texts for name, of in each.imports.items() if not of.startswith(".")}
    tops = {name: of.partition(".")[0] for name, of in imports.items()}
    files = {name: getattr(sys.modules.get(top), "__file__", None) for name, top in tops.items()}
    foreign = {name: of for name, of in imports.items() if not is_own_file(files[name])}
    return foreign, {name for name, top in tops.items() if top in _NUMERIC}


def _find_bindings(cells: list[_Text], name: str) -> Iterator[_Text]:
    """Yield the last cell that binds a name, and earlier cells that it modifies."""
    for cell in reversed(cells):
        if name in cell.bound:
            yield cell
            if name not in cell.taken:
                return


@functools.lru_cache(maxsize=64)
def _read_script(source: bytes, file: str) -> _Text:
    """Read a script without its part under `if __name__ == "__main__":`, if that defines and changes nothing."""
    text = importlib.util.decode_source(source)
    whole, lines = _describe_text(text, file), text.split("\n")
    for node in ast.parse(text, file).body:
        if not isinstance(node, ast.If) or node.orelse or "__name__ == '__main__'" not in ast.unparse(node.test):
            continue
        program = range(node.lineno, (node.end_lineno or node.lineno) + 1)
        rest = _describe_text("\n".join("" if at in program else line for at, line in enumerate(lines, 1)), file)
        does = _describe_text("\n".join(lines[program.start - 1 : program.stop - 1]), file)
        foreign, numeric = _list_foreign_imports([whole])
        functions = [each for each in ast.parse(rest.text).body if isinstance(each, ast.FunctionDef)]
        pure = {each.name for each in functions if not any(isinstance(at, ast.Global) for at in ast.walk(each))}
        mine = rest.bound - foreign.keys() - pure
        changes = does.changed & (mine | numeric) | does.called & mine | does.bound & rest.inside
        defines = [at for at in ast.walk(node) if isinstance(at, ast.FunctionDef | ast.ClassDef)]
        registers = [at for at in ast.walk(node) if isinstance(at, ast.Attribute) and at.attr == "register"]
        if not (changes or defines or registers or does.imports.keys() - foreign.keys()):
            return replace(rest, program=frozenset(program))
    return whole


@functools.lru_cache(maxsize=4096)
def _read_cell(source: str) -> _Text | None:
    """Read a cell as IPython translates it to Python; None for a cell that is not in Python.

    Magics that execute Python, such as `%%time`, count as that.
    """
    try:
        lines = source.split("\n")
        for node in reversed(ast.parse(source).body):
            call = getattr(node, "value", None)
            if isinstance(call, ast.Call) and ast.unparse(call.func).startswith("get_ipython().run_"):
                words = [each.value for each in call.args if isinstance(each, ast.Constant)]
                if words and words[0] in ("time", "timeit", "capture", "prun"):
                    lines[node.lineno - 1 : node.end_lineno] = str(words[-1]).split("\n")
        return _describe_text("\n".join(lines), source)
    except SyntaxError:
        return None


def _describe_text(text: str, source: str) -> _Text:
    tree = ast.parse(text)
    top, *inner = ([*table.get_symbols()] for table in _list_tables(symtable.symtable(text, "text", "exec")))
    within = [symbol for table in inner for symbol in table]
    declared = {s.get_name() for s in within if s.is_assigned() and s.is_declared_global()}
    bound = {s.get_name() for s in top if s.is_assigned() or s.is_imported() or s.is_namespace()}
    inside = {s.get_name() for s in within if s.is_global()}
    used = inside | {s.get_name() for s in top if s.is_referenced()}
    varying = declared | {s.get_name() for s in within if s.is_assigned() and s.is_nonlocal()}
    imports, changed, called = dict[str, str](), set(declared), set[str]()
    taken, stored = set[str](), set[str]()
    for at, place in _walk(tree):
        outside = place != "function"
        if isinstance(at, ast.Import | ast.ImportFrom):
            of = "" if isinstance(at, ast.Import) else "." * at.level + (at.module or "")
            imports |= {alias.asname or alias.name.partition(".")[0]: of or alias.name for alias in at.names}
        elif isinstance(at, ast.Attribute | ast.Subscript) and not isinstance(at.ctx, ast.Load):
            if outside:
                changed |= {_find_root(at)}
            elif isinstance(at, ast.Attribute):
                varying |= {f"{_find_root(at)}.{at.attr}", f".{at.attr}"}
        elif isinstance(at, ast.Attribute) and place:
            inside |= {f"{_find_root(at)}.{at.attr}"}
        elif isinstance(at, ast.FunctionDef) and any(isinstance(each, ast.Global) for each in ast.walk(at)):
            used |= {at.name}  # whoever calls it binds a global
        if isinstance(at, ast.Call) and outside and isinstance(at.func, ast.Attribute):
            called |= {_find_root(at.func)}
        elif isinstance(at, ast.Expr) and isinstance(call := at.value, ast.Call) and outside:
            given = (call.func, *call.args, *(each.value for each in call.keywords))
            called |= {_find_root(each) for each in given} if _find_root(call.func) not in _SILENT else set()
    for statement in tree.body:
        here = [at for at, place in _walk(statement) if not place]
        names = [at for at in here if isinstance(at, ast.Name)]
        taken |= {at.id for at in names if isinstance(at.ctx, ast.Load)} - stored
        taken |= {_find_root(at.target) for at in here if isinstance(at, ast.AugAssign)} - stored
        stored |= {at.id for at in names if isinstance(at.ctx, ast.Store)}
    kinds = (imports, bound, used, taken, inside, changed, called - {""}, varying)
    return _Text(source, text, ast.dump(tree), frozenset(), *kinds)


def _list_tables(table: symtable.SymbolTable) -> Iterator[symtable.SymbolTable]:
    yield table
    for child in table.get_children():
        yield from _list_tables(child)


def _walk(node: ast.AST, within: str = "") -> Iterator[tuple[ast.AST, str]]:
    """Yield all nodes, each with the kind of scope around it: a function, a class, or an empty text."""
    yield node, within
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
        within = "function"
    elif isinstance(node, ast.ClassDef):
        within = within or "class"
    for child in ast.iter_child_nodes(node):
        yield from _walk(child, within)


def _find_root(node: ast.AST) -> str:
    """Find the name with which an expression such as `a.b[0].c` begins; empty for any other expression."""
    while isinstance(node, ast.Attribute | ast.Subscript):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""


# -- values ----------------------------------------------------------------------------------------------------------


def _list_values(chosen: list[_Text], entry: Any, known: Mapping[str, Any]) -> list[tuple[str, str]]:
    """List the plain values of an entry, and of globals in functions and classes if no text sets them."""
    own = [each for each in reversed(getattr(entry, "__mro__", ())) if each.__module__ == "__main__"]
    held = {f".{name}": value for each in own or [entry] for name, value in getattr(each, "__dict__", {}).items()}
    for function in [each for each in (entry, *held.values()) if isinstance(each, types.FunctionType)]:
        cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
        held |= {name: _read_closure(cell) for name, cell in cells}
    imported = {name for each in chosen for name in each.imports}
    varying = {name for each in chosen for name in each.varying}
    for word in {word for each in chosen for word in each.inside}:
        root, _, attribute = word.partition(".")
        value = None if root in imported else known.get(root)
        if not (isinstance(value, type) and f".{attribute}" in varying):
            held[word] = getattr(value, "__dict__", {}).get(attribute) if attribute else value
    return sorted(
        (name, repr(value))
        for name, value in held.items()
        if value is not None and name not in varying and not name.startswith(("__", ".__"))
        if all(type(each) in _PLAIN for each in (value if isinstance(value, tuple) else (value,)))
    )


def _read_closure(cell: types.CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # nothing has been assigned yet
        return None


def _read_version(module: str) -> str:
    """Read the version of the package that contains a module."""
    names = importlib.metadata.packages_distributions().get(module.partition(".")[0], [])
    return " ".join(f"{name} {importlib.metadata.version(name)}" for name in sorted(set(names)))
