"""The semantic centroid generator of the FedCL letter (section II-B)."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from semcom.models.stacks import for_stacks


@for_stacks
class SCG(nn.Module):
    """Two fully-connected layers with ReLU between, from one random vector per class to one centroid per class.

    The letter draws the vectors once ("randomly initialize each global semantic centroid vector"). They are a buffer,
    so only the layers are trained. Both layers have `features` outputs, as the letter states for 64.

    Args:
        classes: C.
        features: d.
    """

    vectors: Tensor

    def __init__(self, classes: int, features: int) -> None:
        super().__init__()
        self.register_buffer("vectors", nn.init.normal_(torch.empty(classes, features)))
        self.layers = nn.Sequential(nn.Linear(features, features), nn.ReLU(), nn.Linear(features, features))

    def forward(self) -> Tensor:
        """Compute the centroids `[C, d]`."""
        return self.layers(self.vectors)
