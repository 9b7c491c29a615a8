"""FedALA: each client learns, number by number, how much of the global model's top layers to adopt.

Zhang, Hua, Wang, Song, Xue, Ma, Guan, "FedALA: Adaptive Local Aggregation for Personalized Federated Learning", AAAI
2023, Algorithm 1. Up and down: the whole model. The weights W_k of the top p parameter tensors stay (2: weight and bias
of a linear head). From round 2 on, local training starts at w_k + (w - w_k) W_k in these tensors, and at w below, with
w's BatchNorm statistics.

W_k starts at 1 and is kept. Before each training a client learns it by plain SGD at rate eta on a part s of its images,
drawn anew in each round, with the whole model in evaluation mode, and clips it into [0, 1] after each step: for one
epoch, and the first time until the standard deviation of the last 10 losses is below 0.1 (as in the authors' code).
`initialised`, the headline, is the mixed model before local training, which the authors test; `trained` is the model
after it.

`trained` can be below `initialised`, in the authors' procedure too: early epochs move the decision between a client's
two classes to and fro, and the mixture averages such models. A last mini-batch of a single image makes it worse, so
choose a batch size without a tiny rest.

Choices where the paper is silent: `cap` 100, the largest number of epochs in a client's first learning of W.

Departures: `p` counts parameter tensors, as in the authors' code (the paper: layers). From their code: the part is a
random subset, in one order in all epochs of a round (there: a random slice in the file's order); smaller last batches
are kept (there: dropped, in local training and tests too); steadiness is of the epochs' mean losses (there: of their
last mini-batches'); only the round's clients mix (there: all clients); `initialised` has the global model of the
round's start (there: the newest), so our curve lags by one round.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from semcom.channels.options import COUNT, NOT_NEGATIVE, SHARE, WHOLE, require
from semcom.config import ConfigError
from semcom.config.options import NOT_ZERO, Needs
from semcom.engine.store.population import Population
from semcom.engine.train.context import Context, Given
from semcom.engine.train.descent import Optimizer
from semcom.engine.train.forward import Batch, StackedModel
from semcom.engine.train.phase import Phase
from semcom.engine.train.view import View
from semcom.engine.world import World
from semcom.methods.base import Method, task_loss
from semcom.methods.parts.steady import train_until_steady


class FedALA(Method):
    """W <- clip(W - eta grad (w - w_k), 0, 1); then CE from the mixed model; w is averaged by p_k."""

    paper = "Zhang et al., AAAI 2023"
    preset = {"optimizer": "sgd", "lr": 0.005, "batch_size": 10, "rounds": 2000}
    averages = ("encoder.", "head.")
    shares = "encoder and head"
    personal = "encoder and head, weights W_k of the top p tensors"
    sends = "w up, w down"

    @dataclass(frozen=True)
    class Hyper(Method.Hyper):
        """The hyperparameters of FedALA."""

        needs: ClassVar[Needs] = {
            "eta": {"p": NOT_ZERO},
            **dict.fromkeys(("s", "cap"), {"p": NOT_ZERO, "eta": NOT_ZERO}),
        }

        eta: float = 1.0
        """eta: rate of W."""
        s: float = 0.8
        """s: part of a client's samples that W learns from."""
        p: int = 2
        """p: number of parameter tensors, counted from the top, that have weights."""
        cap: int = 100
        """Largest number of epochs in a client's first learning of W."""

        def check(self) -> None:
            """Check the signs and ranges."""
            for name, rule in {"eta": NOT_NEGATIVE, "s": SHARE, "p": WHOLE, "cap": COUNT}.items():
                require(name, getattr(self, name), rule)

    @dataclass(frozen=True)
    class State:
        """The global model, and the tensors of each client.

        Attributes:
            model: the global model, `[1, ...]`.
            initialised: each client's model at the start of its last training, `[K, ...]`.
            trained: each client's model after it, `[K, ...]`.
            weights: W, `[K, ...]`.
            learned: whether the client has learned W before, bool `[K]` on the host.
        """

        model: Population
        initialised: Population
        trained: Population
        weights: Population
        learned: Tensor

    def setup(self, world: World) -> FedALA.State:
        """Start with W = 1, which takes all of the global model."""
        model = world.population(shared=self.averages)
        names = model.parameters()
        if self.hyper.p > len(names):
            raise ConfigError(f"hyper.p: {self.hyper.p} is more than the {len(names)} parameter tensors of the model")
        weights = world.constant(names[::-1][: self.hyper.p], 1.0)  # names run from the input to the output
        return self.State(model, world.population(), world.population(), weights, torch.zeros(world.clients).bool())

    def round(self, state: FedALA.State, world: World) -> FedALA.State:
        """Learn W, train the mixed models locally, average by p_k (Algorithm 1).

        Round 1 mixes no models, since clients have no trained ones yet.
        """
        ids, learned = world.sample(), state.learned.clone()
        received = world.air.down(state.model.select(ids), self.averages)
        own, weights, start = state.trained.select(ids), state.weights.select(ids), received
        if world.round > 1 and self.hyper.p:
            if self.hyper.eta:
                epochs = np.where(learned[ids], 1, self.hyper.cap)
                weights = self.learn(weights, {"global": received, "own": own}, epochs, world)
            start = received.replaced(mix_fedala_models(received.named(), own.named(), weights.named()))
            learned[ids] = True
        trained = world.fit(start, self.objective).models
        model = state.model.share(world.air.average(trained, self.averages, world.weights(ids), since=received))
        initialised, trained = state.initialised.put(start), state.trained.put(trained)
        return self.State(model, initialised, trained, state.weights.put(weights), learned)

    def learn(self, weights: Population, models: dict[str, Population], most: np.ndarray, world: World) -> Population:
        """Learn W for at most so many epochs, `[n]`, which visit the same samples, and return it."""

        def epoch(some: Population, number: int) -> tuple[Population, Tensor]:
            better = world.fit(
                some,
                self.mixed_loss,
                train=tuple(weights.named()),
                given=Given(anchors=models),
                phase=Phase(str(number), stream="ala", epochs=1, fraction=self.hyper.s, log="ala"),
                optimizer=Optimizer("sgd", self.hyper.eta),
                project=lambda name, w: w.clamp(0, 1),
            )
            return better.models, better.log["loss"]

        weights, losses = train_until_steady(epoch, weights, most)
        world.report("ala/loss", losses)
        return weights

    def mixed_loss(self, model: StackedModel, batch: Batch, context: Context) -> Tensor:
        """Compute the CE of the mixed model, as a function of W only, per client, `[k]`."""
        received, own = (context.models[name].tensors for name in ("global", "own"))
        return task_loss(model(batch, {**received, **mix_fedala_models(received, own, model.params)})[1], batch)

    def views(self, state: FedALA.State, world: World) -> dict[str, View]:
        """Evaluate the mixed model before training as `initialised`, as the authors do, and after it as `trained`."""
        return {"initialised": View(state.initialised), "trained": View(state.trained)}


def mix_fedala_models(
    received: Mapping[str, Tensor], own: Mapping[str, Tensor], weights: Mapping[str, Tensor]
) -> dict[str, Tensor]:
    """Compute w_k + (w - w_k) W by name, for the tensors that have weights."""
    return {name: own[name] + (received[name] - own[name]) * w for name, w in weights.items()}
