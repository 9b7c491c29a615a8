"""Measure the loss of a method along its training: its gradients at every step, their noise, and their smoothness.

The loss is not implemented again here. A round is repeated in a world that records the arguments of `World.fit`: the
models, the loss with its inputs, the schedule. That loss is then measured client by client.

The loss of a client is the mean over its training images, in mini-batches as in training (BatchNorm needs them), with
one order and one realisation of the link, those of the stream `STREAM` in round 0. So it is the same function of the
weights in all rounds, and its gradient has no downlink noise. The steps of the training itself have their own batches
and noise.

Legend: P weights of a client's model, S steps of it in a round. Gradients are one vector, float64 `[P]`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from semcom.engine.host.keys import keyed
from semcom.engine.store.population import Population
from semcom.engine.train.context import Context, Fitted, Given, Gradient, Log, Objective
from semcom.engine.train.descent import Optimizer, compute_gradients
from semcom.engine.train.forward import Batch, StackedModel
from semcom.engine.train.phase import Phase
from semcom.engine.world import World
from semcom.methods.base import Method

STREAM = "landscape"
"""Stream of the order and the draws of a measured loss."""
Leaves = dict[str, Tensor]
"""The weights of one client, name -> `[1, ...]`."""


@dataclass(frozen=True)
class Call:
    """Arguments of a call of `World.fit`.

    Attributes:
        models, objective, given, phase, optimizer: with defaults filled in.
        options: the other arguments.
    """

    models: Population
    objective: Objective
    given: Given
    phase: Phase
    optimizer: Optimizer
    options: Mapping[str, Any]

    def of(self, client: int) -> Call:
        """Select the training of one client."""
        at = torch.as_tensor(np.searchsorted(self.models.ids, [client]))
        given = replace(
            self.given,
            per_client={name: t[at.to(t.device)] for name, t in self.given.per_client.items()},
            carry={name: t[at.to(t.device)] for name, t in self.given.carry.items()},
        )
        return replace(self, models=self.models.select(np.array([client])), given=given)

    def rate(self, client: int) -> float:
        """Read eta, the client's learning rate."""
        lr = self.optimizer.lr
        return float(lr[client] if isinstance(lr, tuple) else lr)


class _Enough(Exception):
    """Ends a method's round after its first training is recorded."""


class Listener(World):
    """A world that records the trainings of a method.

    Args:
        world: world with the draws that trains.
        first: whether the round ends before the first training.

    Attributes:
        calls: recorded calls in order.
    """

    def __init__(self, world: World, first: bool = False) -> None:
        vars(self).update(vars(world))
        self.first, self.calls = first, list[Call]()

    def fit(
        self,
        pop: Population,
        objective: Objective,
        *,
        given: Given | None = None,
        phase: Phase | None = None,
        optimizer: Optimizer | None = None,
        **options: Any,
    ) -> Fitted:
        """Record a training, then carry it out by `World.fit`."""
        call = Call(pop, objective, given or Given(), phase or Phase(), optimizer or self.optimizer(), options)
        self.calls.append(call)
        if self.first:
            raise _Enough
        return super().fit(pop, objective, given=given, phase=phase, optimizer=optimizer, **options)


def list_trainings(method: Method, state: Any, world: World) -> list[Call]:
    """List the trainings of the world's round from a State, by repeating the round."""
    listener = Listener(world)
    method.round(state, listener)
    return listener.calls


def find_next_training(method: Method, state: Any, world: World) -> Call:
    """Find the first training of the round after the world's, from the State that it begins with.

    The log of the world's round is lost.
    """
    tally, round_ = world.session.tally, world.round
    listener = Listener(world, first=True)
    tally.begin(round_ + 1)
    try:
        method.round(state, listener)
    except _Enough:
        return listener.calls[0]
    finally:
        tally.begin(round_)
    raise ValueError("the method trains nothing")


@dataclass(frozen=True)
class Step:
    """One step of a training: the weights before it, and its gradient.

    Attributes:
        leaves: name -> `[1, ...]`.
        gradient: of a mini-batch, with the noise of both directions, float64 `[P]`.
    """

    leaves: Leaves
    gradient: Tensor


def list_steps(world: World, call: Call) -> tuple[list[Step], Fitted]:
    """List the steps of a training of one client, or of a network of the base station, and its result."""
    taken: list[Step] = []

    def note(model: StackedModel, batch: Any, context: Context) -> tuple[dict[str, Tensor], Log]:
        loss, log = _evaluate_loss(call.objective, model, batch, context)
        grads = compute_gradients(loss, model.params)
        taken.append(Step({name: t.detach().clone() for name, t in model.params.items()}, flatten_leaves(grads)))
        return grads, {**log, "loss": loss}

    schedule: dict[str, Any] = {"phase": call.phase, "optimizer": call.optimizer}
    return taken, world.fit(call.models, Gradient(note), given=call.given, **schedule, **call.options)


@dataclass(frozen=True)
class Point:
    """A client's loss at some weights.

    Attributes:
        loss: in nat.
        log: the method's log.
        gradient: float64 `[P]`.
    """

    loss: float
    log: Mapping[str, float]
    gradient: Tensor


class Landscape:
    """The loss of one client in a round of a method, a function of the weights.

    Args:
        world: the run.
        call: the training of this client.
    """

    def __init__(self, world: World, call: Call) -> None:
        draws = copy(world.session.draws)
        draws.split, draws.round = False, 0  # exact gradients, and the same batches and noise in all rounds
        self.world, self.call = copy(world), call
        self.world.session = replace(world.session, draws=draws)
        self.size = float(world.sizes(call.models.ids)[0])

    def at(self, leaves: Mapping[str, Tensor]) -> Point:
        """Measure the loss and its gradient at some weights, name -> `[1, ...]`; the others are those of the call."""
        call, pop = self.call, self.call.models.replaced(leaves)
        sums = {f"{STREAM}/{name}": torch.zeros_like(t, dtype=torch.float64) for name, t in leaves.items()}

        def piece(model: StackedModel, batch: Batch, context: Context) -> tuple[dict[str, Tensor], Log]:
            loss, log = _evaluate_loss(call.objective, model, batch, context)
            grads = compute_gradients(loss, model.params)
            for name, grad in grads.items():
                context.carry[f"{STREAM}/{name}"].add_(grad, alpha=float(batch.count) / self.size)
            return {name: torch.zeros_like(grad) for name, grad in grads.items()}, {**log, "loss": loss}

        given = replace(call.given, carry={**call.given.carry, **sums})
        phase = replace(call.phase, name="", stream=STREAM, epochs=1, steps=None)
        options = {name: value for name, value in call.options.items() if name == "train"}
        fitted = self.world.fit(
            pop, Gradient(piece), given=given, phase=phase, optimizer=Optimizer("sgd", 0.0), **options
        )
        log = {name: float(t) for name, t in fitted.log.items()}
        return Point(
            log.pop("loss"), log, flatten_leaves({name: fitted.carried[f"{STREAM}/{name}"] for name in leaves})
        )


def select_leaves(pop: Population, leaves: Mapping[str, Tensor]) -> Leaves:
    """Select the tensors of one client with the names of `leaves`, `[1, ...]`."""
    return {name: t for name, t in pop.named().items() if name in leaves}


def flatten_leaves(tensors: Mapping[str, Tensor]) -> Tensor:
    """Join tensors into one vector, float64 `[P]`, in the order of their names."""
    return torch.cat([tensors[name].detach().double().flatten() for name in sorted(tensors)])


def weight_distance(one: Mapping[str, Tensor], other: Mapping[str, Tensor]) -> float:
    """Compute the Euclidean distance of two sets of weights with the same names."""
    return float((flatten_leaves(one) - flatten_leaves(other)).norm())


def measure_slopes(points: Sequence[Point], weights: Sequence[Leaves]) -> list[float]:
    """Compute the change of the gradient over the length of each step along a path: lower bounds of smoothness."""
    return [float((b.gradient - a.gradient).norm()) / length for a, b, way, length in _list_ways(points, weights)]


def measure_bends(points: Sequence[Point], weights: Sequence[Leaves]) -> list[float]:
    """Compute each step's loss above the tangent over half its squared length: lower bounds of smoothness too."""
    return [
        2 * (b.loss - a.loss - float(a.gradient @ way)) / length**2 for a, b, way, length in _list_ways(points, weights)
    ]


def _list_ways(points: Sequence[Point], weights: Sequence[Leaves]) -> Iterator[tuple[Point, Point, Tensor, float]]:
    """List both ends, the way and the length of each step with a length."""
    for i, (start, end) in enumerate(zip(weights[:-1], weights[1:], strict=True)):
        way = flatten_leaves(end) - flatten_leaves(start)
        if length := float(way.norm()):
            yield points[i], points[i + 1], way, length


def step_aside(leaves: Mapping[str, Tensor], length: float, *key: object) -> Leaves:
    """Move weights by `length` in a random direction, drawn by `key`."""
    drawn = {name: torch.randn(t.shape, generator=keyed(*key, name)).to(t) for name, t in leaves.items()}
    norm = float(flatten_leaves(drawn).norm())
    return {name: t + drawn[name] * (length / norm) for name, t in leaves.items()}


def _evaluate_loss(objective: Objective, model: StackedModel, batch: Any, context: Context) -> tuple[Tensor, Log]:
    """Evaluate an objective's loss and log. Raises TypeError for an objective that gives gradients instead."""
    if isinstance(objective, Gradient):
        raise TypeError("the method gives no loss but what it descends, and that has no theorem here")
    answer = objective(model, batch, context)
    return answer if isinstance(answer, tuple) else (answer, {})
