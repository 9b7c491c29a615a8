"""The area under the ROC curve of test samples: how often a sample of a class scores higher on it than another one.

Hand and Till, "A Simple Generalisation of the Area Under the ROC Curve for Multiple Class Classification Problems",
Machine Learning 45, 2001, take all pairs of classes; here each class stands against all others, as PFLlib does.
Legend: n test samples of a client, C classes.
"""

from __future__ import annotations

import numpy as np
from torch import Tensor

from semcom.tasks.metric import Metric
from semcom.tasks.scores import ScoreMetric


class RocArea(ScoreMetric):
    """The mean area under the ROC curve of the classes that some samples of a client have and others have not."""

    metric = Metric("auc", "AUC")

    def compute(self, scores: Tensor, labels: Tensor) -> float:
        """Compute the macro average of `compute_roc_areas`."""
        return compute_roc_areas(scores.numpy(), labels.numpy())[0]


class RocAreaOfAll(ScoreMetric):
    """The area under the ROC curve of the scores for all classes together: PFLlib's "Averaged Test AUC"."""

    metric, by_samples = Metric("auc_micro", "AUC over all classes together"), True

    def compute(self, scores: Tensor, labels: Tensor) -> float:
        """Compute the micro average of `compute_roc_areas`."""
        return compute_roc_areas(scores.numpy(), labels.numpy())[1]


def compute_roc_areas(scores: np.ndarray, labels: np.ndarray) -> tuple[float, float]:
    """Compute the areas under the ROC curve of scores `[n, C]` and labels `[n]`; ties count half.

    Returns:
        macro: the mean over the classes that some samples have and others have not, NaN where there is none;
        micro: that of all n C scores together, of which n are for the sample's class.
    """
    from scipy.stats import rankdata  # takes half a second to import

    own = labels[:, None] == np.arange(scores.shape[1])
    told = own.any(0) & ~own.all(0)
    each = _compute_area(rankdata(scores[:, told], axis=0), own[:, told])
    micro = _compute_area(rankdata(scores)[:, None], own.reshape(-1, 1))
    return float(each.mean()) if len(each) else float("nan"), float(micro[0])


def _compute_area(ranks: np.ndarray, own: np.ndarray) -> np.ndarray:
    """Return Mann and Whitney's U over the number of pairs, for each column."""
    positive, negative = own.sum(0), (~own).sum(0)
    return ((ranks * own).sum(0) - positive * (positive + 1) / 2) / (positive * negative)
