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
    """Base class of the tasks. Decorate a subclass with `@TASKS.register("name")` to add it.

    Attributes:
        metrics: metrics of each sample, the headline first. `prepare` may add some.
        beside: further metrics of all answers of a client, from `train.metrics`.
        classifies: whether an answer is a score for each class of the images, as methods and last stages that work on
            classes require.
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
        """Adapt the task to a resolved run, before any data are loaded.

        Raises:
            ConfigError: the run does not allow the task.
        """

    @abstractmethod
    def shape(self, federation: Federation) -> tuple[int, ...]:
        """Return the shape of an answer. A head may give as many numbers in one row."""

    @abstractmethod
    def target(self, federation: Federation, index: Tensor, dtype: torch.dtype) -> Tensor:
        """Look up the right answers for images of a federation.

        Args:
            federation: images `[N, channels, size, size]` and labels `[N]`.
            index: which images, int64 of any shape.
            dtype: of real numbers.

        Returns:
            `[*index.shape, ...]`, on the federation's device.
        """

    @abstractmethod
    def loss(self, outputs: Tensor, target: Tensor) -> Tensor:
        """Compute the loss of each sample, `[k, b]`.

        Args:
            outputs: of the head, `[k, b, ...]`.
            target: the right answers, `[k, b, ...]`.
        """

    @abstractmethod
    def measure(self, outputs: Tensor, target: Tensor) -> dict[str, Tensor]:
        """Compute each of the metrics for each sample, `[k, b]` by name; arguments as for `loss`."""

    def target_bits(self, federation: Federation) -> float:
        """Count the bits of a right answer, which a client sends with its features when the base station trains."""
        return 0.0
