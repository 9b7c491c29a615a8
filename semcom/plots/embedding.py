"""Features as the base station receives them, on a plane: a panel for each method, a colour for each class."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib import colormaps, patheffects
from matplotlib.axes import Axes

from semcom.config import ConfigError
from semcom.plots.base import Kind, Plot, Styles
from semcom.plots.points import check_panels
from semcom.runs.folder.arrays import FEATURES
from semcom.runs.result.embedding import embedding, knn_purity, silhouette
from semcom.studies.analysis.compare import Views, choose_view
from semcom.studies.analysis.study import Study
from semcom.studies.results.run import Stored

MOST = 2000
"""Images that are placed, evenly chosen: t-SNE takes a minute for five times as many."""
K = 10
"""Neighbours of the purity."""


def compute_embedding(study: Study, plot: Plot) -> pd.DataFrame:
    """Return the places of test images on the plane of t-SNE, and how well the classes lie apart among the features.

    Returns:
        Columns: the panels' field, x, y, class, client, and, of the features and not of the plane, the same in all rows
        of a panel: silhouette, purity, images (number of them).

    Raises:
        ConfigError: no run kept features, a panel has several runs, or no such view.
    """
    runs = study.runs[study.runs["status"] == "done"]
    check_panels(runs, plot)
    found = {run.hash: run for run in study.stored}
    panels = []
    for value, part in runs.groupby(plot.facet, sort=False):
        if len(part) > 1:
            seeds = ", ".join(map(str, part["seed"]))
            raise ConfigError(
                f"seed: a panel shows one run, and there are {seeds}; give one: --at seed={part['seed'].iloc[0]}"
            )
        panels.append(draw_embedding_panel(found[part["hash"].iloc[0]], plot.view).assign(**{str(plot.facet): value}))
    cells = pd.concat(panels, ignore_index=True)
    return cells[[str(plot.facet), *(name for name in cells if name != plot.facet)]]


def draw_embedding_panel(run: Stored, view: Views, client: int | None = None) -> pd.DataFrame:
    """Return the rows of one run, with each image once: clients may share test images.

    Args:
        run: that kept features.
        view: as of `Plot`.
        client: whose images are taken (None: those of all).

    Raises:
        ConfigError: the run kept no such features.
    """
    kept, shown = run.arrays(), choose_view(view, run.variant) or run.headline
    name = f"received/{shown}"
    if name not in kept:
        there = [each.removeprefix("received/") for each in kept if each.startswith("received/")]
        wanted = f"repeat it with semcom train ... --keep {FEATURES}" if not there else f"there are {', '.join(there)}"
        raise ConfigError(f"view: {run.variant} kept no features of {shown}; {wanted}")
    mine = np.flatnonzero(kept["samples/client"] == client) if client is not None else np.arange(len(kept[name]))
    once = mine[np.unique(kept["samples/image"][mine], return_index=True)[1]]
    features, labels, clients = (kept[each][once] for each in (name, "samples/label", "samples/client"))
    some = np.linspace(0, len(once) - 1, min(MOST, len(once))).round().astype(int)
    plane = embedding(features[some], seed=0)
    columns = {"x": plane[:, 0], "y": plane[:, 1], "class": labels[some], "client": clients[some]}
    of_features = {"silhouette": silhouette(features, labels), "purity": knn_purity(features, labels, k=K)}
    return pd.DataFrame(columns).assign(**of_features, images=len(once))


def draw_embedding(axes: Axes, cells: pd.DataFrame, plot: Plot, styles: Styles) -> None:
    """Draw a dot for each image, and the number of each class at the median of its dots, which is read in grey too."""
    classes = sorted(cells["class"].unique())
    colors = colormaps["tab10" if classes[-1] < 10 else "viridis"]
    axes.scatter(
        cells["x"], cells["y"], s=4, c=cells["class"], cmap=colors, vmin=-0.5,
        vmax=max(9, classes[-1]) + 0.5, linewidths=0, alpha=0.7,
    )  # fmt: skip
    for number, part in cells.groupby("class"):
        text = axes.text(part["x"].median(), part["y"].median(), str(number), ha="center", va="center", weight="bold")
        text.set_path_effects([patheffects.withStroke(linewidth=2, foreground="white")])
    axes.set_xticks([])
    axes.set_yticks([])
    axes.set_box_aspect(1)


def caption_embedding(cells: pd.DataFrame, plot: Plot) -> str:
    """Return what the dots are, and silhouette and purity of the features."""
    panels = cells.drop_duplicates(str(plot.facet)).to_dict("records")
    of_each = "; ".join(
        f"{plot.labels.place(str(plot.facet), row[str(plot.facet)])}: silhouette {row['silhouette']:.3f}, purity "
        f"{row['purity']:.3f}, {row['images']} images"
        for row in panels
    )
    return (
        "Features of test images as the base station receives them, on the plane of t-SNE (scikit-learn, "
        f"random_state 0; at most {MOST} images). The numbers are classes. Of the features, not of the plane, mean "
        f"silhouette and share of the {K} nearest neighbours that are of the same class: {of_each}."
    )


EMBEDDING = Kind(
    title="received features on the plane of t-SNE, a panel for each method (runs with --keep features)",
    tabled=False,
    numbers=compute_embedding,
    draw=draw_embedding,
    caption=caption_embedding,
    facet="variant",
    height=lambda cells, plot: 1.95,
    columns=3,
    shared=False,
    of_y=False,
)
