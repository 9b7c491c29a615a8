"""The figures by name: those of installed packages and of plug-ins."""

from __future__ import annotations

import logging
import math
from functools import partial

from semcom.channels.registry import Registry
from semcom.config import ConfigError
from semcom.packages import read_package_catalogue
from semcom.plots.base import Drawing, Measured, NamedFigure
from semcom.registry import find_entry
from semcom.studies.experiment import Experiment

LOG = logging.getLogger(__name__)
FIGURES: Registry[NamedFigure] = Registry(
    "figure",
    {},
    base="semcom.plots.base:NamedFigure",
    made=True,
    catalogue=partial(read_package_catalogue, "semcom.figures"),
)
"""Figures by name."""


def find_drawings_of(source: Experiment, scale: str | None = None) -> list[Drawing]:
    """Find the figures that are drawn after a sweep of an experiment at a scale (None: the first).

    Raises:
        ConfigError: an unknown figure, of another experiment, or without a place for a value of the axis.
    """
    if isinstance(source.figures, str):
        raise ConfigError(f"figures: {source.name} has {source.figures!r}; give a tuple of names")
    return [_find_drawing(source, name, source.scale(scale)) for name in source.figures]


def find_drawings_for(declared: Experiment | None, chosen: Experiment, scale: str) -> list[Drawing]:
    """Find the figures of an experiment that can show the results of a sweep, and warn of the others.

    Args:
        declared: the experiment as registered (None: an undeclared study, without figures).
        chosen: the experiment as swept.
        scale: of both.

    Raises:
        ConfigError: as `find_drawings_of`, about the registered experiment.
    """
    drawn = []
    for name in () if declared is None else [drawing.name for drawing in find_drawings_of(declared, scale)]:
        try:
            drawn.append(_find_drawing(chosen, name, scale))
        except ConfigError as error:
            LOG.warning("one figure is left out (%s)", error)
    return drawn


def _find_drawing(source: Experiment, name: str, scale: str) -> Drawing:
    """Find one figure of an experiment, see `find_drawings_of`."""
    chosen = find_entry(FIGURES, name)
    if isinstance(chosen, Measured) or chosen.experiment != source.name:
        shown = "measures its own numbers" if isinstance(chosen, Measured) else f"shows {chosen.experiment}"
        raise ConfigError(f"figure: {name} of experiment {source.name} {shown}; register one of its own")
    shown = ", ".join(chosen.places) or "no field that varies"
    if source.axis not in chosen.places:
        wanted = f"experiment {source.name} varies {source.axis}"
        raise ConfigError(f"figure: {name} shows {shown}, and {wanted}; take a figure of that field")
    if others := [field for field in source.rows(scale) if field not in chosen.places]:
        wanted = f"experiment {source.name} varies {others[0]} too"
        raise ConfigError(f"figure: {name} shows {shown} alone, and {wanted}; take a figure of both, or none")
    placed = source.values(scale, source.axis) if chosen.plot.kind == "lines" and chosen.plot.x == source.axis else []
    if unplaced := [value for value in placed if not _is_number(value)]:
        raise ConfigError(f"figure: {name} cannot place {source.axis} {unplaced[0]!r}; give finite numbers")
    return chosen


def _is_number(value: object) -> bool:
    """Check whether a value, of any type, is a finite number or the text of one."""
    try:
        return math.isfinite(float(str(value)))
    except ValueError:
        return False
