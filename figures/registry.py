"""The figures by name. A new one is a `Drawing` in a file beside this and a line here."""

from __future__ import annotations

from channels.registry import Registry
from figures.base import Drawing
from semcom.registry import find

FIGURES: Registry[Drawing] = Registry(
    "figure",
    {
        "demo": "figures.accuracy_snr:DEMO",
        "letter-fig2b": "figures.accuracy_snr:LETTER_FIG2B",
    },
)
"""Name -> Drawing."""


def drawing(name: str) -> Drawing:
    """The figure called `name`; ConfigError lists the known ones."""
    return find(FIGURES, name)
