"""PSNR against test SNR: DeepJSCC trained in five ways, and the digital chain at as many channel uses."""

from __future__ import annotations

import pandas as pd

from semcom.plots.base import Drawing, Plot
from semcom.plots.points import describe_points
from semcom.studies.analysis.means import compute_means
from semcom.studies.analysis.study import Study
from semcom.studies.grid import TEST, TEST_SNR
from semcom.studies.names import METHODS

CHAINS = {
    "webp-free-best": "WebP, best scheme",
    "webp-free-fixed": "WebP, scheme for 10 dB",
    "webp-sent-best": "WebP with header",
}
"""Digital chain -> name of its line."""


def numbers(study: Study, plot: Plot) -> pd.DataFrame:
    """Return the mean PSNR at each test SNR, over seeds; of digital chains the share of lost images too."""
    learned = study.mean(["variant", TEST]).rename(columns={"variant": "scheme"})
    learned["scheme"] = [METHODS.get(name, name.capitalize()) for name in learned["scheme"]]
    runs = study.runs[(study.runs["variant"] == "local") & (study.runs["status"] == "done")]
    parts = [learned]
    for chain, name in CHAINS.items():
        for snr in dict.fromkeys(learned[TEST]):
            column = f"digital.{chain}.{snr:g}"
            if f"{column}.psnr" not in runs:
                continue
            point = runs.assign(scheme=name, **{TEST: snr, "psnr": runs[f"{column}.psnr"].astype(float)})
            cells = compute_means(point[["scheme", "seed", TEST, "psnr"]], ["scheme", TEST], "psnr")
            parts.append(cells.assign(lost=float(runs[f"{column}.lost"].mean())))
    return pd.concat(parts, ignore_index=True)


def caption(cells: pd.DataFrame, plot: Plot) -> str:
    """Return what the lines are."""
    return (
        f"{describe_points(cells, plot)} Trained over AWGN at 10 dB. Digital chains: the best quality that the "
        "uses carry with 5G's LDPC codes and QAM, headers known to the receiver unless said; a lost image is grey."
    )


DEEPJSCC_FEDERATED = Drawing(
    name="deepjscc-federated",
    experiment="deepjscc-federated",
    plot=Plot(kind="lines", x=TEST, y="psnr", hue="scheme"),
    numbers=numbers,
    caption=caption,
    shows=(TEST_SNR,),
)
"""The figure of the experiment of the same name."""
