"""Gradients of the cross-entropy that methods with inner loops take by hand."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from semcom.engine.store.population import Population
from semcom.engine.train.descent import Optimizer, gradients
from semcom.engine.train.fit import Context, Log
from semcom.engine.train.forward import Batch, StackedModel
from semcom.engine.world import World
from semcom.methods.base import task_loss


def slope(
    model: StackedModel, batch: Batch, at: Mapping[str, Tensor], *, track: bool = False
) -> tuple[Tensor, dict[str, Tensor]]:
    """Cross-entropy `[k]` and its gradients with the leaves `at`; BatchNorm's running statistics move with `track`."""
    leaves = {name: t.detach().requires_grad_() for name, t in at.items()}
    loss = task_loss(model(batch, leaves, track=track)[1], batch)
    return loss, gradients(loss, leaves)


def moved(start: Mapping[str, Tensor], way: Mapping[str, Tensor], length: float) -> dict[str, Tensor]:
    """start + length * way, leaf by leaf."""
    return {name: t.detach() + length * way[name] for name, t in start.items()}


def whole_step(world: World, pop: Population, rate: float) -> Population:
    """Each client's model w after one step w - rate * grad CE(w) on all of its training data, in training mode.

    The gradient is the sum of pieces of the mini-batch size, all at w, so that this takes no more memory than training.
    It counts as no training of the run, and running statistics stay.
    """
    sizes = world.tensor(world.federation.train.sizes[pop.ids]).to(world.dtype)

    def piece(model: StackedModel, batch: Batch, context: Context) -> tuple[dict[str, Tensor], Log]:
        w = context.models["w"].tensors
        loss, slopes = slope(model, batch, {name: w[name].expand_as(t) for name, t in model.params.items()})
        share = batch.count / context.rows["sizes"]
        return {name: share.view(-1, *[1] * (g.dim() - 1)) * g for name, g in slopes.items()}, {"loss": loss}

    with world.aside():
        return world.fit(
            pop,
            gradient=piece,
            rows={"sizes": sizes},
            anchors={"w": pop},
            epochs=1,
            optimizer=Optimizer("sgd", rate),
            stream="whole",
        )[0]
