"""The figures by name. A new one is a `Drawing` or a `Measured` in a file beside this and a line here."""

from __future__ import annotations

import math

from channels.registry import Registry
from experiments.base import Experiment, field_of
from figures.base import AnyFigure, Drawing, Measured
from semcom.config import ConfigError
from semcom.registry import find

FIGURES: Registry[AnyFigure] = Registry(
    "figure",
    {
        "arms-small": "figures.methods:ARMS_SMALL",
        "demo": "figures.accuracy_snr:DEMO",
        "letter-fig2b": "figures.accuracy_snr:LETTER_FIG2B",
        "wireless-baselines": "figures.baselines:WIRELESS_BASELINES",
        "channel-ber": "figures.channel_ber:CHANNEL_BER",
        "channel-snr": "figures.channel_snr:CHANNEL_SNR",
    },
    base="figures.base:AnyFigure",
    made=True,
)
"""Figures by name."""


def drawing(name: str) -> AnyFigure:
    """Return the figure called `name`.

    Raises:
        ConfigError: there is none; the known ones are listed.
    """
    return find(FIGURES, name)


def drawing_of(source: Experiment, scale: str | None = None) -> Drawing | None:
    """Return the figure that is drawn after a sweep of an experiment at a scale (None: the first), if it has one.

    Raises:
        ConfigError: there is no such figure, it shows something else, or it has no place for a value of the axis.
    """
    if source.figure is None:
        return None
    chosen = drawing(source.figure)
    if isinstance(chosen, Measured) or chosen.experiment != source.name:
        shown = "measures its own numbers" if isinstance(chosen, Measured) else f"shows {chosen.experiment}"
        raise ConfigError(f"figure: {source.figure} of experiment {source.name} {shown}; register one of its own")
    if chosen.axis != source.axis:
        wanted = f"experiment {source.name} varies {source.axis}"
        raise ConfigError(f"figure: {source.figure} shows {chosen.axis}, and {wanted}; take a figure of that field")
    values = [field_of(config, source.axis) for config in source.grid(source.scale(scale))]
    unplaced = [value for value in values if chosen.numeric and not _is_number(value)]
    if unplaced:
        raise ConfigError(f"figure: {source.figure} cannot place {source.axis} {unplaced[0]!r}; give finite numbers")
    return chosen


def _is_number(value: object) -> bool:
    """Return whether a value, of any type, is a finite number or the text of one."""
    try:
        return math.isfinite(float(str(value)))
    except ValueError:
        return False
