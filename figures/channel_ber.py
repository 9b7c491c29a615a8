"""Uncoded bit error rates of the links `awgn` and `rayleigh`: closed forms as lines, measurements as points."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from semcom.channels import theory
from semcom.plots.base import Measured
from semcom_papers.figures.channel_style import count_covered, draw_channel_legend, draw_channel_points

if TYPE_CHECKING:
    import torch
    from matplotlib.axes import Axes

CURVES = (("QPSK", 2, "awgn"), ("16-QAM", 4, "awgn"), ("QPSK", 2, "rayleigh"), ("16-QAM", 4, "rayleigh"))
"""Name, bits per symbol, link."""
LINKS = {"awgn": "AWGN", "rayleigh": "Rayleigh"}
LARGEST_DB = 30.0
LEAST = 2e-5
"""Smallest bit error rate that is measured."""
WRONG = 400
"""Wrong bits that a point is expected to have, at least."""
BLOCK = 100_000
"""Symbols that are measured at once."""


def measure_ber() -> pd.DataFrame:
    """Measure a row per modulation, link and SNR (Es/N0, dB): theory, and the 95% interval [low, high] if measured."""
    rows = []
    for name, bits, kind in CURVES:
        for snr_db in np.arange(0.0, LARGEST_DB + 0.25, 0.25):
            expected = float(theory.bit_error_rate(bits, snr_db, kind == "rayleigh"))
            found: dict[str, float] = {}
            if snr_db % 2 == 0 and expected >= LEAST:
                found = _measure_point(kind, bits, float(snr_db), expected)
            rows.append({"modulation": name, "link": kind, "snr_db": snr_db, "theory": expected} | found)
    return pd.DataFrame(rows)


def _measure_point(kind: str, bits: int, snr_db: float, expected: float) -> dict[str, float]:
    """Measure one point, from as many symbols as give `WRONG` wrong bits; the symbol is the independent unit."""
    import torch

    from semcom.channels.check import Lab
    from semcom.channels.check.errors import measure_bit_errors

    blocks = max(1, math.ceil(WRONG / (expected * bits * BLOCK)))
    labs = (Lab(torch.device("cpu"), seed) for seed in range(blocks))
    wrong: torch.Tensor = torch.cat([measure_bit_errors(lab, kind, bits, snr_db, BLOCK) for lab in labs])
    rate, error = float(wrong.mean()), float(wrong.std()) / math.sqrt(len(wrong))
    return {"measured": rate, "low": rate - 1.96 * error, "high": rate + 1.96 * error, "symbols": len(wrong)}


def draw_ber(axes: Axes, cells: pd.DataFrame) -> None:
    """Draw a line and its points per modulation and link."""
    for i, (name, _, kind) in enumerate(CURVES):
        line = cells[(cells["modulation"] == name) & (cells["link"] == kind)]
        draw_channel_points(axes, line, "snr_db", f"{name}, {LINKS[kind]}", i)
    axes.set_yscale("log")
    axes.set_ylim(1e-5, 1)
    axes.set_xlim(-1, LARGEST_DB + 1)
    axes.set_xlabel(r"SNR $E_s/N_0$ (dB)")
    axes.set_ylabel("Bit error rate")
    draw_channel_legend(axes)


def describe_ber(cells: pd.DataFrame) -> str:
    """Explain lines, points and intervals."""
    return (
        "Uncoded bit error rate of Gray-mapped QPSK and 16-QAM through `make_link`, against Es/N0 per symbol. Lines: "
        "closed forms of `semcom.channels.theory`; points: measured with max-log decisions, over Rayleigh fading with "
        "one coefficient per symbol, known to the receiver. Bars: 95% intervals from independent symbols, each point "
        f"with about {WRONG} wrong bits or more; {count_covered(cells)}."
    )


def tabulate_ber(cells: pd.DataFrame) -> pd.DataFrame:
    """Format the measured points: theory, measured, and the deviation in standard errors."""
    found = cells.dropna()
    deviation = (found["measured"] - found["theory"]) / ((found["high"] - found["low"]) / (2 * 1.96))
    columns = {
        "modulation": found["modulation"],
        "link": found["link"].map(LINKS),
        "SNR dB": found["snr_db"].map("{:g}".format),
        "theory": found["theory"].map("{:.4g}".format),
        "measured": found["measured"].map("{:.4g}".format),
        "deviation": deviation.map("{:+.2f}".format),
        "symbols": found["symbols"].map("{:,.0f}".format),
    }
    return pd.DataFrame(columns)


CHANNEL_BER = Measured(
    "channel-ber", "Bit error rates of the links against theory", measure_ber, draw_ber, describe_ber, tabulate_ber
)
