"""Analysis of features: maps onto a plane, and how well classes lie apart, by scikit-learn with fixed seeds.

Legend: n images, d features.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from semcom.config import ConfigError

Kind = Literal["tsne", "pca"]
PERPLEXITY = 30.0
"""Perplexity of t-SNE, scikit-learn's default, where there are enough images for it."""


def embedding(features: ArrayLike, *, kind: Kind = "tsne", seed: int = 0) -> np.ndarray:
    """Map features onto the plane.

    Args:
        features: `[n, d]`, n >= 3.
        kind: "tsne" (van der Maaten and Hinton, JMLR 2008; started from the principal components), or "pca", the two
            directions of largest variance.
        seed: of the draws; the same seed gives the same map on one machine.

    Returns:
        `[n, 2]`, float64.

    Raises:
        ConfigError: another kind, or no table of at least three rows and two columns of finite numbers.

    Example:
        >>> import numpy as np, semcom
        >>> semcom.embedding(np.eye(20), kind="pca").shape
        (20, 2)
    """
    x = _check_embedded_features(features, rows=3, columns=2)
    if kind == "pca":
        from sklearn.decomposition import PCA

        return PCA(n_components=2, svd_solver="full").fit_transform(x)
    if kind != "tsne":
        raise ConfigError(f"kind: {kind!r} is not one of tsne, pca")
    from sklearn.manifold import TSNE

    perplexity = min(PERPLEXITY, (len(x) - 1) / 3)
    return TSNE(n_components=2, init="pca", perplexity=perplexity, random_state=seed).fit_transform(x).astype(float)


def silhouette(features: ArrayLike, labels: ArrayLike) -> float:
    """Compute the mean silhouette of the classes, in [-1, 1]: 1 for tight classes far apart, near 0 where they overlap.

    Rousseeuw, J. Computational and Applied Mathematics 1987: per image (b - a) / max(a, b), with a the mean distance to
    the others of its class and b that to the nearest other class; 0 for an image that is alone in its class.

    Args:
        features: `[n, d]`.
        labels: classes, `[n]`: at least two, and fewer than n.

    Raises:
        ConfigError: features or labels of another shape, or too few or too many classes.

    Example:
        >>> import semcom
        >>> round(semcom.silhouette([[0.0], [0.1], [5.0], [5.1]], [0, 0, 1, 1]), 2)
        0.98
    """
    from sklearn.metrics import silhouette_score

    x, y = _check_labelled_features(features, labels)
    classes = len(np.unique(y))
    if not 2 <= classes < len(x):
        raise ConfigError(f"labels: {classes} classes among {len(x)} images; there must be two, and fewer than images")
    return float(silhouette_score(x, y))


def knn_purity(features: ArrayLike, labels: ArrayLike, *, k: int = 10, images: ArrayLike | None = None) -> float:
    """Compute the mean share of an image's k nearest neighbours (Euclidean, without itself) that are of its class.

    1 where classes lie apart; for labels drawn at random from C equally likely classes 1 / C is expected, if no image
    is there twice: where clients share test images, copies are each other's neighbours, whatever the classes.

    Args:
        features: `[n, d]`.
        labels: classes, `[n]`.
        k: number of neighbours, from 1 to n - 1.
        images: which image each row is of, `[n]`: rows of the same image are no neighbours (None: all are different).

    Raises:
        ConfigError: features, labels or images of another shape, another k, or an image with fewer than k neighbours.

    Example:
        >>> import semcom
        >>> semcom.knn_purity([[0.0], [0.1], [5.0], [5.1]], [0, 0, 1, 1], k=1)
        1.0
    """
    from sklearn.neighbors import NearestNeighbors

    x, y = _check_labelled_features(features, labels)
    if not 1 <= k < len(x):
        raise ConfigError(f"k: {k} neighbours among {len(x)} images; give 1 to {len(x) - 1}")
    image = np.arange(len(x)) if images is None else np.asarray(images)
    if image.shape != (len(x),):
        raise ConfigError(f"images: {list(image.shape)} is not one for each of {len(x)} rows")
    copies = int(np.unique(image, return_counts=True)[1].max()) - 1
    if k + copies >= len(x):
        raise ConfigError(
            f"k: {k} neighbours of other images, where {len(x)} rows have up to {copies} copies; give less"
        )
    nearest = NearestNeighbors(n_neighbors=k + copies).fit(x).kneighbors(return_distance=False)
    others = np.argsort(image[nearest] == image[:, None], axis=1, kind="stable")[:, :k]  # the nearest of other images
    nearest = np.take_along_axis(nearest, others, axis=1)
    return float((y[nearest] == y[:, None]).mean())


def _check_embedded_features(features: ArrayLike, rows: int = 1, columns: int = 1) -> np.ndarray:
    """Convert features to float64 `[n, d]`. Raises ConfigError for another shape, and unless all are finite."""
    x = np.asarray(features, dtype=np.float64)
    if x.ndim != 2 or len(x) < rows or x.shape[1] < columns:
        raise ConfigError(f"features: {list(x.shape)} is no table of at least {rows} rows and {columns} columns")
    if not np.isfinite(x).all():
        raise ConfigError("features: not all of them are finite")
    return x


def _check_labelled_features(features: ArrayLike, labels: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
    """Convert features to `[n, d]` and labels to `[n]`. Raises ConfigError if they do not fit together."""
    x, y = _check_embedded_features(features), np.asarray(labels)
    if y.shape != (len(x),):
        raise ConfigError(f"labels: {list(y.shape)} is not one for each of {len(x)} images")
    return x, y
