"""The last round of a stored run over time: who receives, computes, sends, waits, and who is late."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from semcom.config import ConfigError
from semcom.engine.air.registry import DOING
from semcom.plots.base import Kind, Plot, Styles
from semcom.plots.points import describe_panels, draw_key, tabulate_runs
from semcom.plots.style import choose_bar_styles
from semcom.studies.analysis.study import Study
from semcom.studies.results.run import Stored

LABELS = ("Receives", "Computes", "Sends", "Waits")


def read_times(study: Study, plot: Plot) -> pd.DataFrame:
    """Read the times of each client in the last round. Late clients do not wait.

    Returns:
        Columns: the panels' field, client, receive_s, compute_s, send_s, wait_s, late, round_s.

    Raises:
        ConfigError: a run counted no time or has no last round, or a panel has several runs.
    """

    def read(run: Stored) -> pd.DataFrame:
        line = next((line for line in run.lines() if "timeline" in line), None)
        if line is None:
            raise ConfigError(f"kind: {run.variant} counted no time; train with network.flops")
        times = dict(line["timeline"])
        late = np.isin(times["client"], times.pop("late"))
        table = pd.DataFrame(times).assign(late=late, round_s=line["round_s"])
        wait = (table["round_s"] - table[list(DOING)].sum(axis=1)).clip(lower=0)
        table.insert(1 + len(DOING), "wait_s", wait)
        return table

    return tabulate_runs(study, plot, read)


def draw_times(axes: Axes, cells: pd.DataFrame, plot: Plot, styles: Styles) -> None:
    """Draw the activities of each client in its row, in their order, and the end of the round."""
    left = np.zeros(len(cells))
    looks = [*choose_bar_styles(3), {"facecolor": "white", "edgecolor": "0.6", "linewidth": 0.4}]
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
    """Describe the bars, the duration of the round, and the fraction of it that clients waited."""

    def describe(part: pd.DataFrame) -> str:
        waited = part["wait_s"].sum() / part["round_s"].sum()
        return f"{part['round_s'].iloc[0]:.4g} s, {waited:.0%} of the clients' time waiting, {part['late'].sum()} late"

    return (
        "The last round: for how long each client receives, computes and sends, in all, in this order whatever the "
        f"method, and waits for the others. {describe_panels(cells, plot, describe)}."
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
    shared=False,
    finish=draw_key,
)
