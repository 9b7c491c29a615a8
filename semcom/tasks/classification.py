"""Classification: the class of each image."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from semcom.tasks.metric import ACCURACY
from semcom.tasks.task import Task

if TYPE_CHECKING:
    from semcom.data.federation import Federation


class Classification(Task):
    """The class of each image, by cross-entropy; judged by accuracy."""

    metrics = (ACCURACY,)
    classifies = True

    def shape(self, federation: Federation) -> tuple[int, ...]:
        """Return `[C]`: a logit per class."""
        return (len(federation.classes),)

    def target(self, federation: Federation, index: Tensor, dtype: torch.dtype) -> Tensor:
        """Return the labels, int64."""
        return federation.labels[index]

    def loss(self, outputs: Tensor, target: Tensor) -> Tensor:
        """Compute the cross-entropy of logits `[k, b, C]` with labels `[k, b]`."""
        each = torch.nn.functional.cross_entropy(outputs.flatten(0, 1), target.flatten(), reduction="none")
        return each.view_as(target)

    def measure(self, outputs: Tensor, target: Tensor) -> dict[str, Tensor]:
        """Score right answers 1 and wrong answers 0."""
        return {"accuracy": (outputs.argmax(-1) == target).to(outputs.dtype)}

    def target_bits(self, federation: Federation) -> float:
        """Compute log2(C), the bits of a label."""
        return float(np.log2(len(federation.classes)))
