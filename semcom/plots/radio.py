"""The radio of stored runs: symbols as received, the clients of a cell."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colorbar import Colorbar
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from semcom.config import ConfigError
from semcom.plots.base import Kind, Plot, Styles
from semcom.plots.points import describe_panels, draw_key, list_hues, read_kept_arrays, tabulate_runs
from semcom.plots.style import COLORS
from semcom.registry import find_entry
from semcom.runs.folder.arrays import FEATURES
from semcom.studies.analysis.study import Study
from semcom.studies.results.run import Stored

PAIR = math.sqrt(2.0)
"""That of `semcom.channels.power`, which imports torch."""
PLACE = ["x_m", "y_m", "los", "snr_db", "downlink_snr_db"]
SYMBOLS = 3000
"""Symbols of a constellation, evenly chosen."""


# -- symbols ---------------------------------------------------------------------------------------------------------


def read_symbols(study: Study, plot: Plot) -> pd.DataFrame:
    """Read symbols of test images as sent, and as equalised by the receiver.

    A channel that leaves features as loud as they are (`power = free`, or a link that never `normalises`) sends them
    so, any other one with unit power per image.

    Returns:
        Columns: the panels' field, sent_i, sent_q, i, q.

    Raises:
        ConfigError: no run kept features, a panel has several runs, or no such view.
    """

    def read(run: Stored) -> pd.DataFrame:
        kept, view = read_kept_arrays(run, plot.view, "received", FEATURES)
        raw, received = kept[f"raw/{view}"], kept[f"received/{view}"]
        if raw.shape[1] % 2:
            raise ConfigError(f"kind: {raw.shape[1]} features of {run.variant} make no symbols")
        from semcom.channels import LINKS  # with torch, which other figures do without

        link = find_entry(LINKS, str(run.fields["channel.kind"]), "channel.kind")
        loud = run.fields.get("channel.power") == "free" or not link.normalises
        sent = raw if loud else raw / np.sqrt(np.square(raw).mean(1, keepdims=True)).clip(1e-12)
        pairs = [np.reshape(features, (-1, 2)) / PAIR for features in (sent, received)]
        some = np.linspace(0, len(pairs[0]) - 1, min(SYMBOLS, len(pairs[0]))).round().astype(int)
        return pd.DataFrame(np.hstack(pairs)[some], columns=["sent_i", "sent_q", "i", "q"])

    return tabulate_runs(study, plot, read)


def draw_symbols(axes: Axes, cells: pd.DataFrame, plot: Plot, styles: Styles) -> None:
    """Draw the received symbols under the sent symbols."""
    axes.scatter(cells["i"], cells["q"], s=3, color=COLORS[3], linewidths=0, label="Received")
    axes.scatter(cells["sent_i"], cells["sent_q"], s=1, color=COLORS[0], linewidths=0, label="Sent")
    # A few far symbols would shrink all others to a point.
    reach = float(np.quantile(cells[["sent_i", "sent_q", "i", "q"]].abs(), 0.998)) * 1.1
    axes.set(xlim=(-reach, reach), ylim=(-reach, reach), xlabel="In phase", ylabel="Quadrature", aspect="equal")


def describe_symbols(cells: pd.DataFrame, plot: Plot) -> str:
    """Describe the dots, and their distance."""

    def measure(part: pd.DataFrame) -> str:
        apart = part[["i", "q"]].to_numpy() - part[["sent_i", "sent_q"]].to_numpy()
        return f"{np.square(apart).sum(1).mean():.3g}"

    return (
        f"Complex symbols of test images, two features each, at most {SYMBOLS} of a run: as sent, of unit mean power "
        f"per image unless the channel leaves them as they are, and as equalised by the receiver. Mean square error of "
        f"the shown ones: {describe_panels(cells, plot, measure)}."
    )


# -- a cell ----------------------------------------------------------------------------------------------------------


def read_radio_places(study: Study, plot: Plot) -> pd.DataFrame:
    """Read places and mean SNRs of the clients of runs in a cell, once for runs of the same cell.

    Returns:
        Columns: the fields of hue and panels, client, x_m, y_m, los, snr_db, downlink_snr_db.

    Raises:
        ConfigError: no run has a cell, or those of a map have several.
    """
    tables, fields = [], [name for name in (plot.hue, plot.facet) if name]
    for run in study.stored:
        if "cell" in (run.summary or {}):
            table = pd.DataFrame((run.summary or {})["cell"])[PLACE].rename_axis("client").reset_index()
            tables.append(table.assign(**{name: run.field(name) for name in fields}))
    if not tables:
        raise ConfigError("kind: no finished run has a cell; train with network.kind cell")
    cells = pd.concat(tables, ignore_index=True).drop_duplicates()
    if plot.kind == "cell" and cells.duplicated([*fields, "client"]).any():
        raise ConfigError("seed: the runs have several cells; give one, such as --at seed=0, or --facet seed")
    return cells[[*fields, *(name for name in cells if name not in fields)]]


def draw_map(axes: Axes, cells: pd.DataFrame, plot: Plot, styles: Styles) -> None:
    """Draw the clients around the base station, coloured by the uplink SNR."""
    for seen, marker in ((True, "o"), (False, "^")):
        part = cells[cells["los"] == seen]
        axes.scatter(part["x_m"], part["y_m"], c=part["snr_db"], s=18, marker=marker, linewidths=0, zorder=2)
    axes.scatter([0], [0], s=60, marker="*", color="black", zorder=3)
    reach = 1.08 * float(np.hypot(cells["x_m"], cells["y_m"]).max())
    axes.set(xlim=(-reach, reach), ylim=(-reach, reach), xlabel="x (m)", ylabel="y (m)", aspect="equal")


def draw_places_key(figure: Figure, values: pd.Series, label: str, first: int = 0) -> Colorbar:
    """Give the clients of all maps, whose dots are from a `first` on, one colour scale, and explain the marks."""
    panels = list(figure.axes)
    for axes in panels:
        for dots in axes.collections[first : first + 2]:
            dots.set_clim(values.min(), values.max())
    bar = figure.colorbar(panels[0].collections[first], ax=panels, label=label, pad=0.02, fraction=0.05)
    marks = {"In sight": "o", "Out of sight": "^", "Base station": "*"}
    lines = [Line2D([], [], color="black", linestyle="", markersize=4, marker=m, label=n) for n, m in marks.items()]
    figure.legend(handles=lines, loc="outside upper center", ncols=3, frameon=False, columnspacing=1.0)
    return bar


def draw_map_key(figure: Figure, cells: pd.DataFrame, plot: Plot) -> None:
    """Explain the colours and the marks of all maps."""
    draw_places_key(figure, cells["snr_db"], "Uplink SNR (dB)")


def draw_cdf(axes: Axes, cells: pd.DataFrame, plot: Plot, styles: Styles) -> None:
    """Draw the share of clients below each SNR, a step for each."""
    for label, look, line in list_hues(cells, plot, styles):
        axes.ecdf(line["snr_db"].to_numpy(), label=label, **look)
    axes.set_xlabel("Mean uplink SNR (dB)")
    axes.set_ylabel("Share of clients")


def describe_map(cells: pd.DataFrame, plot: Plot) -> str:
    """Describe the marks."""
    seen = int(cells["los"].sum())
    return (
        f"Places of {len(cells)} clients around the base station, {seen} in sight of it; the colour is "
        "the mean SNR of the uplink, path loss and shadowing included."
    )


def describe_cdf(cells: pd.DataFrame, plot: Plot) -> str:
    """Describe the steps."""
    return f"Distribution of the mean uplink SNR over clients ({len(cells)} in all)."


CONSTELLATION = Kind(
    title="symbols as sent and as received, a panel for each method (runs with --keep features)",
    numbers=read_symbols,
    draw=draw_symbols,
    caption=describe_symbols,
    takes=("view",),
    facet="variant",
    height=lambda cells, plot: 2.2,
    columns=3,
    tabled=False,
    of_y=False,
    shared=False,
    finish=draw_key,
)
CELL = Kind(
    title="map of the clients in a cell, with their SNRs (runs with network.kind cell)",
    numbers=read_radio_places,
    draw=draw_map,
    caption=describe_map,
    height=lambda cells, plot: 2.8,
    tabled=False,
    of_y=False,
    shared=False,
    finish=draw_map_key,
)
SNR_CDF = replace(
    CELL,
    title="distribution of the SNR over the clients of a cell, a line for each --hue (runs with network.kind cell)",
    draw=draw_cdf,
    caption=describe_cdf,
    takes=("hue",),
    height=lambda cells, plot: 1.95,
    shared=True,
    finish=lambda figure, cells, plot: None,
)
