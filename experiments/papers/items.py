"""Declare what a paper shows as experiments: a row for each of its tables and figures."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from semcom.studies.experiment import SCALES, Experiment, Grid, Variant, each_scale


def make_item(
    name: str,
    paper: str,
    title: str,
    variants: tuple[str | Variant, ...],
    make_grid: Callable[[str], Grid],
    axis: str,
    figures: tuple[str, ...] | None = None,
    scales: Iterable[str] = SCALES,
    **more: Any,
) -> Experiment:
    """Declare the experiment behind a table or figure of a paper; arguments are fields of `Experiment`, but for two.

    Args:
        make_grid: function from the name of a scale to its grid.
        figures: drawn after a sweep (None: the figure that has the name of the experiment).
    """
    drawn = (name,) if figures is None else figures
    return Experiment(name, title, paper, variants, each_scale(make_grid, tuple(scales)), axis, drawn, **more)
