"""Measure a model on a client's frequent and rare classes: the numbers of RepPer's Figs. 1 and 5.

The n classes with training images at a client are sorted by their number, the most frequent first, and cut into thirds:
class i of these (from 0) is in third floor(3 (i + 1/2) / n). The thirds are ours: the paper has head and tail, and does
not define where either begins.

Legend: K clients, C classes, n images, d features.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from semcom_papers.experiments.measures.features import measure_separation

if TYPE_CHECKING:
    from semcom.runs.result.result import Result

GROUPS = ("head", "middle", "tail")
"""The thirds, the most frequent classes first."""
Groups = Mapping[str, Mapping[str, float]]
"""Third -> name of a number -> the number. A third without values lacks it."""


def split_in_thirds(counts: np.ndarray) -> np.ndarray:
    """Find the third of each client's classes, `[K, C]`: a place in `GROUPS`, or -1 for a class without images.

    Args:
        counts: training images of each client and class, `[K, C]`; of equal numbers the lower class comes first.
    """
    place = np.argsort(np.argsort(-counts, axis=1, kind="stable"), axis=1)
    owned = np.maximum((counts > 0).sum(1, keepdims=True), 1)
    return np.where(counts > 0, np.floor(3 * (place + 0.5) / owned).astype(int), -1)


def average_thirds(values: np.ndarray, third: np.ndarray, name: str) -> dict[str, dict[str, float]]:
    """Average some values in each third; NaN values and empty thirds are left out.

    Args:
        values: any shape.
        third: third of each value, in the same shape.
        name: name of the average.
    """
    known = ~np.isnan(values)
    found = {group: values[known & (third == i)] for i, group in enumerate(GROUPS)}
    return {group: {name: float(of.mean())} for group, of in found.items() if len(of)}


def merge_tables(*parts: Groups) -> dict[str, dict[str, float]]:
    """Merge the numbers of several tables."""
    names = [group for group in GROUPS if any(group in part for part in parts)]
    return {group: {k: v for part in parts for k, v in part.get(group, {}).items()} for group in names}


def measure_accuracy_of_thirds(confusion: np.ndarray, counts: np.ndarray) -> dict[str, dict[str, float]]:
    """Measure the accuracy of each third, a fraction of 1: every class of every client that tests it counts the same.

    Args:
        confusion: test images of each client by (true, predicted) class, `[K, C, C]`.
        counts: training images of each client and class, `[K, C]`.
    """
    tested, right = confusion.sum(2), np.diagonal(confusion, axis1=1, axis2=2)
    share = np.where(tested > 0, right / np.maximum(tested, 1), np.nan)
    return average_thirds(share, split_in_thirds(counts), "accuracy")


def measure_silhouettes(features: np.ndarray, labels: np.ndarray, clients: np.ndarray) -> np.ndarray:
    """Measure the silhouette of each image among the images of its own client, `[n]`.

    Unlike in `semcom.silhouette`, clients are taken one by one: features of personal encoders are not comparable. NaN
    for a client whose images are all of one class, or each of another class, and for the only image of a class, for
    which scikit-learn has 0.

    Args:
        features: `[n, d]`.
        labels: classes, `[n]`.
        clients: whose images they are, `[n]`.
    """
    from sklearn.metrics import silhouette_samples

    found = np.full(len(labels), np.nan)
    for client in np.unique(clients):
        mine = clients == client
        if 2 <= len(np.unique(labels[mine])) < mine.sum():
            alone = np.bincount(labels[mine])[labels[mine]] == 1
            found[mine] = np.where(alone, np.nan, silhouette_samples(features[mine], labels[mine]))
    return found


def measure_separation_by_thirds(result: Result) -> tuple[dict[str, float], dict[str, dict[str, float]]]:
    """Measure the separation of a client's classes among its received test features, in all and by thirds.

    Both have `silhouette`, the mean of `measure_silhouettes` over the images. The first also has `silhouette_all` and
    `knn_purity`, of the images of all clients together.
    """
    found, counts = result.features(), count_training_images(result)
    each = measure_silhouettes(found.received, found.labels, found.clients)
    of_image = split_in_thirds(counts)[found.clients, found.labels]
    of_all = measure_separation(found)
    whole = {"silhouette": float(np.nanmean(each)), "silhouette_all": of_all.pop("silhouette"), **of_all}
    return whole, average_thirds(each, of_image, "silhouette")


def count_training_images(result: Result) -> np.ndarray:
    """Count the training images of each client and class of a run, `[K, C]`."""
    from semcom.runs.result.artifacts import count_artifact_classes

    members = result.federation
    return count_artifact_classes(members, members.train, np.arange(len(members.train)))
