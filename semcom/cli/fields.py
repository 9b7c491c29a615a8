"""The fields of dataclasses as people see them: the docstrings below them, their defaults, and their flags."""

from __future__ import annotations

import ast
import contextlib
import copy
import dataclasses
import functools
import inspect
import itertools
import re
import textwrap
import typing
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Annotated, Any, TypeGuard

import tyro

from semcom.config import FinishConfig
from semcom.config.options import spell_option

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

_OPEN = re.compile(r"\s*\(None: ((?:[^()]|\([^()]*\))*)\)")
"""Pattern of the meaning of None in a docstring."""

HIDDEN = ("method", "contents")
"""Fields that are no flags: the first word of the command line is the method, and `semcom.resolve` reads contents."""
PLUGIN = Annotated[tyro.conf.UseAppendAction[tuple[str, ...]], tyro.conf.arg(name="plugin")]
"""Type of a flag that is given once for each of several plug-ins."""
TRUST = tyro.conf.FlagCreatePairsOff[bool]
"""Type of the flag that lets what stored results name be executed."""
REPEATED = {"plugins": PLUGIN}
ALIASES: Mapping[type, Mapping[str, str]] = {FinishConfig: {"kind": "--finish"}}
"""Section -> its field -> a shorter flag for it."""


@functools.cache
def read_field_docstrings(cls: type) -> Mapping[str, str]:
    """Read the docstring below each field of a dataclass or its bases, as one line; empty without a source."""
    found: dict[str, str] = {}
    for base in filter(dataclasses.is_dataclass, reversed(cls.__mro__)):
        with contextlib.suppress(OSError, TypeError, SyntaxError):
            tree = ast.parse(textwrap.dedent(inspect.getsource(base))).body[0]
            assert isinstance(tree, ast.ClassDef)
            for field, below in itertools.pairwise(tree.body):
                match field, below:
                    case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                        found[name] = " ".join(text.split())
    return found


def show_field_value(value: object) -> str:
    """Format a value as the command line spells it, long numbers shortened, several with spaces between."""
    if isinstance(value, float) and len(str(value)) > 12:
        return f"{value:.4g}"
    return " ".join(map(show_field_value, value)) if isinstance(value, tuple) else str(value)


def explain_field(value: object, text: str) -> tuple[str, str]:
    """Split the docstring of a field into its explanation and its default, with the meaning of None for None."""
    found = _OPEN.search(text) if value is None else None
    if found is None:
        return text, "none" if value is None else show_field_value(value) or "none"
    return text.replace(found.group(), ""), found.group(1)


def is_dataclass_record(value: object) -> TypeGuard[DataclassInstance]:
    """Check whether a value is an instance of a dataclass."""
    return dataclasses.is_dataclass(value) and not isinstance(value, type)


def make_field_flags(
    part: DataclassInstance, extra: Mapping[str, tuple[Any, Any]] | None = None, hidden: Collection[str] = ()
) -> Any:
    """Make the flags of a dataclass instance: a similar instance that tyro can read, with its values as defaults.

    Every field carries its explanation and its default. The `options` of a section are flags of the section itself.
    The metadata of a field that holds a section may name some of its fields `hidden`: they are no flags.

    Args:
        part: the instance.
        extra: further flags, name -> (type, default).
        hidden: fields that are no flags.
    """
    cls: type = type(part)
    known, hints = read_field_docstrings(cls), typing.get_type_hints(cls, include_extras=True)
    made: list[tuple[str, Any, Any]] = []
    for field in dataclasses.fields(part):
        value = getattr(part, field.name)
        if is_dataclass_record(value):
            inner = make_field_flags(value, hidden=field.metadata.get("hidden", ()))
            name = "" if field.name == "options" else field.name
            made.append((field.name, Annotated[type(inner), tyro.conf.arg(name=name)], inner))
        elif field.name in (*HIDDEN, *hidden) or (hints[field.name] is Any and value is None):
            made.append((field.name, Annotated[Any, tyro.conf.Suppress], value))
        else:
            text, default = explain_field(value, known.get(field.name, ""))
            shorter = ALIASES.get(cls, {}).get(field.name)
            aliases = None if shorter is None else (shorter,)
            shape = tyro.conf.arg(help=text, help_behavior_hint=f"(default: {default})", aliases=aliases)
            made.append((field.name, Annotated[REPEATED.get(field.name, hints[field.name]), shape], value))
    made += [(name, *spec) for name, spec in (extra or {}).items()]
    entries = [
        (n, hint, dataclasses.field(default_factory=functools.partial(copy.copy, value))) for n, hint, value in made
    ]
    # Without a file of its own, as a built-in has none: tyro would search whole modules for the source of each class.
    own = {"__doc__": inspect.cleandoc(cls.__doc__ or ""), "__module__": "builtins"}
    return dataclasses.make_dataclass(cls.__name__, entries, frozen=True, namespace=own)()


def read_flags(part: DataclassInstance, parsed: DataclassInstance) -> Any:
    """Copy `part` with the values of its parsed flags."""
    values = {}
    for field in dataclasses.fields(part):
        before, value = getattr(part, field.name), getattr(parsed, field.name)
        values[field.name] = read_flags(before, value) if is_dataclass_record(before) else value
    return type(part)(**values)


def name_flags(part: DataclassInstance, prefix: str = "--") -> list[str]:
    """Spell the flags that `make_field_flags` made."""
    found: list[str] = []
    for field in dataclasses.fields(part):
        value, hint = getattr(part, field.name), typing.get_type_hints(type(part), include_extras=True)[field.name]
        given = [a.name for a in getattr(hint, "__metadata__", ()) if getattr(a, "name", None) is not None]
        name = (given or [field.name])[0]
        if is_dataclass_record(value):
            found += name_flags(value, f"{prefix}{spell_option(name)}." if name else prefix)
        elif tyro.conf.Suppress not in getattr(hint, "__metadata__", ()):
            found.append(prefix + spell_option(name))
    return found
