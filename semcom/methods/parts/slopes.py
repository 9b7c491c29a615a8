"""Gradients of the cross-entropy that methods with inner loops take by hand."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from semcom.engine.store.population import Population
from semcom.engine.train.context import Context, Given, Gradient, Log
from semcom.engine.train.descent import Optimizer, compute_gradients
from semcom.engine.train.forward import Batch, StackedModel
from semcom.engine.train.phase import Phase
from semcom.engine.world import World
from semcom.methods.base import task_loss


def measure_slope(
    model: StackedModel, batch: Batch, at: Mapping[str, Tensor], *, track: bool = False
) -> tuple[Tensor, dict[str, Tensor]]:
    """Compute the cross-entropy `[k]` and its gradients with the leaves `at`.

    BatchNorm's running statistics move with `track`.
    """
    leaves = {name: t.detach().requires_grad_() for name, t in at.items()}
    loss = task_loss(model(batch, leaves, track=track)[1], batch)
    return loss, compute_gradients(loss, leaves)


def move_along(start: Mapping[str, Tensor], way: Mapping[str, Tensor], length: float) -> dict[str, Tensor]:
    """Compute start + length * way, leaf by leaf."""
    return {name: t.detach() + length * way[name] for name, t in start.items()}


def take_whole_gradient_step(world: World, pop: Population, rate: float) -> Population:
    """Take one step w - rate * grad CE(w) of each client on all of its training data, in training mode.

    The gradient is the sum of pieces of the mini-batch size, all at w, so that this takes no more memory than training.
    Running statistics stay.
    """
    sizes = world.tensor(world.sizes(pop.ids).astype(float))

    def piece(model: StackedModel, batch: Batch, context: Context) -> tuple[dict[str, Tensor], Log]:
        w = context.models["w"].tensors
        # At w and not at the model, which plain SGD has moved by the pieces before this one.
        loss, slopes = measure_slope(model, batch, {name: w[name].expand_as(t) for name, t in model.params.items()})
        share = batch.count / context.per_client["sizes"]
        return {name: share.view(-1, *[1] * (g.dim() - 1)) * g for name, g in slopes.items()}, {"loss": loss}

    given, phase = Given(per_client={"sizes": sizes}, anchors={"w": pop}), Phase(stream="whole", epochs=1)
    return world.fit(pop, Gradient(piece), given=given, phase=phase, optimizer=Optimizer("sgd", rate)).models
