"""The inputs of a training beside the models, and its result.

Legend: n clients in training, k of them in a chunk, S steps.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from semcom.engine.store.population import Population
from semcom.engine.train.forward import Batch, StackedModel

Log = dict[str, Tensor]
"""The logged values: name -> a value per client."""


@dataclass(frozen=True)
class Given:
    """The inputs that a method hands to its objective; they come back, cut to the chunk and the step, as the `Context`.

    Attributes:
        per_client: tensors per client, `[n, ...]`, in the order of the population's ids.
        common: tensors that all clients have in common.
        per_step: tensors per step, `[S, ...]`, for a network of the base station, which trains without clients' data.
        carry: accumulators per client, `[n, ...]`, that the objective changes in place; a changed copy is returned.
        anchors: other models of the clients, for their weights.
        frozen: other models of the clients that are called on batches: each has its own draws of the link.
    """

    per_client: Mapping[str, Tensor] = field(default_factory=dict)
    common: Mapping[str, Tensor] = field(default_factory=dict)
    per_step: Mapping[str, Tensor] = field(default_factory=dict)
    carry: Mapping[str, Tensor] = field(default_factory=dict)
    anchors: Mapping[str, Population] = field(default_factory=dict)
    frozen: Mapping[str, Population] = field(default_factory=dict)


@dataclass(frozen=True)
class Context:
    """The inputs of an objective besides the model and the batch.

    Attributes:
        per_client: those of `Given`, without gradients, `[k, ...]` each.
        common: those of `Given`.
        per_step: those of `Given` for this step.
        carry: those of `Given`, `[k, ...]`.
        models: anchors and frozen models, in evaluation mode.
        takes: further mini-batches of the step.
    """

    per_client: Mapping[str, Tensor]
    common: Mapping[str, Tensor]
    per_step: Mapping[str, Tensor]
    carry: Mapping[str, Tensor]
    models: Mapping[str, StackedModel]
    takes: Mapping[str, Batch]


Loss = Callable[[StackedModel, Any, Context], "Tensor | tuple[Tensor, Log]"]
"""`(model, batch, context) -> loss [k]`, or that and further logged values, name -> `[k]`."""


@dataclass(frozen=True)
class Gradient:
    """A function that returns the direction of descent in place of a loss: for methods with an inner loop.

    Attributes:
        of: `(model, batch, context) -> ({leaf: [k, ...]}, {"loss": [k], ...})`.
        passes: number of passes over the mini-batches of a step, forward and back, for the time that they take (None:
            one over each).
    """

    of: Callable[[StackedModel, Any, Context], tuple[dict[str, Tensor], Log]]
    passes: int | None = None


Objective = Loss | Gradient


@dataclass(frozen=True)
class Fitted:
    """The result of a training.

    Attributes:
        models: the trained population, in the order of the given population.
        log: means of the loss and of logged values over the last epoch, `[n]` each.
        carried: the accumulators of `Given.carry`, `[n, ...]`.
        optimizer_state: the optimiser's, after the last step; empty unless a state was given.
    """

    models: Population
    log: Log
    carried: dict[str, Tensor]
    optimizer_state: Population = Population(())
