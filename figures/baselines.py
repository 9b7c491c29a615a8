"""Accuracy against channel uses: semantic features, digital features, and images that are compressed and sent."""

from __future__ import annotations

import pandas as pd
from matplotlib.axes import Axes

from figures.base import Drawing
from figures.style import line_styles

FEATURES = {"ideal": "No channel", "awgn": "Features, analog", "digital": "Features, digital"}
"""Link -> what its line is called."""
CHAINS = {
    "webp-sent": "WebP",
    "webp-free": "WebP without header",
    "jpeg-sent": "JPEG",
    "jpeg-free": "JPEG without header",
}
"""Image chain -> what its line is called."""
MEASURES = ("accuracy", "lost", "payload", "headers")


def numbers(frame: pd.DataFrame) -> pd.DataFrame:
    """Per scheme and number of channel uses, at the SNR of training.

    Columns: scheme, snr_db, uses, accuracy (fraction of 1, mean over seeds), std_over_seeds, seeds, and of images lost
    (fraction of 1), payload and headers (mean bytes of those that fitted).
    """
    done = frame[frame["status"] == "done"]
    trained = float(frame[frame["channel.kind"] != "ideal"]["channel.snr_db"].iloc[0])
    cells = [
        _cell(FEATURES[kind], trained, int(runs["model.features"].iloc[0]) // 2, runs["accuracy"])
        for kind, runs in done.groupby("channel.kind", sort=False)
    ]
    return pd.DataFrame([*cells, *_chains(done, trained)])


def _chains(done: pd.DataFrame, trained: float) -> list[dict[str, object]]:
    """The cells of the image chains at the SNR of training."""
    sent = done[done["channel.kind"] == "ideal"]
    cells = []
    for column in [c for c in sent if c.startswith("images.") and c.endswith(".accuracy")]:
        _, chain, snr, uses, _ = column.split(".")
        if float(snr) == trained:
            point = column.removesuffix("accuracy")
            others = {name: float(sent[point + name].mean()) for name in MEASURES[1:]}
            cells.append(_cell(CHAINS[chain], float(snr), int(uses), sent[column]) | others)
    return sorted(cells, key=lambda cell: (list(CHAINS.values()).index(str(cell["scheme"])), cell["uses"]))


def _cell(scheme: str, snr_db: float, uses: int, accuracies: pd.Series) -> dict[str, object]:
    """One point over its seeds."""
    return {
        "scheme": scheme,
        "snr_db": snr_db,
        "uses": uses,
        "accuracy": float(accuracies.mean()),
        "std_over_seeds": float(accuracies.std(ddof=1)),
        "seeds": len(accuracies),
    }


def draw(axes: Axes, cells: pd.DataFrame) -> None:
    """A line per image chain; a point for features, with a thin line at its level; without a channel only the level."""
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
    """What the points and lines are."""
    seeds = int(cells["seeds"].max())
    bars = f"Error bars: standard deviation over {seeds} seeds." if seeds > 1 else "One seed, so no error bars."
    snr_db, uses = cells[["snr_db", "uses"]].iloc[0]
    return (
        f"Test accuracy, mean over clients, against the complex channel uses of an image over AWGN at {snr_db:g} dB. "
        "Images are compressed to what the uses carry with 5G's LDPC codes and QAM, and classified by the network that "
        "was trained without a channel (dotted); a lost one counts as its client's most frequent class. Headers that "
        f"are not sent are known to the receiver. Features take {uses:g} uses; thin lines go on at their level. {bars}"
    )


WIRELESS_BASELINES = Drawing("wireless-baselines", "wireless-baselines", numbers, draw, caption)
"""The figure of the experiment of the same name."""
