"""The area under the ROC curve of test samples: how often a sample of a class scores higher on it than other samples.

Hand and Till, "A Simple Generalisation of the Area Under the ROC Curve for Multiple Class Classification Problems",
Machine Learning 45, 2001, take all pairs of classes. Here each class stands against all others, as in PFLlib. Legend: n
test samples of a client, C classes.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from semcom.tasks.metric import Metric
from semcom.tasks.scores import ScoreMetric


class RocArea(ScoreMetric):
    """The mean area under the ROC curve of the classes that some samples of a client have and others have not."""

    metric = Metric("auc", "AUC")

    def compute(self, scores: Tensor, labels: Tensor) -> float:
        """Compute the mean of the classes' areas, with ties counted half; NaN if no class has both kinds of samples."""
        own = labels[:, None] == torch.arange(scores.shape[1])
        told = own.any(0) & ~own.all(0)
        return float(_compute_areas(scores[:, told], own[:, told]).mean()) if told.any() else math.nan


class RocAreaOfAll(ScoreMetric):
    """The area under the ROC curve of the scores for all classes together: PFLlib's "Averaged Test AUC"."""

    metric, by_samples = Metric("auc_micro", "AUC over all classes together"), True

    def compute(self, scores: Tensor, labels: Tensor) -> float:
        """Compute the area of all n C scores, n of them for the sample's class, with ties counted half."""
        own = labels[:, None] == torch.arange(scores.shape[1])
        return float(_compute_areas(scores.reshape(-1, 1), own.reshape(-1, 1))[0])


def _compute_areas(scores: Tensor, own: Tensor) -> np.ndarray:
    """Compute Mann and Whitney's U over the number of pairs, for each column of scores `[m, c]` and bool `[m, c]`."""
    from scipy.stats import rankdata  # takes half a second to import

    ranks, of = rankdata(scores.numpy(), axis=0), own.numpy()
    positive, negative = of.sum(0), (~of).sum(0)
    return ((ranks * of).sum(0) - positive * (positive + 1) / 2) / (positive * negative)
