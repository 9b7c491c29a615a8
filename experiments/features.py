"""Runs that leave two numbers for how well the classes lie apart among the features of the test images."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import semcom
from experiments.outcome import train_then
from semcom.config import RunConfig

if TYPE_CHECKING:
    from semcom.runs.result import Features, Result


def train_and_measure(config: RunConfig) -> None:
    """Train; then leave silhouette and 10-nearest-neighbour purity of the received features as `clusters`.

    Args:
        config: of the run; it has to keep its `features`.
    """
    train_then(config, clusters)


def clusters(result: Result) -> dict[str, Any]:
    """Return silhouette and purity of the test images' received features, all d of them, in the headline view."""
    return {"clusters": separation(result.features())}


def separation(found: Features) -> dict[str, float]:
    """Return silhouette and purity of received features, of all images together."""
    return {
        "silhouette": semcom.silhouette(found.received, found.labels),
        "knn_purity": semcom.knn_purity(found.received, found.labels, images=found.images),
    }
