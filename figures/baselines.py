"""Accuracy against channel uses: semantic features, digital features, and images that are compressed and sent."""

from __future__ import annotations

import pandas as pd
from matplotlib.axes import Axes

from experiments.table import aggregate
from figures.base import Drawing
from figures.style import line_styles

FEATURES = {"ideal": "No channel", "awgn": "Features, analog", "digital": "Features, digital"}
"""Link -> name of its line."""
CHAINS = {
    "webp-sent": "WebP",
    "webp-free": "WebP without header",
    "jpeg-sent": "JPEG",
    "jpeg-free": "JPEG without header",
}
"""Image chain -> name of its line."""
KIND, SNR = "channel.kind", "channel.snr_db"
MEASURES = ("lost", "payload", "headers")
"""Further columns of the image chains."""


def numbers(frame: pd.DataFrame) -> pd.DataFrame:
    """Return a row per scheme and number of channel uses, at the SNR of training.

    Columns: scheme, snr_db, uses, accuracy (fraction of 1, mean over seeds), std_over_seeds, seeds, and of images lost
    (fraction of 1), payload and headers (mean bytes of those that fitted).
    """
    trained = float(frame[frame[KIND] != "ideal"][SNR].iloc[0])
    schemes = frame[KIND].map(lambda kind: FEATURES.get(kind, kind))
    runs = frame.assign(scheme=schemes, uses=frame["model.features"] // 2)
    runs[SNR] = runs[SNR].where(runs[KIND] != "ideal", trained)  # it has none: its images meet that of the others
    return pd.concat([_cells(runs), *_chains(runs[runs[KIND] == "ideal"])], ignore_index=True)


def _chains(sent: pd.DataFrame) -> list[pd.DataFrame]:
    """Return the cells of the image chains from the runs without a channel, scheme by scheme."""
    found = []
    for column in [c for c in sent if c.startswith("images.") and c.endswith(".accuracy")]:
        _, chain, snr, uses, _ = column.split(".")
        if float(snr) == float(sent[SNR].iloc[0]):
            point = sent.assign(scheme=CHAINS[chain], uses=int(uses), accuracy=sent[column])
            means = {name: float(sent[f"images.{chain}.{snr}.{uses}.{name}"].mean()) for name in MEASURES}
            found.append((list(CHAINS).index(chain), int(uses), _cells(point).assign(**means)))
    return [cells for _, _, cells in sorted(found, key=lambda entry: entry[:2])]


def _cells(runs: pd.DataFrame) -> pd.DataFrame:
    """Return the points of schemes over their seeds; those that no run finished are missing."""
    cells = aggregate(runs, "uses", lines="scheme")
    cells = cells[cells["seeds"] > 0].astype({"accuracy": float, "uses": int})
    snr_db = runs.drop_duplicates("scheme").set_index("scheme")[SNR].astype(float)
    cells.insert(1, "snr_db", cells["scheme"].map(snr_db))
    return cells.drop(columns=["std_over_clients", "failed"])


def draw(axes: Axes, cells: pd.DataFrame) -> None:
    """Draw a line per image chain, a point with a thin line at its level for features, the level without a channel."""
    schemes = list(cells["scheme"].unique())
    for scheme, style in zip(schemes, line_styles(len(schemes)), strict=True):
        line = cells[cells["scheme"] == scheme]
        spread = line["std_over_seeds"] if (line["seeds"] > 1).any() else None
        if scheme == FEATURES["ideal"]:
            axes.axhline(line["accuracy"].iloc[0], color="0.6", linestyle=":", label=scheme)
            continue
        if len(line) == 1:
            axes.axhline(line["accuracy"].iloc[0], color=style["color"], linewidth=0.4)
        axes.errorbar(line["uses"], line["accuracy"], yerr=spread, label=scheme, **style)
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_formatter(lambda uses, _: f"{uses:g}")
    axes.set_xticks(sorted(cells["uses"].unique()))
    axes.set_xlabel("Channel uses per image")
    axes.set_ylabel("Accuracy (%)")
    axes.yaxis.set_major_formatter(lambda fraction, _: f"{100 * fraction:.4g}")
    axes.margins(y=0.08)
    axes.legend()


def caption(cells: pd.DataFrame) -> str:
    """Return a text that tells what the points and lines are."""
    seeds = int(cells["seeds"].max())
    bars = f"Error bars: standard deviation over {seeds} seeds." if seeds > 1 else "One seed, so no error bars."
    snr_db, uses = cells[["snr_db", "uses"]].iloc[0]
    return (
        f"Test accuracy, mean over clients, against the complex channel uses of an image over AWGN at {snr_db:g} dB. "
        "Images are compressed to what the uses carry with 5G's LDPC codes and QAM, and classified by the network that "
        "was trained without a channel (dotted); a lost one counts as its client's most frequent class. Headers that "
        f"are not sent are known to the receiver. Features take {uses:g} uses; thin lines go on at their level. {bars}"
    )


WIRELESS_BASELINES = Drawing("wireless-baselines", "wireless-baselines", KIND, numbers, draw, caption)
"""The figure of the experiment of the same name."""
