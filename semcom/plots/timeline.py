"""The last round of a stored run over time: who receives, computes, sends, waits, and who is late."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from semcom.config import ConfigError
from semcom.engine.air.timeline import DOING
from semcom.plots.base import Kind, Plot, Styles
from semcom.plots.radio import draw_key, select_one_run
from semcom.plots.style import bar_styles
from semcom.studies.analysis.study import Study

LABELS = ("Receives", "Computes", "Sends", "Waits")


def read_times(study: Study, plot: Plot) -> pd.DataFrame:
    """Return what each client of the last round did for how long; who is late does not wait.

    Returns:
        Columns: the panels' field, client, receive_s, compute_s, send_s, wait_s, late, round_s.

    Raises:
        ConfigError: a run counted no time or has no last round, or a panel has several runs.
    """
    panels = []
    for value, run in select_one_run(study, plot):
        line = next((line for line in run.lines() if "timeline" in line), None)
        if line is None:
            raise ConfigError(f"kind: {run.variant} counted no time; train with network.flops")
        times = dict(line["timeline"])
        late = np.isin(times["client"], times.pop("late"))
        table = pd.DataFrame(times).assign(late=late, round_s=line["round_s"])
        wait = (table["round_s"] - table[list(DOING)].sum(axis=1)).clip(lower=0)
        table.insert(1 + len(DOING), "wait_s", wait)
        panels.append(value.merge(table, how="cross") if plot.facet else table)
    return pd.concat(panels, ignore_index=True)


def draw_times(axes: Axes, cells: pd.DataFrame, plot: Plot, styles: Styles) -> None:
    """Draw in the row of each client what it does one after the other, and the end of the round."""
    left = np.zeros(len(cells))
    looks = [*bar_styles(3), {"facecolor": "white", "edgecolor": "0.6", "linewidth": 0.4}]
    for name, label, look in zip((*DOING, "wait_s"), LABELS, looks, strict=True):
        axes.barh(cells["client"], cells[name], left=left, height=0.8, label=label, **look)
        left += cells[name].to_numpy()
    for client, end in zip(cells["client"][cells["late"]], left[cells["late"]], strict=True):
        axes.annotate("late", (end, client), (2, 0), textcoords="offset points", va="center", fontsize=6)
    axes.axvline(cells["round_s"].iloc[0], color="0.2", linestyle="--", linewidth=0.8, label="End of the round")
    axes.yaxis.set_major_locator(MaxNLocator(20, integer=True))
    last = cells["client"].max() + 0.6
    axes.set(xlabel="Time in the round (s)", ylabel="Client", xlim=(0, 1.09 * left.max()), ylim=(last, -0.6))
    axes.grid(visible=False, axis="y")


def describe_times(cells: pd.DataFrame, plot: Plot) -> str:
    """Return what the bars are, how long the round took, and what part of it the clients waited."""
    told = []
    for value, part in cells.groupby(plot.facet, sort=False) if plot.facet else [(None, cells)]:
        waited = part["wait_s"].sum() / part["round_s"].sum()
        told.append(
            (f"{plot.labels.place(str(plot.facet), value)}: " if plot.facet else "")
            + f"{part['round_s'].iloc[0]:.4g} s, {waited:.0%} of the clients' time waiting, {part['late'].sum()} late"
        )
    return (
        "The last round: for how long each client receives, computes and sends, in all, in this order whatever the "
        f"method, and waits for the others. {'; '.join(told)}."
    )


TIMELINE = Kind(
    title="who receives, computes, sends and waits in the last round, a panel a method (runs with network.flops)",
    numbers=read_times,
    draw=draw_times,
    caption=describe_times,
    facet="variant",
    height=lambda cells, plot: 0.7 + 0.11 * min(40, 1 + cells["client"].max()),
    tabled=False,
    of_y=False,
    finish=draw_key,
)
