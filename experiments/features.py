"""Runs that leave two numbers for how well the classes lie apart among the features of the test images."""

from __future__ import annotations

import semcom
from experiments.fields import set_fields
from experiments.outcome import run_folder
from semcom.config import RunConfig, run_hash
from semcom.runs.folder import write_summary


def train_and_measure(config: RunConfig) -> None:
    """Train; then leave silhouette and 10-nearest-neighbour purity of the received features as `clusters`.

    All d features count, by Euclidean distance, of all test images of all clients, in the headline view. The training
    lies in a folder of its own: there is a summary only when both are done.

    Args:
        config: of the run; it has to keep its `features`.
    """
    folder = run_folder(config)
    result = semcom.run(set_fields(config, {"out": str(folder / "training")}))
    found = result.features()
    clusters = {
        "silhouette": semcom.silhouette(found.received, found.labels),
        "knn_purity": semcom.knn_purity(found.received, found.labels, images=found.images),
    }
    write_summary(folder, {**result.summary, "clusters": clusters, "hash": run_hash(config)})
