"""The figure of both sides of a convergence theorem: the change of the loss in a round, and its bound."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from semcom.config import ConfigError
from semcom.plots.base import Drawing, Kind, Plot, Styles
from semcom.plots.curves import MARKS
from semcom.studies.analysis.means import compute_means
from semcom.studies.analysis.sheet import describe_sheet_intervals
from semcom.studies.analysis.study import Study

LINES = {
    "Measured": ("measured", "total"),
    "Bound, constants of round and client": ("bound", "own", "total"),
    "Bound, largest constants of the run": ("bound", "run", "total"),
}
"""Line -> its place in the `bounds` of a summary."""
CHANGE = "change"
"""Column of the change of the loss from one round's start to the next, in nat."""
LINEAR = -1
"""The ordinate is linear up to 10 to this power, in nat, and logarithmic beyond."""
DECADES = 6
"""Decades of an ordinate up to which each has its tick."""


def average_bounds(study: Study, plot: Plot) -> pd.DataFrame:
    """Average the changes of the loss over clients and seeds: a row per variant, line and round.

    Raises:
        ConfigError: no run has measured bounds.
    """
    rows = [
        {"hash": run.hash, **row} for run in study.stored for row in _list_changes((run.summary or {}).get("bounds"))
    ]
    if not rows:
        raise ConfigError("kind: no run of the study has measured bounds; those of convergence-bound do")
    return compute_means(study.of_runs(rows), ["line", "variant", "round"], CHANGE)


def _list_changes(bounds: Any) -> Iterator[dict[str, Any]]:
    """Yield line, round and change of a run with bounds."""
    for line, path in LINES.items() if bounds else ():
        values = bounds
        for name in path:
            values = values[name]
        for round_, value in zip(bounds["rounds"], values, strict=True):
            yield {"line": line, "round": round_, CHANGE: value}


def draw_bounds(axes: Axes, cells: pd.DataFrame, plot: Plot, styles: Styles) -> None:
    """Draw a curve for each line, marked at different rounds; the ordinate is logarithmic away from zero."""
    for i, (hue, style) in enumerate(styles.items()):
        line = cells[cells["line"] == hue]
        step = max(1, len(line) // MARKS)
        every = (min(i * step // len(styles), len(line) - 1), step)
        axes.plot(line["round"], line["mean"], label=hue, markevery=every, **{**style, "linewidth": 1.0})
        axes.fill_between(line["round"], line["low"], line["high"], color=style["color"], alpha=0.18, linewidth=0)
    axes.set_yscale("symlog", linthresh=10.0**LINEAR)
    axes.set_yticks(list_bound_ticks(float(cells["mean"].min()), float(cells["mean"].max())))
    axes.axhline(0, color="0.5", linewidth=0.5, zorder=0)
    axes.set_xlabel("Round")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_ylabel("Change of the loss (nat)")


def list_bound_ticks(low: float, high: float) -> list[float]:
    """List the ticks of an ordinate from `low` to `high`: zero and powers of ten, both ways."""
    tops = {sign: math.ceil(math.log10(max(sign * end, 10.0**LINEAR))) for sign, end in ((-1, low), (1, high))}
    step = 1 if sum(top - LINEAR for top in tops.values()) <= DECADES else 2
    return [0.0, *(sign * 10.0**power for sign, top in tops.items() for power in range(LINEAR, top + 1, step))]


def describe_bounds(cells: pd.DataFrame, plot: Plot) -> str:
    """Explain the curves."""
    return (
        "Change of the training loss from the start of a round's training to that of the next, mean over clients, "
        f"{describe_sheet_intervals(cells, 'bands')}. The bounds are those of the methods' convergence theorems, with "
        "constants as measured: those of each client in the round itself, and the largest of all rounds and clients. A "
        "bound above zero promises no lower loss. The ordinate is linear up to 0.1 nat and logarithmic beyond."
    )


BOUNDS = Kind(
    title="both sides of a convergence theorem by round", tabled=False, numbers=average_bounds, draw=draw_bounds,
    caption=describe_bounds, x="round", hue="line", facet="variant", columns=1, shared=False, of_y=False,
)  # fmt: skip
CONVERGENCE_BOUND = Drawing("convergence-bound", "convergence-bound", Plot(kind="bounds"), shows=("channel.snr_db",))
