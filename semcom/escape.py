"""Texts that anybody may have written, as each medium takes them: terminals, Markdown, LaTeX, HTML and CSV.

A function for each medium: all content of a folder or an archive passes one of them before it is shown.
"""

from __future__ import annotations

import html
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd

_LATEX = str.maketrans(
    {
        **{sign: f"\\{sign}" for sign in "&%$#_{}"},
        "~": r"\textasciitilde{}",
        "^": r"\textasciicircum{}",
        "\\": r"\textbackslash{}",
        "<": r"\textless{}",
        ">": r"\textgreater{}",
        "±": r"$\pm$",
        "|": r"\textbar{}",
        **{sign: f"{{{sign}}}" for sign in "[]"},  # at the beginning of a row they would be an option of the last one
        "\n": " ",
    }
)
"""Characters that LaTeX takes for something else -> how they are written."""
_FORMULA = re.compile(r"[=+\-@\t\r\n＝＋－＠]")  # noqa: RUF001 - spreadsheets take the wide signs for the others
_SPLIT = re.compile(rf";(?=\s*{_FORMULA.pattern})")
_NUMBERS = re.compile(r"[-+]?(\d[\d._]*|\.\d+|inf|nan)(e[-+]?\d+)?(,[-+]?(\d[\d._]*|\.\d+)(e[-+]?\d+)?)*", re.I)


_NUMBERED = frozenset({float, int, bool, type(None)})


def escape_controls(text: str, kept: str = "\n") -> str:
    r"""Return a text in which each sign that a terminal would obey, or not show, is spelled out.

    Such are escape sequences, carriage returns, NUL, and marks that turn the direction of what follows. Line breaks, or
    others that are `kept`, stay as they are.

    Example:
        >>> escape_controls("fed\x1b[2Javg")
        'fed\\x1b[2Javg'
    """
    if text.isprintable():
        return text
    return "".join(sign if sign.isprintable() or sign in kept else ascii(sign)[1:-1] for sign in text)


def escape_texts(value: Any) -> Any:
    """Remove control characters from the texts in plain values, also from names of tables.

    Content of a run's folder or an archive passes this function once, so that no later output has any.
    """
    return map_texts(value, lambda text: text if text.isprintable() else escape_controls(text, kept=""))


def map_texts(value: Any, change: Callable[[str], Any], levels: int = 100) -> Any:
    """Return plain values with all their texts changed, names of tables among them.

    Levels deeper than semcom ever writes are left out.
    """
    if isinstance(value, str):
        return change(value)
    if isinstance(value, dict | list | tuple) and not levels:
        return "..."
    if isinstance(value, dict):
        return {
            map_texts(name, change): held if type(held) in _NUMBERED else map_texts(held, change, levels - 1)
            for name, held in value.items()
        }
    if isinstance(value, list | tuple):  # mostly long ones of numbers
        whole = {*map(type, value)} <= _NUMBERED
        return type(value)(value if whole else [map_texts(held, change, levels - 1) for held in value])
    return value


def escape_html(text: str) -> str:
    """Escape a text for HTML, and for the labels of Plotly."""
    return html.escape(escape_controls(text), quote=False)


def escape_markdown(text: str) -> str:
    """Escape a text for Markdown: cells, tags and styles."""
    plain = " ".join(escape_controls(text).replace("|", "/").splitlines()).replace("<", "&lt;")
    return re.sub(r"[\\`*\[\]]|(?<!\w)_|_(?!\w)", r"\\\g<0>", plain)


def escape_tags(text: str) -> str:
    """Return a sentence, which may have Markdown's marks of our own, without tags and pictures."""
    return re.sub(r"<(?=[A-Za-z/!?])", "&lt;", escape_controls(text)).replace("![", r"!\[")


def escape_latex(text: str) -> str:
    """Escape a text for LaTeX."""
    return escape_controls(text).translate(_LATEX)


def format_csv(frame: pd.DataFrame, **more: Any) -> str:
    """Return a table as CSV in which no cell is a formula to a spreadsheet; `more` as of `DataFrame.to_csv`.

    A text that begins like one, and is no number or list of numbers, has an apostrophe before it, also after a
    semicolon, which spreadsheets of other countries take for the end of a cell.
    """
    texts = frame.map(_escape_cell).rename(columns=_escape_cell)
    return texts.to_csv(index=False, lineterminator="\n", **more)


def _escape_cell(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    if _NUMBERS.fullmatch(value):
        return value
    return "'" * bool(_FORMULA.match(value)) + _SPLIT.sub(";'", escape_controls(value))
