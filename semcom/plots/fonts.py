"""Fonts for all texts of a figure: those of the style, then installed fonts with the missing characters."""

from __future__ import annotations

import logging
from contextlib import suppress
from functools import cache

from matplotlib.figure import Figure
from matplotlib.font_manager import findfont, fontManager, get_font
from matplotlib.text import Text

LOG = logging.getLogger(__name__)
SHOWN = 10
"""Characters that a line names."""


def choose_fonts(figure: Figure) -> None:
    """Give each text of a figure the fonts that its characters need, and warn of characters in no installed font."""
    for text in figure.findobj(Text):
        there = frozenset[int]().union(*(_list_characters(findfont(name)) for name in text.get_fontfamily()))
        lacking = frozenset(ord(c) for c in text.get_text() if c.isprintable() and not c.isspace()) - there
        if lacking and (families := _find_families(lacking)):
            text.set_fontfamily([*text.get_fontfamily(), *families])


@cache
def _find_families(wanted: frozenset[int]) -> tuple[str, ...]:
    """Find as few installed families as have these characters, those with most of them first."""
    has = {font.name: wanted & _list_characters(font.fname) for font in fontManager.ttflist if font.style == "normal"}
    left, families = set(wanted), list[str]()
    while left and (best := max(sorted(has), key=lambda name: len(has[name] & left), default="")):
        if not has[best] & left:
            break
        families.append(best)
        left -= has[best]
    if left:
        _warn_of_boxes(frozenset(left))
    return tuple(families)


@cache
def _warn_of_boxes(characters: frozenset[int]) -> None:
    """Warn, once in a process, of characters in no installed font."""
    some = " ".join(map(chr, sorted(characters)[:SHOWN]))
    LOG.warning("no installed font has %s%s: boxes in figures", some, " ..." if len(characters) > SHOWN else "")


@cache
def _list_characters(path: str) -> frozenset[int]:
    with suppress(Exception):  # of a font that cannot be read, or has bitmaps alone
        return frozenset(get_font(path).get_charmap())
    return frozenset()
