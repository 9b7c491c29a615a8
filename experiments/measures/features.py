"""Measure the separation of classes among the features of the test images, and add it to summaries of runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

import semcom
from semcom.config import RunConfig
from semcom.studies.results.outcome import train_and_add_outcome

if TYPE_CHECKING:
    from semcom.runs.result.result import Features, Result


def train_and_measure_features(config: RunConfig) -> None:
    """Train; then store silhouette, 10-nearest-neighbour purity and power of the received features as `clusters`.

    The configuration has to keep `features`.
    """
    train_and_add_outcome(config, measure_clusters)


def measure_clusters(result: Result) -> dict[str, Any]:
    """Measure `clusters` of the test images' received features, all d of them, in the headline view."""
    found = result.features()
    return {"clusters": {**measure_separation(found), **measure_power(found)}}


def measure_separation(found: Features) -> dict[str, float]:
    """Measure silhouette and purity of received features, of all images together."""
    return {
        "silhouette": semcom.silhouette(found.received, found.labels),
        "knn_purity": semcom.knn_purity(found.received, found.labels, images=found.images),
    }


def measure_power(found: Features) -> dict[str, float]:
    """Measure how the power of received features divides, client by client; the result is the mean over clients.

    The power of a client's features, the mean of |z|^2, is the sum of three: |m|^2 with their mean m, common to all
    classes; the mean over images of |m_c - m|^2 with the mean m_c of the image's class, which separates classes; and
    the variance within classes, the noise of the channel among it.

    Returns:
        power_common and power_between: the first two, as fractions of the sum.
    """
    shares = [_divide_power(found, found.clients == client) for client in np.unique(found.clients)]
    common, between = np.mean(shares, axis=0)
    return {"power_common": float(common), "power_between": float(between)}


def _divide_power(found: Features, mine: np.ndarray) -> tuple[float, float]:
    """Measure both fractions of the power of one client's features; its images are `mine`, bool `[n]`."""
    z, labels = found.received[mine].astype(np.float64), found.labels[mine]
    whole, mean = np.square(z).sum(1).mean(), z.mean(0)
    of_class = {c: np.square(z[labels == c].mean(0) - mean).sum() for c in np.unique(labels)}
    return np.square(mean).sum() / whole, np.mean([of_class[c] for c in labels]) / whole
