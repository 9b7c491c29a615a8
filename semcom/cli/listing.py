"""What `semcom list methods [NAME]` prints: what a method shares, keeps and sends, and its hyperparameters."""

from __future__ import annotations

import ast
import contextlib
import dataclasses
import inspect
import itertools
import shutil
import textwrap
import typing
from typing import Any

from semcom.config.checks import wording
from semcom.methods.registry import METHODS
from semcom.registry import find

if typing.TYPE_CHECKING:
    from semcom.methods.base import Method

WIDEST = 120
"""Columns of text in a terminal that has more of them, and where there is none."""

LEGEND = "theta: encoder; phi: head; w: both. `semcom list methods NAME` tells more."
"""Below the overview: the papers' symbols."""


def overview() -> str:
    """All methods: citation, what is shared, personal and sent, and hyperparameters with their defaults."""
    margin = max(map(len, METHODS.names())) + 2
    lines: list[str] = []
    for name in METHODS.names():
        method = METHODS.get(name)
        traits = "; ".join(f"{key}: {text}" for key, text in _traits(method).items())
        defaults = ", ".join(f"{key}={value}" for key, value in _defaults(method.Hyper).items())
        lines += _hanging(f"{name:<{margin}}", _paper(method))
        lines += [line for text in (traits, defaults) if text for line in _hanging(" " * margin, text)]
    return "\n".join([*lines, "", *_hanging("", LEGEND)])


def details(name: str) -> str:
    """One method: the same, with its paper's setting, and what each hyperparameter means and may be.

    Raises ConfigError if no method is called so.
    """
    method = find(METHODS, name)
    preset = ", ".join(f"{key} {_shown(value)}" for key, value in method.preset.items())
    facts = {"paper": _paper(method), **_traits(method), "preset": preset or "none: the common defaults"}
    head = _hanging(f"{name}  ", inspect.cleandoc(method.__doc__ or "").partition("\n\n")[0])
    body = [line for key, text in facts.items() for line in _hanging(f"{key:<10}", text)]
    return "\n".join([*head, "", *body, "", *_hyperparameters(method.Hyper)])


def docstrings(cls: type) -> dict[str, str]:
    """What stands below each field of a dataclass or of its bases, as one line; nothing where there is no source."""
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


def _hyperparameters(hyper: type) -> list[str]:
    """Two lines for each: its default and what it may be; what it means."""
    defaults, known, types = _defaults(hyper), docstrings(hyper), typing.get_type_hints(hyper)
    if not defaults:
        return ["no hyperparameters"]
    lines = ["hyperparameters (--method.NAME) and their defaults:"]
    for name, value in defaults.items():
        optional = " or None" if type(None) in typing.get_args(types[name]) else ""
        lines += _hanging("  ", f"{name} = {value} ({wording(types[name])}{optional})")
        lines += _hanging("      ", known[name]) if name in known else []
    return lines


def _paper(method: type[Method]) -> str:
    """The citation; a plugin may have none."""
    return getattr(method, "paper", "") or "-"


def _traits(method: type[Method]) -> dict[str, str]:
    """What is common to the clients, what each keeps, what crosses the air."""
    return {"shared": method.shares or "-", "personal": method.personal or "-", "sent": method.sends or "-"}


def _defaults(hyper: type) -> dict[str, str]:
    """Hyperparameter -> its default, as the command line spells it."""
    start = hyper()
    return {f.name: _shown(getattr(start, f.name)) for f in dataclasses.fields(start)}


def _shown(value: Any) -> str:
    """A value as the command line spells it; several of them with spaces between."""
    return " ".join(map(_shown, value)) if isinstance(value, tuple) else str(value)


def _hanging(start: str, text: str) -> list[str]:
    """Lines that fit the terminal: the text right of `start`."""
    width = min(WIDEST, shutil.get_terminal_size((WIDEST, 24)).columns)
    indent = " " * len(start)
    return textwrap.wrap(
        text, width, initial_indent=start, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    ) or [start.rstrip()]
