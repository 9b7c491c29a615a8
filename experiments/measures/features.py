"""Runs that leave numbers for how well the classes lie apart among the features of the test images."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

import semcom
from semcom.config import RunConfig
from semcom.studies.results.outcome import train_and_add_outcome

if TYPE_CHECKING:
    from semcom.runs.result.result import Features, Result


def train_and_measure_features(config: RunConfig) -> None:
    """Train; then leave silhouette, 10-nearest-neighbour purity and `power` of the received features as `clusters`.

    Args:
        config: of the run; it has to keep its `features`.
    """
    train_and_add_outcome(config, measure_clusters)


def measure_clusters(result: Result) -> dict[str, Any]:
    """Return those numbers of the test images' received features, all d of them, in the headline view."""
    found = result.features()
    return {"clusters": {**measure_separation(found), **measure_power(found)}}


def measure_separation(found: Features) -> dict[str, float]:
    """Return silhouette and purity of received features, of all images together."""
    return {
        "silhouette": semcom.silhouette(found.received, found.labels),
        "knn_purity": semcom.knn_purity(found.received, found.labels, images=found.images),
    }


def measure_power(found: Features) -> dict[str, float]:
    """Return how the power of received features divides, client by client, as the mean over clients.

    The power of a client's features, the mean of |z|^2, is the sum of three: |m|^2 with their mean m, which all classes
    have in common; the mean over images of |m_c - m|^2 with the mean m_c of the image's class, which tells classes
    apart; and what features differ by within a class, the noise of the channel among it.

    Returns:
        power_common and power_between: the first two, as parts of all.
    """
    shares = [_power(found, found.clients == client) for client in np.unique(found.clients)]
    common, between = np.mean(shares, axis=0)
    return {"power_common": float(common), "power_between": float(between)}


def _power(found: Features, mine: np.ndarray) -> tuple[float, float]:
    """Return both parts of the power of one client's features, whose images are `mine`, bool `[n]`."""
    z, labels = found.received[mine].astype(np.float64), found.labels[mine]
    whole, mean = np.square(z).sum(1).mean(), z.mean(0)
    of_class = {c: np.square(z[labels == c].mean(0) - mean).sum() for c in np.unique(labels)}
    return np.square(mean).sum() / whole, np.mean([of_class[c] for c in labels]) / whole
