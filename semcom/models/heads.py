"""Semantic decoders: received features `[b, d]` -> class logits `[b, C]`."""

from __future__ import annotations

from torch import nn


def linear(features: int, classes: int) -> nn.Module:
    """One fully-connected layer: the FedCL letter's "fully-connected network with 10-unit outputs" at its smallest."""
    return nn.Sequential(nn.Linear(features, classes))


def mlp(features: int, classes: int) -> nn.Module:
    """Two fully-connected layers with ReLU between, `features` hidden units."""
    return nn.Sequential(nn.Linear(features, features), nn.ReLU(), nn.Linear(features, classes))
