"""Accuracy against SNR, one line per method: Fig. 2(b) of the FedCL letter and the demo."""

from __future__ import annotations

import pandas as pd
from matplotlib.axes import Axes

from experiments.table import aggregate, over_seeds
from figures.base import Drawing
from figures.style import LABELS, line_styles

SNR = "channel.snr_db"


def numbers(frame: pd.DataFrame) -> pd.DataFrame:
    """Return per method and SNR (dB): accuracy (fraction of 1) and its spreads; see `experiments.table.aggregate`."""
    cells = aggregate(frame, SNR).astype({SNR: float})
    return cells[cells["seeds"] > 0].reset_index(drop=True)


def draw(axes: Axes, cells: pd.DataFrame) -> None:
    """Draw one line per method; error bars only where several seeds give them."""
    variants = list(cells["variant"].unique())
    for variant, style in zip(variants, line_styles(len(variants)), strict=True):
        line = cells[cells["variant"] == variant]
        spread = line["std_over_seeds"] if over_seeds(cells) else None
        axes.errorbar(line[SNR], line["accuracy"], yerr=spread, label=LABELS.get(variant, variant), **style)
    axes.set_xticks(sorted(cells[SNR].unique()))
    axes.set_xlabel("SNR (dB)")
    axes.set_ylabel("Accuracy (%)")
    axes.yaxis.set_major_formatter(lambda fraction, _: f"{100 * fraction:.4g}")
    axes.margins(y=0.08)
    axes.legend()


def caption(cells: pd.DataFrame) -> str:
    """Return a text that tells what the lines and their error bars are."""
    if over_seeds(cells):
        bars = f"Error bars: standard deviation over {cells['seeds'].max()} seeds."
    else:
        bars = "One seed, so there are no error bars; the table's ± is the standard deviation over clients."
    return f"Test accuracy, mean over clients, against the SNR of training and test. {bars}"


def accuracy_snr(name: str) -> Drawing:
    """Return this drawing for the experiment of the same name."""
    return Drawing(name, experiment=name, axis=SNR, numbers=numbers, draw=draw, caption=caption, numeric=True)


DEMO = accuracy_snr("demo")
"""The figure of `make demo`."""
LETTER_FIG2B = accuracy_snr("letter-fig2b")
"""Fig. 2(b) of the FedCL letter."""
