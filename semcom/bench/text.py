"""Tables for a terminal."""

from __future__ import annotations

from collections.abc import Sequence

Cells = tuple[str, ...]


def aligned(rows: Sequence[Cells], indent: str = "   ") -> list[str]:
    """Rows of cells as lines: the first column to the left, the others to the right.

    A row with fewer cells than the first one ends with a text, which takes the room that it needs.
    """
    columns = len(rows[0])
    cells = [row if len(row) == columns else row[:-1] for row in rows]
    widths = [max(len(row[i]) for row in cells if i < len(row)) for i in range(columns)]
    lines = []
    for row, own in zip(rows, cells, strict=True):
        padded = [own[0].ljust(widths[0]), *(c.rjust(w) for c, w in zip(own[1:], widths[1:], strict=False))]
        lines.append((indent + "  ".join([*padded, *row[len(own) :]])).rstrip())
    return lines


def number(value: float | None, form: str) -> str:
    """A number, or a dash where there is none."""
    return "-" if value is None else format(value, form)


def mebibytes(value: int | None) -> str:
    """Bytes as MiB."""
    return "-" if value is None else f"{value / 2**20:,.0f}"


def plural(count: int, noun: str) -> str:
    """A number with what it counts."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
