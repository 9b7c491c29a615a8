"""Accuracy against channel uses: semantic features, digital features, and images that are compressed and sent."""

from __future__ import annotations

import pandas as pd

from semcom.config import ConfigError
from semcom.plots.base import Drawing, Plot
from semcom.plots.points import describe_points
from semcom.studies.analysis.means import compute_means, cut_intervals
from semcom.studies.analysis.study import Study
from semcom.studies.grid import TEST_SNR
from semcom.tasks.metric import ACCURACY

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


def average_baselines(study: Study, plot: Plot) -> pd.DataFrame:
    """Average over seeds by scheme and number of channel uses, at the SNR of training.

    Columns: scheme, snr_db, uses, mean (accuracy, a fraction of 1, over seeds) with low, high, n and interval, and of
    images lost (fraction of 1), payload and headers (mean bytes of those that fitted).

    Raises:
        ConfigError: no run with a channel finished.
    """
    frame = study.runs[study.runs["status"] == "done"]
    if (noisy := frame[frame[KIND] != "ideal"]).empty:
        raise ConfigError("results: no run with a channel finished, whose SNR the others are shown at")
    trained = float(noisy[SNR].iloc[0])
    schemes = frame[KIND].map(lambda kind: FEATURES.get(kind, kind))
    runs = frame.assign(scheme=schemes, uses=frame["model.features"].astype(int) // 2)
    runs[SNR] = runs[SNR].astype(float).where(runs[KIND] != "ideal", trained)  # its images meet that of the others
    order = [name for name in (*FEATURES.values(), *runs["scheme"]) if name in set(runs["scheme"])]
    features = pd.concat([_average(runs[runs["scheme"] == name]) for name in dict.fromkeys(order)])
    return pd.concat([features, *_list_chains(runs[runs[KIND] == "ideal"])], ignore_index=True)


def _list_chains(sent: pd.DataFrame) -> list[pd.DataFrame]:
    """List the cells of the image chains from the runs without a channel, scheme by scheme."""
    found = []
    for column in [c for c in sent if c.startswith("images.") and c.endswith(".accuracy")]:
        _, chain, snr, uses, _ = column.split(".")
        if not sent.empty and float(snr) == float(sent[SNR].iloc[0]):
            point = sent.assign(scheme=CHAINS[chain], uses=int(uses), accuracy=sent[column])
            of_images = {name: float(sent[f"images.{chain}.{snr}.{uses}.{name}"].mean()) for name in MEASURES}
            found.append((list(CHAINS).index(chain), int(uses), _average(point).assign(**of_images)))
    return [cells for _, _, cells in sorted(found, key=lambda entry: entry[:2])]


def _average(runs: pd.DataFrame) -> pd.DataFrame:
    found = compute_means(runs.astype({"accuracy": float}), ["scheme", "uses"], "accuracy")
    cells = cut_intervals(found, ACCURACY)
    cells.insert(1, "snr_db", float(runs[SNR].iloc[0]))
    return cells


def describe_baselines(cells: pd.DataFrame, plot: Plot) -> str:
    """Explain points and lines."""
    snr_db, uses = cells[["snr_db", "uses"]].iloc[0]
    return (
        f"{describe_points(cells, plot)} The link is AWGN at {snr_db:g} dB. "
        "Images are compressed to what the uses carry with 5G's LDPC codes and QAM, and classified by the network that "
        "was trained without a channel, that of its last round; a lost one counts as its client's most frequent class. "
        f"Headers that are not sent are known to the receiver. Features take {uses:g} uses; thin lines go on at their "
        "level."
    )


WIRELESS_BASELINES = Drawing(
    name="wireless-baselines", experiment="wireless-baselines", plot=Plot(kind="lines", x="uses", hue="scheme"),
    numbers=average_baselines, caption=describe_baselines, shows=(KIND, TEST_SNR),
)  # fmt: skip
