"""Distribution of the SNR that blocks are received with: closed forms as lines, measurements as points."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from semcom.channels import theory
from semcom.plots.base import Measured
from semcom_papers.figures.channel_style import count_covered, draw_channel_legend, draw_channel_points

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SNR_DB = 10.0
CURVES: tuple[tuple[str, str, dict[str, Any], float], ...] = (
    ("Rayleigh", "rayleigh", {}, 0.0),
    ("Rician, $K$ = 3 dB", "rician", {"k_factor_db": 3.0}, 10**0.3),
    ("Rician, $K$ = 9 dB", "rician", {"k_factor_db": 9.0}, 10**0.9),
)
"""Name, link, its options, linear K-factor."""
BLOCKS = 400_000
LOWEST_DB, HIGHEST_DB = -20.0, 20.0
LEAST, MOST = 1e-4, 0.999
"""Probabilities between which it is measured."""


def measure_snr() -> pd.DataFrame:
    """Measure a row per link and level (dB): the share of blocks received below it, with a 95% interval [low, high]."""
    import torch

    from semcom.channels.check import Lab
    from semcom.channels.check.fading import measure_received_snr

    lab, levels = Lab(torch.device("cpu")), np.arange(LOWEST_DB, HIGHEST_DB + 0.25, 0.25)
    frames = []
    for name, kind, options, k_factor in CURVES:
        received, _ = measure_received_snr(lab, kind, SNR_DB, BLOCKS, **options)
        received_db = np.sort(10 * np.log10(received.numpy()))
        expected = theory.power_cdf(10 ** ((levels - SNR_DB) / 10), k_factor)
        share = np.searchsorted(received_db, levels) / BLOCKS
        at = (levels % 2 == 0) & (expected >= LEAST) & (expected <= MOST)
        spread = 1.96 * np.sqrt(share * (1 - share) / BLOCKS)
        found = pd.DataFrame({"measured": share, "low": share - spread, "high": share + spread, "blocks": BLOCKS})
        frame = pd.DataFrame({"link": name.replace("$", ""), "level_db": levels, "theory": expected})
        frames.append(pd.concat([frame, found[at]], axis=1))
    return pd.concat(frames, ignore_index=True)


def draw_snr(axes: Axes, cells: pd.DataFrame) -> None:
    """Draw a line and its points per link."""
    for i, (name, *_) in enumerate(CURVES):
        draw_channel_points(axes, cells[cells["link"] == name.replace("$", "")], "level_db", name, i)
    axes.set_yscale("log")
    axes.set_ylim(LEAST, 1.6)
    axes.set_xlim(LOWEST_DB - 1, HIGHEST_DB)
    axes.set_xlabel("Received SNR of a block (dB)")
    axes.set_ylabel("Cumulative distribution")
    draw_channel_legend(axes)


def describe_snr(cells: pd.DataFrame) -> str:
    """Explain lines, points and intervals."""
    return (
        f"Distribution of the SNR with which blocks of one fading coefficient are received at snr_db = {SNR_DB:g}: the "
        "probability that a block is below a level (outage). Lines: closed forms of `semcom.channels.theory`, "
        f"exponential for Rayleigh; points: measured over {BLOCKS:,} blocks of 8 symbols, power of the faded symbols "
        f"over the power of the noise. Bars: 95% intervals, smaller than the markers almost everywhere; "
        f"{count_covered(cells)}."
    )


def tabulate_snr(cells: pd.DataFrame) -> pd.DataFrame:
    """Format the measured points."""
    found = cells.dropna()
    columns = {
        "link": found["link"],
        "level dB": found["level_db"].map("{:g}".format),
        "theory": found["theory"].map("{:.4g}".format),
        "measured": found["measured"].map("{:.4g}".format),
        "95% interval": found["low"].map("{:.4g}".format) + " to " + found["high"].map("{:.4g}".format),
    }
    return pd.DataFrame(columns)


CHANNEL_SNR = Measured(
    "channel-snr", "Distribution of the received SNR against theory", measure_snr, draw_snr, describe_snr, tabulate_snr
)
