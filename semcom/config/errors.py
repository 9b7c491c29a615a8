"""The two ways in which semcom fails: a wrong request, and work that cannot be done. Each says so in one line."""

from __future__ import annotations

import re
from typing import Any

from semcom.escape import escape_controls

LONGEST, LONGEST_VALUE = 1000, 200
"""Characters that are shown of a line, which may list many names, and of a value in it; of more the middle is left
out."""


class ConfigError(ValueError):
    """A request that cannot be met: one line that names the field, the value and what would be accepted.

    Attributes:
        field: what is wrong, by its name in Python: a field of a configuration or an argument, with which the line
            begins. Empty where the line is about no single one.

    Example:
        >>> import semcom
        >>> try:
        ...     semcom.resolve(semcom.RunConfig("fedavg", train={"batch_size": 0}))
        ... except semcom.ConfigError as error:
        ...     print(error.field, "|", error)
        train.batch_size | train.batch-size: 0 is not a whole number of at least 1
    """

    def __init__(self, message: str) -> None:
        super().__init__(line := _squeeze_error_line(message))
        named = re.match(r"(?:--)?([\w.-]+)(?:=\S*)?: ", line)
        self.field = named[1].replace("-", "_") if named else ""


class NoEffect(ConfigError):
    """A setting that would do nothing beside the others of a request, and is no default.

    Attributes:
        fields: the field and, where two exclude each other, the other one.
    """

    def __init__(self, message: str, *others: str) -> None:
        super().__init__(message)
        self.fields = (self.field, *others)


class RunError(RuntimeError):
    """A failure of the work itself (divergence, a full disk): the request was fine."""

    def __init__(self, message: str) -> None:
        super().__init__(_squeeze_error_line(message))


def show_value(value: Any) -> str:
    """Return a value as Python writes it, or what it is an instance of where it cannot be written."""
    try:
        return _leave_out_middle(repr(value), LONGEST_VALUE)
    except Exception:  # of a class of the user's, or of a number of thousands of digits, or of too deep a list
        return f"a value of type {type(value).__name__} that cannot be written"


def one_line(error: object) -> str:
    """Return an error's message on one line; the name of its type where it has none."""
    return _squeeze_error_line(" ".join(str(error).split())) or type(error).__name__


def _squeeze_error_line(message: str) -> str:
    """Return a message, which may quote what anybody wrote, as one line that every terminal can show."""
    text = " ".join(message.splitlines())
    text = re.sub(rf"\S{{{LONGEST_VALUE},}}", lambda word: _leave_out_middle(word[0], LONGEST_VALUE), text)
    text = _leave_out_middle(text, LONGEST)
    return escape_controls(text)


def _leave_out_middle(text: str, longest: int) -> str:
    return text if len(text) <= longest else f"{text[: longest // 2]} ... {text[-longest // 2 :]}"
