"""Features as the base station receives them, on a plane: a panel for each method, a colour for each class."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib import colormaps, patheffects
from matplotlib.axes import Axes

from semcom.config import ConfigError
from semcom.plots.base import Kind, Plot, Styles
from semcom.plots.points import describe_panels, read_kept_arrays, tabulate_runs
from semcom.runs.folder.arrays import FEATURES
from semcom.runs.result.embedding import embedding, knn_purity, silhouette
from semcom.studies.analysis.compare import Views
from semcom.studies.analysis.study import Study
from semcom.studies.results.run import Stored

MOST = 2000
"""Images that are placed, evenly chosen: t-SNE takes a minute for five times as many."""
K = 10
"""Neighbours of the purity."""


def compute_embedding(study: Study, plot: Plot) -> pd.DataFrame:
    """Place test images on the plane of t-SNE, and measure how well the classes are separated among the features.

    Returns:
        Columns: the panels' field, x, y, class, client, and for the features, not the plane, the same in all rows of a
            panel: silhouette, purity, images (number of them).

    Raises:
        ConfigError: no run kept features, a panel has several runs, or no such view.
    """
    return tabulate_runs(study, plot, lambda run: place_images(run, plot.view))


def place_images(run: Stored, view: Views, client: int | None = None) -> pd.DataFrame:
    """Compute the rows of one run, with each image once: clients may share test images.

    Args:
        run: a run that kept features.
        view: as in `Plot`.
        client: client of the images (None: all clients).

    Raises:
        ConfigError: the run kept no such features, or not of enough images and classes.
    """
    kept, shown = read_kept_arrays(run, view, "received", FEATURES)
    name = f"received/{shown}"
    mine = np.flatnonzero(kept["samples/client"] == client) if client is not None else np.arange(len(kept[name]))
    once = mine[np.unique(kept["samples/image"][mine], return_index=True)[1]]  # clients may share a test image
    features, labels, clients = (kept[each][once] for each in (name, "samples/label", "samples/client"))
    classes = len(np.unique(labels))
    if not 1 < classes < len(once) or len(once) <= K:
        wanted = f"more than {K} images, two classes at least, and fewer than images"
        raise ConfigError(f"kind: embedding wants {wanted}; {run.variant} has {len(once)} images of {classes} classes")
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


def describe_embedding(cells: pd.DataFrame, plot: Plot) -> str:
    """Describe the dots, with silhouette and purity of the features."""

    def describe(part: pd.DataFrame) -> str:
        row = part.iloc[0]
        return f"silhouette {row['silhouette']:.3f}, purity {row['purity']:.3f}, {row['images']} images"

    of_each = describe_panels(cells, plot, describe)
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
    caption=describe_embedding,
    takes=("view",),
    facet="variant",
    columns=3,
    shared=False,
    of_y=False,
)
