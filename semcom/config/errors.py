"""The two ways in which semcom fails, each with a message of one line: a wrong request, and failed work."""

from __future__ import annotations

import re
from typing import Any

from semcom.escape import escape_controls

LONGEST, LONGEST_VALUE = 1000, 200
"""Characters of a line, which may list many names, and of a value in it; the middle of longer ones is left out."""


class ConfigError(ValueError):
    """A request that cannot be met: one line that names the field, the value and accepted values.

    Attributes:
        field: the wrong field of a configuration, or argument, by its name in Python, with which the line begins. Empty
            for an error that concerns several.

    Example:
        >>> import semcom
        >>> try:
        ...     semcom.resolve(semcom.RunConfig("fedavg", train={"batch_size": 0}))
        ... except semcom.ConfigError as error:
        ...     print(error.field, "|", error)
        train.batch_size | train.batch-size: 0 is not a whole number of at least 1
    """

    def __init__(self, message: str) -> None:
        super().__init__(line := _squeeze(message))
        named = re.match(r"(?:--)?([\w.-]+)(?:=\S*)?: ", line)
        self.field = named[1].replace("-", "_") if named else ""


class NoEffect(ConfigError):
    """A setting that is not the default and has no effect beside the others of a request.

    Attributes:
        fields: the field and, if two exclude each other, the other field.
    """

    def __init__(self, message: str, *others: str) -> None:
        super().__init__(message)
        self.fields = (self.field, *others)


class RunError(RuntimeError):
    """A failure of the work itself (divergence, a full disk): the request was fine."""

    def __init__(self, message: str) -> None:
        super().__init__(_squeeze(message))


def show_value(value: Any) -> str:
    """Format a value as Python does, or name its type if that fails."""
    try:
        return _leave_out_middle(repr(value), LONGEST_VALUE)
    except Exception:  # of a class of the user's, or of a number of thousands of digits, or of too deep a list
        return f"a value of type {type(value).__name__} that cannot be written"


def shorten_error(error: object) -> str:
    """Format an error's message on one line, or name its type if it has none."""
    return _squeeze(" ".join(str(error).split())) or type(error).__name__


def _squeeze(message: str) -> str:
    """Fit a message, with quotes from any source in it, into one line that every terminal can show."""
    text = " ".join(message.splitlines())
    text = re.sub(rf"\S{{{LONGEST_VALUE},}}", lambda word: _leave_out_middle(word[0], LONGEST_VALUE), text)
    text = _leave_out_middle(text, LONGEST)
    return escape_controls(text)


def _leave_out_middle(text: str, longest: int) -> str:
    return text if len(text) <= longest else f"{text[: longest // 2]} ... {text[-longest // 2 :]}"
