"""The radio of stored runs: symbols as received, a channel over frequency and delay, the clients of a cell."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from channels.ofdm.link import OFDM
from channels.power import PAIR
from semcom.config import ConfigError, DataConfig, PartitionConfig, Resolved
from semcom.config.options import list_paths_in_options, spelled
from semcom.engine.air.links import build_link
from semcom.engine.host.keys import keyed
from semcom.files import CONFIG
from semcom.plots.base import Kind, Plot, Style, Styles
from semcom.plots.points import describe_panels, draw_key, read_kept, tabulate_runs
from semcom.plots.style import COLORS
from semcom.runs.folder.arrays import FEATURES
from semcom.runs.folder.stored import read_config
from semcom.runs.request.resolve import resolve
from semcom.runs.request.section_options import build_section_options
from semcom.runs.request.trust import check_trusted_file, take_plugins
from semcom.studies.analysis.study import Study
from semcom.studies.results.run import Stored

SYMBOLS = 3000
"""Symbols of a constellation, evenly chosen."""
FRAMES, TAPS = 500, 256
"""Frames that a delay profile is the mean of, and its subcarriers."""
FLOOR_DB = -40.0


# -- symbols ---------------------------------------------------------------------------------------------------------


def read_symbols(study: Study, plot: Plot) -> pd.DataFrame:
    """Read symbols of test images as sent, of unit power per image, and as equalised by the receiver.

    Returns:
        Columns: the panels' field, sent_i, sent_q, i, q.

    Raises:
        ConfigError: no run kept features, a panel has several runs, or no such view.
    """

    def read(run: Stored) -> pd.DataFrame:
        kept, view = read_kept(run, plot.view, "received", FEATURES)
        raw, received = kept[f"raw/{view}"], kept[f"received/{view}"]
        if raw.shape[1] % 2:
            raise ConfigError(f"kind: {raw.shape[1]} features of {run.variant} make no symbols")
        sent = raw / np.sqrt(np.square(raw).mean(1, keepdims=True)).clip(1e-12)
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
        f"per image, and as equalised by the receiver. Mean square error of the shown ones: "
        f"{describe_panels(cells, plot, measure)}."
    )


# -- a channel over frequency and delay ------------------------------------------------------------------------------


def build_channels(study: Study, plot: Plot) -> Iterator[tuple[object, OFDM, int]]:
    """Yield for each hue its value, the link of its runs, and their seed. Raises ConfigError for other channels."""
    rows = study.runs if plot.hue is None else study.runs.drop_duplicates(plot.hue)
    found = {run.hash: run for run in study.stored}
    for _, row in rows.iterrows():
        run = found[row["hash"]]
        if not (run.trained / CONFIG).is_file():
            continue
        config = read_radio(run.trained)
        link = build_link(config)[0]
        if not isinstance(link, OFDM):
            raise ConfigError(f"channel.kind: {config.channel.kind} is flat; {plot.kind} are of ofdm and cir")
        yield (None if plot.hue is None else row[plot.hue]), link, config.seed


def read_radio(folder: Path) -> Resolved:
    """Read the configuration of a run for its link only, without looking for other files that it names.

    Raises ConfigError for a plug-in or a file of the link, unless the user gives or trusts it.
    """
    stored = take_plugins(read_config(folder, "plot"))
    stored = replace(stored, data=DataConfig(), partition=PartitionConfig(validation=stored.partition.validation))
    stored = replace(stored, new_data=None, model=replace(stored.model, weights=None), out=None)
    built = build_section_options(replace(stored, precision="float32", device="cpu", processes=1))
    hyper = replace(built.hyper, **dict.fromkeys(list_paths_in_options(built.hyper)))
    files = list_paths_in_options(built.channel.options)
    for name, path in files.items():
        check_trusted_file(f"channel.{spelled(name)}", path)
    contents = {name: stored.contents[name] for name in (*stored.plugins, *files.values()) if name in stored.contents}
    return resolve(replace(built, hyper=hyper, contents=contents))


def choose_channels(study: Study, plot: Plot) -> list[tuple[object, OFDM, int]]:
    """List `build_channels`. Raises ConfigError for no channel, or several channels without a hue."""
    found = list(build_channels(study, plot))
    if not found:
        raise ConfigError("results: no run has begun")
    kinds = {json.dumps(vars(link.options), default=str, sort_keys=True) for _, link, _ in found}
    if plot.hue is None and len(kinds) > 1:
        raise ConfigError("hue: the runs have several channels; give the field that differs, such as channel.profile")
    return found if plot.hue else found[:1]


def measure_responses(study: Study, plot: Plot) -> pd.DataFrame:
    """Compute |H(f)|^2 of one frame of client 0, at its first data symbol, over its part of the band.

    Returns:
        Columns: the hue's field, mhz (from the middle of the client's part), gain_db.
    """
    tables = []
    for hue, link, seed in choose_channels(study, plot):
        h = link.response(0, 1, keyed(seed, "picture"))[0, 0]
        mhz = 1e-3 * link.options.spacing_khz * (np.arange(len(h)) - len(h) // 2)
        table = pd.DataFrame({"mhz": mhz, "gain_db": 20 * np.log10(h.abs().numpy().clip(1e-6))})
        tables.append(table if plot.hue is None else table.assign(**{plot.hue: hue}))
    return pd.concat(tables, ignore_index=True)


def measure_delays(study: Study, plot: Plot) -> pd.DataFrame:
    """Measure the mean power by delay, over `FRAMES` frames of client 0, in dB of the largest.

    Returns:
        Columns: the hue's field, us, power_db.
    """
    tables = []
    for hue, link, seed in choose_channels(study, plot):
        last = link.profile.last_path_s or 1e-6
        spacing = 1 / (2 * last)  # so that the last path lies in the middle
        h = link.response(0, FRAMES, keyed(seed, "picture"), width=TAPS, spacing_hz=spacing)[:, 0]
        # Without a window, the edges of the band would leak over all delays and hide weak paths.
        power = torch.fft.ifft(h * torch.hann_window(TAPS, periodic=False)).abs().square().mean(0).numpy()
        us = 1e6 * np.arange(TAPS) / (TAPS * spacing)
        table = pd.DataFrame({"us": us, "power_db": 10 * np.log10(power / power.max())})
        table = table[table["us"] <= 1.2e6 * last]
        tables.append(table if plot.hue is None else table.assign(**{plot.hue: hue}))
    return pd.concat(tables, ignore_index=True)


def _list_hues(cells: pd.DataFrame, plot: Plot, styles: Styles) -> Iterator[tuple[str | None, Style, pd.DataFrame]]:
    """Yield the label, the look without marks, and the rows of each hue."""
    for hue, style in styles.items():
        look = {name: value for name, value in style.items() if not name.startswith("marker")}
        if plot.hue is None:
            yield None, look, cells
        else:
            yield plot.labels.place(plot.hue, hue), look, cells[cells[plot.hue] == hue]


def draw_lines(axes: Axes, cells: pd.DataFrame, plot: Plot, styles: Styles) -> None:
    """Draw the two numbers against each other, a line for each hue."""
    x, y = ("us", "power_db") if plot.kind == "delays" else ("mhz", "gain_db")
    for label, look, line in _list_hues(cells, plot, styles):
        axes.plot(line[x], line[y], label=label, **look)
    axes.set_xlabel("Delay (us)" if plot.kind == "delays" else "Frequency from the middle (MHz)")
    axes.set_ylabel("Mean power (dB)" if plot.kind == "delays" else "$|H(f)|^2$ (dB)")
    if plot.kind == "delays":
        axes.set_ylim(FLOOR_DB, 3)


def describe_responses(cells: pd.DataFrame, plot: Plot) -> str:
    """Describe the lines."""
    return "Power gain of one frame of client 0 of one antenna over its part of the band; it is 0 dB on average."


def describe_delays(cells: pd.DataFrame, plot: Plot) -> str:
    """Describe the lines."""
    return (
        f"Mean power by delay over {FRAMES} frames, by an inverse Fourier transform of {TAPS} subcarriers under a Hann "
        "window, in dB of the largest: paths are as wide as the window."
    )


# -- a cell ----------------------------------------------------------------------------------------------------------


def read_places(study: Study, plot: Plot) -> pd.DataFrame:
    """Read places and mean SNRs of the clients of runs in a cell, once for runs of the same cell.

    Returns:
        Columns: the fields of hue and panels, client, x_m, y_m, los, snr_db, downlink_snr_db.

    Raises:
        ConfigError: no run has a cell, or those of a map have several.
    """
    tables, fields = [], [name for name in (plot.hue, plot.facet) if name]
    for run in study.stored:
        if "cell" in (run.summary or {}):
            table = pd.DataFrame((run.summary or {})["cell"]).rename_axis("client").reset_index()
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


def draw_map_key(figure: Figure, cells: pd.DataFrame, plot: Plot) -> None:
    """Give all maps one colour scale, and explain the marks."""
    panels = list(figure.axes)
    for axes in panels:
        for dots in axes.collections[:2]:
            dots.set_clim(cells["snr_db"].min(), cells["snr_db"].max())
    figure.colorbar(panels[0].collections[0], ax=panels, label="Uplink SNR (dB)", pad=0.02, fraction=0.05)
    marks = {"In sight": "o", "Out of sight": "^", "Base station": "*"}
    lines = [Line2D([], [], color="black", linestyle="", markersize=4, marker=m, label=n) for n, m in marks.items()]
    figure.legend(handles=lines, loc="outside upper center", ncols=3, frameon=False, columnspacing=1.0)


def draw_cdf(axes: Axes, cells: pd.DataFrame, plot: Plot, styles: Styles) -> None:
    """Draw the share of clients below each SNR, a step for each."""
    for label, look, line in _list_hues(cells, plot, styles):
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
    facet="variant",
    height=lambda cells, plot: 2.2,
    columns=3,
    tabled=False,
    of_y=False,
    finish=draw_key,
)
RESPONSE = Kind(
    title="power gain of a frame over a client's subcarriers, a line for each --hue (runs over ofdm or cir)",
    numbers=measure_responses,
    draw=draw_lines,
    caption=describe_responses,
    takes=("hue",),
    tabled=False,
    of_y=False,
)
DELAYS = replace(
    RESPONSE,
    title="mean power by delay of a channel, a line for each --hue (runs over ofdm or cir)",
    numbers=measure_delays,
    caption=describe_delays,
)
CELL = Kind(
    title="map of the clients in a cell, with their SNRs (runs with network.kind cell)",
    numbers=read_places,
    draw=draw_map,
    caption=describe_map,
    height=lambda cells, plot: 2.8,
    tabled=False,
    of_y=False,
    finish=draw_map_key,
)
SNR_CDF = replace(
    CELL,
    title="distribution of the SNR over the clients of a cell, a line for each --hue (runs with network.kind cell)",
    draw=draw_cdf,
    caption=describe_cdf,
    takes=("hue",),
    height=lambda cells, plot: 1.95,
    finish=lambda figure, cells, plot: None,
)
