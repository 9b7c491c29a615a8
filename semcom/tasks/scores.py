"""Metrics of all answers of a client to its test samples, which no mean over samples gives.

Legend: n test samples of a client, C classes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

import torch
from torch import Tensor

from semcom.tasks.metric import Metric

BINS = 15
"""Bins of confidences, of equal width."""


class ScoreMetric(ABC):
    """Base class of metrics for classification. Decorate a subclass with `@METRICS.register("name")` to add it.

    Attributes:
        metric: its name, the same as in the registry, and how it is printed.
        by_samples: whether the mean over clients weighs each by its test samples.
    """

    metric: ClassVar[Metric]
    by_samples: ClassVar[bool] = False

    @abstractmethod
    def compute(self, scores: Tensor, labels: Tensor) -> Tensor | float:
        """Compute the metric of one client. A client with NaN is left out of the mean.

        Args:
            scores: float32 `[n, C]` on the CPU. The largest is the answer.
            labels: int64 `[n]`.
        """


class _Top(ScoreMetric):
    k: ClassVar[int]

    def compute(self, scores: Tensor, labels: Tensor) -> Tensor:
        """Compute the share of samples whose class is among the k with the largest scores."""
        best = scores.argsort(stable=True, dim=1, descending=True)[:, : self.k]  # of equal ones the first, as an answer
        return (best == labels[:, None]).any(1).double().mean()


class Top2(_Top):
    """The share of samples whose class is among the two with the largest scores."""

    metric, k = Metric("top2", "top-2 accuracy", share=True, digits=1), 2


class Top3(_Top):
    """The share of samples whose class is among the three with the largest scores."""

    metric, k = Metric("top3", "top-3 accuracy", share=True, digits=1), 3


class Top5(_Top):
    """The share of samples whose class is among the five with the largest scores."""

    metric, k = Metric("top5", "top-5 accuracy", share=True, digits=1), 5


class CalibrationError(ScoreMetric):
    """The expected calibration error in 15 bins: how far confidences, the softmax of scores, are from accuracies.

    C. Guo, G. Pleiss, Y. Sun, K. Weinberger, "On Calibration of Modern Neural Networks", ICML 2017, Eq. 2 and 3: a bin
    has its upper edge.
    """

    metric = Metric("ece", "calibration error", higher=False, share=True, digits=1)

    def compute(self, scores: Tensor, labels: Tensor) -> Tensor:
        """Compute the mean over samples of |accuracy - mean confidence| in their bin; NaN without finite scores."""
        confidence = scores.double().softmax(-1).amax(-1)
        right = (scores.argmax(-1) == labels).double()
        of = torch.bucketize(confidence, torch.arange(1, BINS, dtype=torch.float64) / BINS)
        excess = torch.zeros(BINS, dtype=torch.float64).index_add(0, of, right - confidence)
        return excess.abs().sum() / len(labels)


class MacroF1(ScoreMetric):
    """The mean over classes of F1, the harmonic mean of precision and recall.

    Classes that a client neither tests nor answers with are left out.
    """

    metric = Metric("f1", "macro F1", share=True, digits=1)

    def compute(self, scores: Tensor, labels: Tensor) -> Tensor:
        """Compute the macro-averaged F1 score."""
        from torchmetrics.functional.classification import multiclass_f1_score

        return multiclass_f1_score(scores, labels, num_classes=scores.shape[1], average="macro")
