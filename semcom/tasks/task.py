"""The base class of the tasks.

Legend: k clients, b samples of each, C classes, N images.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, ClassVar

import torch
from torch import Tensor

from semcom.tasks.metric import Metric
from semcom.tasks.scores import ScoreMetric

if TYPE_CHECKING:
    from semcom.config import Resolved
    from semcom.data.federation import Federation


class Task(ABC):
    """Base class of the tasks; `@TASKS.register("name")` adds one.

    Attributes:
        metrics: how answers are judged, the headline first; `prepare` may add some.
        beside: metrics of all answers of a client that the run asks for too (`train.metrics`).
        classifies: whether an answer is a score for each class of the images: methods and last stages that work on
            classes need that.
        pictures: whether an answer is an image in [-1, 1], `[channels, size, size]`.
    """

    metrics: tuple[Metric, ...]
    beside: tuple[ScoreMetric, ...] = ()
    classifies: ClassVar[bool] = False
    pictures: ClassVar[bool] = False

    @property
    def judged(self) -> tuple[Metric, ...]:
        """All metrics of the run, the headline first."""
        return (*self.metrics, *(each.metric for each in self.beside))

    def prepare(self, config: Resolved) -> None:  # noqa: B027 - most tasks need nothing
        """Take what the task depends on from a resolved run, before any data are loaded.

        Raises:
            ConfigError: it cannot be asked of the run.
        """

    @abstractmethod
    def shape(self, federation: Federation) -> tuple[int, ...]:
        """Return the shape of an answer; a head may give as many numbers in one row."""

    @abstractmethod
    def target(self, federation: Federation, index: Tensor, dtype: torch.dtype) -> Tensor:
        """Return the right answers for images of a federation.

        Args:
            federation: images `[N, channels, size, size]` and labels `[N]`.
            index: which images, int64 of any shape.
            dtype: of real numbers.

        Returns:
            `[*index.shape, ...]`, on the federation's device.
        """

    @abstractmethod
    def loss(self, outputs: Tensor, target: Tensor) -> Tensor:
        """Return the loss of each sample, `[k, b]`.

        Args:
            outputs: of the head, `[k, b, ...]`.
            target: the right answers, `[k, b, ...]`.
        """

    @abstractmethod
    def measure(self, outputs: Tensor, target: Tensor) -> dict[str, Tensor]:
        """Return each of the metrics for each sample, `[k, b]` by name; arguments as for `loss`."""

    def target_bits(self, federation: Federation) -> float:
        """Return the bits of a right answer, which a client sends with its features when the base station trains."""
        return 0.0
