"""A client's frequent and rare classes, and what a model makes of each: the numbers of RepPer's Figs. 1 and 5.

The n classes of which a client has training images are sorted by their number, the most frequent first, and cut into
thirds: class i of these (from 0) is in third floor(3 (i + 1/2) / n). The thirds are ours: the paper speaks of head and
tail, and does not say where either begins.

Legend: K clients, C classes, n images, d features.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from experiments.measures.features import measure_separation

if TYPE_CHECKING:
    from semcom.runs.result.result import Result

GROUPS = ("head", "middle", "tail")
"""The thirds, the most frequent classes first."""
Groups = Mapping[str, Mapping[str, float]]
"""Third -> name of a number -> the number. A third of which there is nothing to be said lacks it."""


def split_in_thirds(counts: np.ndarray) -> np.ndarray:
    """Return the third of each client's classes, `[K, C]`: a place in `GROUPS`, or -1 for a class without images.

    Args:
        counts: training images of each client and class, `[K, C]`; of equal numbers the lower class comes first.
    """
    place = np.argsort(np.argsort(-counts, axis=1, kind="stable"), axis=1)
    owned = np.maximum((counts > 0).sum(1, keepdims=True), 1)
    return np.where(counts > 0, np.floor(3 * (place + 0.5) / owned).astype(int), -1)


def average_thirds(values: np.ndarray, third: np.ndarray, name: str) -> dict[str, dict[str, float]]:
    """Return the mean of some values in each third that has any; NaN counts as none.

    Args:
        values: any shape.
        third: the third of each of them, in the same shape.
        name: what they are called.
    """
    known = ~np.isnan(values)
    found = {group: values[known & (third == i)] for i, group in enumerate(GROUPS)}
    return {group: {name: float(of.mean())} for group, of in found.items() if len(of)}


def merge_tables(*parts: Groups) -> dict[str, dict[str, float]]:
    """Return the numbers of several tables as one."""
    names = [group for group in GROUPS if any(group in part for part in parts)]
    return {group: {k: v for part in parts for k, v in part.get(group, {}).items()} for group in names}


def measure_accuracy_of_thirds(confusion: np.ndarray, counts: np.ndarray) -> dict[str, dict[str, float]]:
    """Return the accuracy of each third, a fraction of 1: every class of every client that tests it counts the same.

    Args:
        confusion: test images of each client by (true, predicted) class, `[K, C, C]`.
        counts: training images of each client and class, `[K, C]`.
    """
    tested, right = confusion.sum(2), np.diagonal(confusion, axis1=1, axis2=2)
    share = np.where(tested > 0, right / np.maximum(tested, 1), np.nan)
    return average_thirds(share, split_in_thirds(counts), "accuracy")


def measure_silhouettes(features: np.ndarray, labels: np.ndarray, clients: np.ndarray) -> np.ndarray:
    """Return the silhouette of each image among the images of its own client, `[n]`.

    As `semcom.silhouette` has it, but clients are taken one by one: where encoders are the clients' own, features of
    different clients have nothing to do with each other. NaN for a client whose images are all of one class, or each
    of a class of its own, and for an image that is alone in its class, which scikit-learn gives 0.

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
    """Return how well the classes of a client lie apart among its received test features, in all and by thirds.

    Both are means of `measure_silhouettes` over the images: `silhouette`. In the first there are
    `silhouette_all` and `knn_purity` too, of the images of all clients together.
    """
    found, counts = result.features(), count_training_images(result)
    each = measure_silhouettes(found.received, found.labels, found.clients)
    of_image = split_in_thirds(counts)[found.clients, found.labels]
    of_all = measure_separation(found)
    whole = {"silhouette": float(np.nanmean(each)), "silhouette_all": of_all.pop("silhouette"), **of_all}
    return whole, average_thirds(each, of_image, "silhouette")


def count_training_images(result: Result) -> np.ndarray:
    """Return the training images of each client and class of a run, `[K, C]`."""
    from semcom.runs.result.artifacts import count_classes

    members = result.federation
    return count_classes(members, members.train, np.arange(len(members.train)))
