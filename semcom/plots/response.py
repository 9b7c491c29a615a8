"""The channel of stored runs over frequency and delay, drawn anew from their links."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from matplotlib.axes import Axes

from semcom.channels.ofdm.link import OFDM
from semcom.config import ConfigError, DataConfig, PartitionConfig, Resolved
from semcom.config.options import list_paths_in_options, spell_option
from semcom.engine.air.links import build_link
from semcom.engine.host.keys import keyed
from semcom.files import CONFIG
from semcom.plots.base import Kind, Plot, Styles
from semcom.plots.points import check_field, list_hues
from semcom.runs.folder.stored import read_stored_config
from semcom.runs.request.resolve import resolve
from semcom.runs.request.section_options import build_section_options
from semcom.runs.request.trust import check_trusted_file, take_trusted_plugins
from semcom.studies.analysis.study import Study
from semcom.studies.results.run import Stored

FRAMES, TAPS = 500, 256
"""Frames that a delay profile is the mean of, and its subcarriers."""
FLOOR_DB = -40.0


def build_channels(runs: Iterable[Stored], plot: Plot) -> Iterator[tuple[OFDM, int]]:
    """Yield the link of each run that has begun, and its seed. Raises ConfigError for other channels."""
    for run in runs:
        if not (run.trained / CONFIG).is_file():
            continue
        config = read_radio(run.trained)
        link = build_link(config)[0]
        if not isinstance(link, OFDM):
            raise ConfigError(f"channel.kind: {config.channel.kind} is flat; {plot.kind} are of ofdm and cir")
        yield link, config.seed


def read_radio(folder: Path) -> Resolved:
    """Read the configuration of a run for its link only, without looking for other files that it names.

    Raises ConfigError for a plug-in or a file of the link, unless the user gives or trusts it.
    """
    stored = take_trusted_plugins(read_stored_config(folder, "plot"))
    stored = replace(stored, data=DataConfig(), partition=PartitionConfig(validation=stored.partition.validation))
    stored = replace(stored, new_data=None, model=replace(stored.model, weights=None), out=None)
    built = build_section_options(replace(stored, precision="float32", device="cpu", processes=1))
    hyper = replace(built.hyper, **dict.fromkeys(list_paths_in_options(built.hyper)))
    files = list_paths_in_options(built.channel.options)
    for name, path in files.items():
        check_trusted_file(f"channel.{spell_option(name)}", path)
    contents = {name: stored.contents[name] for name in (*stored.plugins, *files.values()) if name in stored.contents}
    return resolve(replace(built, hyper=hyper, contents=contents))


def choose_channels(study: Study, plot: Plot) -> list[tuple[object, OFDM, int]]:
    """List the value of each hue, and the link and seed of its first run.

    Raises:
        ConfigError: no channel, several channels of one line, or others than `build_channels` yields.
    """
    check_field(study.runs, "hue", plot.hue)
    stored, chosen = {run.hash: run for run in study.stored}, list[tuple[object, OFDM, int]]()
    lines = study.runs.groupby(plot.hue, sort=False, dropna=False) if plot.hue else [(None, study.runs)]
    for hue, line in lines:
        found = list(build_channels([stored[key] for key in line["hash"]], plot))
        if len({json.dumps(vars(link.options), default=str, sort_keys=True) for link, _ in found}) > 1:
            of = f" of {plot.labels.place(plot.hue, hue)}" if plot.hue else ""
            wanted = "give the field that differs, such as channel.profile, or one with --at"
            raise ConfigError(f"hue: the runs{of} have several channels; {wanted}")
        chosen += [(hue, *each) for each in found[:1]]
    if not chosen:
        raise ConfigError("results: no run has begun")
    return chosen


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


def draw_lines(axes: Axes, cells: pd.DataFrame, plot: Plot, styles: Styles) -> None:
    """Draw the two numbers against each other, a line for each hue."""
    x, y = ("us", "power_db") if plot.kind == "delays" else ("mhz", "gain_db")
    for label, look, line in list_hues(cells, plot, styles):
        axes.plot(line[x], line[y], label=label, **look)
    axes.set_xlabel("Delay (us)" if plot.kind == "delays" else "Frequency from the middle (MHz)")
    axes.set_ylabel("Mean power (dB)" if plot.kind == "delays" else "|H(f)|² (dB)")
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
