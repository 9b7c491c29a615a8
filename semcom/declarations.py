"""Docstrings and constants of registered classes, read from their files: importing these would load torch."""

from __future__ import annotations

import ast
import functools
import itertools
import types
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from semcom.channels.registry import Registry


def read_declared_title(place: str) -> str | None:
    """Read the first docstring line of the class or function "module:attribute"; None for any other value."""
    found = _find_definition(place)
    return (ast.get_docstring(found) or "").partition("\n")[0] if isinstance(found, KINDS) else None


@functools.cache
def read_declared_constants(place: str) -> Mapping[str, Any]:
    """Read the plain values that a class, "module:Class", and its bases set, by name."""
    found = dict[str, Any]()
    for module, node in _list_lineage(place):
        for statement in node.body:
            match statement:
                case ast.Assign(targets=[ast.Tuple(elts=names)], value=ast.Tuple(elts=values)):
                    found |= {ast.unparse(n): _evaluate(module, value) for n, value in zip(names, values, strict=True)}
                case ast.Assign(targets=[ast.Name(id=name)], value=value):
                    found[name] = _evaluate(module, value)
                case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value):
                    found[name] = _evaluate(module, value)
    return found


def describe_entry(registry: Registry[Any], name: str) -> Any:
    """Find an entry of a registry, or, if it ships, the plain values that it and its bases set, as attributes."""
    place = registry.place(name)
    return registry.get(name) if place is None else types.SimpleNamespace(**read_declared_constants(place))


def read_declared_fields(place: str, inner: str) -> dict[str, tuple[Any, str]]:
    """Read the default of each field of a dataclass in a class and its bases, and the docstring below it as one line.

    Args:
        place: "module:Class".
        inner: name of the dataclass.
    """
    found = dict[str, tuple[Any, str]]()
    of_each = [(module, each) for module, node in _list_lineage(place) for each in node.body]
    own = [(module, each) for module, each in of_each if isinstance(each, ast.ClassDef) and each.name == inner]
    for where, node in (one for module, each in own for one in (*_list_bases(module, each), (module, each))):
        for statement, below in itertools.zip_longest(node.body, node.body[1:]):
            match statement:
                case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value):
                    said = isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant) and below.value.value
                    text = " ".join(str(said or "").split())
                    if not ast.unparse(statement.annotation).startswith("ClassVar"):
                        found[name] = _evaluate(where, value), text
    return found


def _list_lineage(place: str) -> list[tuple[str, ast.ClassDef]]:
    """List the bases of a class, then the class itself, each with its module."""
    node, module = _find_definition(place), place.partition(":")[0]
    if not isinstance(node, ast.ClassDef):
        return []
    return [*_list_bases(module, node), (module, node)]


def _list_bases(module: str, node: ast.ClassDef) -> list[tuple[str, ast.ClassDef]]:
    """List what a class of a module inherits from, each with its module."""
    bases = [base.id for base in reversed(node.bases) if isinstance(base, ast.Name)]
    return [one for base in bases for one in _list_lineage(_locate_definition(module, base))]


def _evaluate(module: str, value: ast.expr) -> Any:
    """Evaluate a literal, a quotient of literals, or a constant of a module; None for anything else."""
    match value:
        case ast.Name(id=name):
            where = _locate_definition(module, name)
            found = _find_definition(where)
            return _evaluate(where.partition(":")[0], found) if isinstance(found, ast.expr) else None
        case ast.BinOp(left=left, op=ast.Div(), right=right):
            return ast.literal_eval(left) / ast.literal_eval(right)
    try:
        return ast.literal_eval(value)
    except ValueError:
        return None


KINDS = ast.ClassDef, ast.FunctionDef


def _find_definition(place: str) -> ast.ClassDef | ast.FunctionDef | ast.expr | None:
    """Find the class, function or value that "module:attribute" names; None if its file has none."""
    module, _, name = place.partition(":")
    for node in _parse(module).body:
        if isinstance(node, KINDS) and node.name == name:
            return node
        if isinstance(node, ast.Assign) and [ast.unparse(target) for target in node.targets] == [name]:
            return node.value
    return None


def _locate_definition(module: str, name: str) -> str:
    """Find where a name of a module is defined, as "module:name"."""
    for node in _parse(module).body:
        if isinstance(node, ast.ImportFrom) and name in [alias.asname or alias.name for alias in node.names]:
            return f"{node.module}:{name}"
    return f"{module}:{name}"


@functools.cache
def _parse(module: str) -> ast.Module:
    """Parse a module without importing it; the tree is empty for a module without a file."""
    spec = find_spec(module)
    file = None if spec is None or not spec.has_location else spec.origin
    return ast.parse(Path(file).read_text(encoding="utf-8") if file else "")
