"""Error messages for fields and values in a wrong place of a configuration, each with the right place."""

from __future__ import annotations

import dataclasses
import difflib
import typing
from typing import Any

from semcom.config.declared import declared_types
from semcom.config.errors import show_value


def describe_misplaced_field(cls: type, prefix: str, name: Any, value: Any) -> str:
    """Describe a name that is no field of a section.

    Args:
        cls: the section's dataclass.
        prefix: the section, as it begins the message.
        name: the given name, a text or not.
        value: its value.
    """
    known = [f.name for f in dataclasses.fields(cls)]
    if not isinstance(name, str):
        return f"{prefix}{show_value(name)}: no such field; known are {', '.join(known)}"
    near = difflib.get_close_matches(name, known, n=1)
    hint = f"did you mean {near[0]!r}? " if near else _find_right_place(cls, name, value)
    return f"{prefix}{name}: no such field; {hint}known are {', '.join(known)}"


def _find_right_place(cls: type, name: str, value: Any) -> str:
    """Describe the section of `cls` that a name belongs to, or the options. Empty for an unknown name."""
    given = f"{{{name!r}: {show_value(value)}}}"
    for field in dataclasses.fields(cls):
        section = field.default_factory
        if dataclasses.is_dataclass(section) and name in (f.name for f in dataclasses.fields(section)):
            return f"write {field.name}={given}; "
    table = next((f.name for f in dataclasses.fields(cls) if f.name in ("hyper", "options")), None)
    return f"an option is written {table}={given}; " if table else ""


def describe_misplaced_section(cls: type, name: str, value: Any) -> str:
    """Describe a value in the place of a section, such as the text that its first field takes."""
    first = dataclasses.fields(cls)[0].name
    hint = declared_types(cls)[first]
    accepted = (hint, *typing.get_args(hint))
    texts = [text for text in accepted if isinstance(text, str)]
    # A text of a user's own class may refuse to be compared: `str` does it without asking.
    taken = isinstance(value, str) and (str in accepted or any(str.__eq__(text, value) for text in texts))
    instead = f"; write {cls.__name__}({first}={value!r}) or {{{first!r}: {value!r}}}" if taken else ""
    return f"{name}: {show_value(value)} is not a table of fields{instead}"
