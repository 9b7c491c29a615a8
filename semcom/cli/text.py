"""Text that fits the terminal."""

from __future__ import annotations

import shutil
import textwrap

WIDEST = 120
"""Columns of running text where the terminal has more, or where there is none."""


def count_terminal_columns() -> int:
    """Count the columns of the terminal."""
    return shutil.get_terminal_size((WIDEST, 24)).columns


def hang_text(start: str, text: str) -> list[str]:
    """Wrap a text for the terminal, right of `start`."""
    width, indent = min(WIDEST, count_terminal_columns()), " " * len(start)
    return textwrap.wrap(
        text, width, initial_indent=start, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    ) or [start.rstrip()]


def wrap_paragraphs(text: str) -> str:
    """Wrap each paragraph of a docstring for the terminal, with an empty line between two."""
    return "\n\n".join("\n".join(hang_text("", part)) for part in text.split("\n\n"))
