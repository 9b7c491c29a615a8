"""Passes through encoders, counted as they happen: what a method says of itself and what it does may differ."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from unittest.mock import patch

from torch import Tensor

from semcom.engine.train.forward import Batch, StackedModel


@dataclass
class Passes:
    """Samples that went through encoders: `forward`, and those whose gradients came `backward` through them."""

    forward: int = 0
    backward: int = 0

    @property
    def work(self) -> int:
        """In forward passes."""
        return self.forward + 2 * self.backward


@contextmanager
def counted() -> Iterator[Passes]:
    """Counts the passes of everything within, padding left out. An encoder that is frozen has no backward pass."""
    passes, encode = Passes(), StackedModel.encode

    def counting(model: StackedModel, batch: Batch) -> Tensor:
        features, samples = encode(model, batch), int(batch.count.sum())
        passes.forward += samples

        def came_back(gradient: Tensor) -> None:
            passes.backward += samples

        if features.requires_grad:
            features.register_hook(came_back)
        return features

    with patch.object(StackedModel, "encode", counting):
        yield passes
