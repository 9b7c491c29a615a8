"""FedALA: each client learns, number by number, how much of the global model's top layers to take over.

Zhang, Hua, Wang, Song, Xue, Ma, Guan, "FedALA: Adaptive Local Aggregation for Personalized Federated Learning", AAAI
2023, Algorithm 1 and section "Adaptive Local Aggregation". Up and down: the whole model; the weights W_k stay.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from semcom.checks import COUNT, NOT_NEGATIVE, SHARE, WHOLE, require
from semcom.engine.fit import Context
from semcom.engine.forward import Batch, StackedModel
from semcom.engine.population import Population, average
from semcom.engine.visit import View
from semcom.engine.world import World
from semcom.methods.base import Method, task_loss

MEMORY, STEADY = 10, 0.1
"""A client's first learning of W ends when the standard deviation of its last 10 losses is below 0.1."""


class FedALA(Method):
    """Local training starts at w_k + (w - w_k) W_k in the top p tensors, and at w below."""

    paper = "Zhang et al., AAAI 2023"
    preset = {"optimizer": "sgd", "lr": 0.005, "batch_size": 10, "rounds": 2000}
    averages = ("encoder.", "head.")
    shares = "encoder and head"
    personal = "encoder and head, weights W_k of the top p tensors"
    sends = "w up, w down"

    @dataclass(frozen=True)
    class Hyper(Method.Hyper):
        """FedALA's hyperparameters."""

        eta: float = 1.0
        """eta: rate of W."""
        s: float = 0.8
        """s: part of a client's samples that W learns from."""
        p: int = 2
        """p: parameter tensors, counted from the top, that have weights."""
        cap: int = 100
        """Most epochs of a client's first learning of W."""

        def check(self) -> None:
            """Signs and ranges."""
            require("method.eta", self.eta, NOT_NEGATIVE)
            require("method.s", self.s, SHARE)
            require("method.p", self.p, WHOLE)
            require("method.cap", self.cap, COUNT)

    @dataclass(frozen=True)
    class State:
        """The global `model`, `[1, ...]`; of each client, `[K, ...]`: models as `initialised` and as `trained`, and the
        `weights` W; whether it has `learned` its W once, bool `[K]` on the host."""

        model: Population
        initialised: Population
        trained: Population
        weights: Population
        learned: Tensor

    def setup(self, world: World) -> FedALA.State:
        """W is 1: take all of the global model."""
        model = world.population(shared=self.averages)
        weights = world.constant(self._top(model), 1.0)
        return self.State(model, world.population(), world.population(), weights, torch.zeros(world.clients).bool())

    def round(self, state: FedALA.State, world: World) -> FedALA.State:
        """Algorithm 1; in round 1 there is nothing to aggregate yet."""
        ids = world.sample()
        received = world.air.down(state.model.rows(ids), self.averages)
        own, weights, learned = state.trained.rows(ids), state.weights.rows(ids), state.learned.clone()
        start = received
        if world.round > 1 and self.hyper.p:
            weights = self._learn(world, weights, {"global": received, "own": own}, learned[ids].numpy())
            learned[ids] = True
            start = received.replaced(mixed(received.named(), own.named(), weights.named()))
        trained, _, _ = world.fit(start, self.objective)
        newest = average(world.air.up(trained, self.averages), self.averages, world.weights(ids))
        return self.State(
            state.model.share(newest),
            state.initialised.put(start),
            state.trained.put(trained),
            state.weights.put(weights),
            learned,
        )

    def _top(self, model: Population) -> tuple[str, ...]:
        """Names of the top p parameter tensors."""
        names = model.parameters()
        return names[len(names) - min(self.hyper.p, len(names)) :]

    def _learn(
        self, world: World, weights: Population, models: dict[str, Population], learned: np.ndarray
    ) -> Population:
        """One epoch of W; on a client's first time, epochs until its losses are steady."""
        losses, going = np.full((0, len(learned)), np.nan), np.full(len(learned), True)
        while going.any():
            some = weights.rows(weights.ids[going])
            better, log, _ = world.fit(
                some,
                self.weights_objective,
                train=tuple(weights.named()),
                anchors=models,
                fraction=self.hyper.s,
                epochs=1,
                optimizer=world.optimizer(name="sgd", lr=self.hyper.eta, momentum=0.0, weight_decay=0.0),
                project=lambda name, w: w.clamp(0, 1),
                stream="ala",
            )
            weights, row = weights.put(better), np.full(len(learned), np.nan)
            row[going] = log["loss"].cpu().numpy()
            losses = np.concatenate([losses, row[None]])
            going &= ~learned & ~steady(losses) & (len(losses) < self.hyper.cap)
        return weights

    def weights_objective(self, model: StackedModel, batch: Batch, context: Context) -> Tensor:
        """CE of the mixed model as a function of W alone."""
        received, own = (context.models[name].tensors for name in ("global", "own"))
        return task_loss(model(batch, {**received, **mixed(received, own, model.params)})[1], batch)

    def views(self, state: FedALA.State, world: World) -> dict[str, View]:
        """`initialised`: after the aggregation and before training, as the authors test; `trained`: after it."""
        return {"initialised": View(state.initialised), "trained": View(state.trained)}


def mixed(received: dict[str, Tensor], own: dict[str, Tensor], weights: dict[str, Tensor]) -> dict[str, Tensor]:
    """w_k + (w - w_k) W by name, for the tensors that have weights."""
    return {n: own[n] + (received[n] - own[n]) * w for n, w in weights.items()}


def steady(losses: np.ndarray) -> np.ndarray:
    """Whether the last losses of each client, `[epochs, n]`, hardly move: bool `[n]`."""
    last = losses[-MEMORY:]
    return last.std(0) < STEADY if len(losses) > MEMORY else np.full(losses.shape[1], False)
