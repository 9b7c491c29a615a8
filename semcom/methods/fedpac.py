"""FedPAC: prototypes align the features, and heads are combined for each client.

Xu, Tong, Huang, "Personalized Federated Learning with Feature Alignment and Classifier Collaboration", ICLR 2023,
Algorithm 1. Up: encoder and head; d numbers of a prototype, d of h and a count per class that a client owns; V. Down:
encoder, the client's combined head, the global prototypes.

Before training, each client measures the received body's features: `h = [p_c mu_c]`, the class means times the classes'
shares, and V, their variance over the number of samples. It trains the head for `head_epochs` at `head_lr`, then the
body for E epochs on CE + lam MSE to the global prototypes, from round 2 on (a class without one has the client's own
mean). The base station averages bodies by p_k and prototypes by counts. It combines heads for client i by the weights a
on the simplex that minimise `a'Pa`, `P_jl = V_j [j = l] + <h_i - h_j, h_i - h_l>`. Weights up to 1e-3 are dropped and
the others scaled to sum 1. A client for which the solver fails keeps its own head, as all do with `collaboration` off.
Tests combine the averaged encoder and the combined heads; `trained` is each client's model as its last training left
it, which the authors' code measures too.

Choices where the paper is silent: the head has the run's rate (`head_lr`; the authors' code: 0.1).

Departures: head and body train in training mode (the authors' code: in evaluation mode, as it measures statistics and
prototypes; its networks behave alike in both). A class whose owners are all absent keeps its global prototype (the code
forgets it). The weights solve a non-negative least-squares problem, where the code has a general solver.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from semcom.channels.options import NOT_NEGATIVE, POSITIVE, WHOLE, require
from semcom.config.options import NOT_ZERO, Needs
from semcom.engine.store.population import Population, mix
from semcom.engine.train.context import Context, Given, Log
from semcom.engine.train.forward import Batch, StackedModel
from semcom.engine.train.phase import Phase
from semcom.engine.train.view import View
from semcom.engine.world import World
from semcom.methods.base import Method, task_loss
from semcom.methods.fedavg import FedAvg
from semcom.methods.parts.collaboration import compute_class_statistics, solve_head_weights
from semcom.methods.parts.prototypes import Prototypes, compute_prototype_moments, prototypes, squared_distance


class FedPAC(FedAvg):
    """Body: CE + lambda MSE(f, prototype of its class), from round 2; f is the received feature. Head: CE."""

    paper = "Xu et al., ICLR 2023"
    classifies = True
    preset = {
        "optimizer": "sgd", "lr": 0.01, "momentum": 0.5, "weight_decay": 5e-4,
        "batch_size": 50, "local_epochs": 5, "rounds": 200,
    }  # fmt: skip
    averages = ("encoder.",)
    unused = ("air.privacy", "air.compress=top-k", "air.repeat", "train.deadline_s")  # each head is combined of all
    shares = "encoder, class prototypes"
    personal = "head, a combination of the clients'"
    tells = "counts"
    sends = "encoder, head, prototypes, counts, V and h up; encoder, combined head and prototypes down"

    @dataclass(frozen=True)
    class Hyper(Method.Hyper):
        """The hyperparameters of FedPAC."""

        needs: ClassVar[Needs] = {"head_lr": {"head_epochs": NOT_ZERO}}

        lam: float = 1.0
        """lambda: weight of the distance to the global prototypes."""
        head_epochs: int = 1
        """Epochs on the head in a round, before the `train.local_epochs` on the body."""
        head_lr: float | None = None
        """Learning rate of the head (None: the run's; the authors take 0.1, beside 0.01 for the body)."""
        collaboration: bool = True
        """Combination of heads; without it (the authors' ablation) a client keeps its own, which then is not sent."""

        def check(self) -> None:
            """Check the signs and ranges."""
            require("lam", self.lam, NOT_NEGATIVE)
            require("head_epochs", self.head_epochs, WHOLE)
            require("head_lr", self.head_lr, POSITIVE)

    @dataclass(frozen=True)
    class State(FedAvg.State):
        """The models and prototypes.

        Attributes:
            model: the encoder `[1, ...]` and heads `[K, ...]`.
            prototypes: the global ones.
            trained: whole models after training, `[K, ...]`.
        """

        prototypes: Prototypes
        trained: Population

    def __init__(self, hyper: FedPAC.Hyper) -> None:
        super().__init__(hyper)
        self.crosses = ("encoder.", "head.") if hyper.collaboration else ("encoder.",)

    def setup(self, world: World) -> FedPAC.State:
        """Start from a common encoder and own heads, without any prototype."""
        return self.State(world.population(shared=self.averages), Prototypes.none(world), world.population())

    def objective(self, model: StackedModel, batch: Batch, context: Context) -> tuple[Tensor, Log]:
        """Compute the body's loss per client, `[k]`; the mean squared error is over samples and features."""
        features, logits = model(batch)
        distance = squared_distance(features, context.per_client["targets"], context.common["known"], batch)
        task, distance = task_loss(logits, batch), distance / features.shape[-1]
        return task + self.hyper.lam * distance, {"task": task, "distance": distance}

    def round(self, state: FedPAC.State, world: World) -> FedPAC.State:
        """Train heads, then bodies. Average bodies by p_k, combine heads, align prototypes (Algorithm 1)."""
        ids = world.sample()
        received = world.air.down(state.model.select(ids), self.crosses)
        before = compute_prototype_moments(world, received, "statistics")
        trained = self.train(state, received, before[0], world)
        newest = world.air.average(trained, self.averages, world.weights(ids), since=received)
        heads = trained
        if self.hyper.collaboration:
            heads = self.combined(world.air.up(trained, "head.", since=received), *before, world)
        model = state.model.put(heads).share(newest)
        return self.State(model, self.aligned(state.prototypes, trained, world), state.trained.put(trained))

    def views(self, state: FedPAC.State, world: World) -> dict[str, View]:
        """Evaluate as `FedAvg` does, and the models of each client's last training as `trained`."""
        return super().views(state, world) | {"trained": View(state.trained)}

    def train(self, state: FedPAC.State, received: Population, own: Tensor, world: World) -> Population:
        """Train the head, then the body.

        A class's target is the global prototype, or the client's `own` mean if the class has no prototype.
        """
        common, known = state.prototypes.down(world, received.ids), world.tensor(state.prototypes.known)
        if self.hyper.head_epochs:
            rate, epochs = world.optimizer(lr=self.hyper.head_lr), self.hyper.head_epochs
            task = super().objective
            head = Phase("head", epochs=epochs)
            received = world.fit(received, task, train="head.", phase=head, optimizer=rate).models
        given = Given(
            per_client={"targets": torch.where(known[:, None], common, own)},
            common={"known": known.any().expand_as(known)},  # all or, in round 1, none
        )
        return world.fit(received, self.objective, train="encoder.", given=given).models

    def combined(self, sent: Population, means: Tensor, counts: Tensor, squares: Tensor, world: World) -> Population:
        """Combine the participants' heads for each of their models."""
        ids, owned = sent.ids, world.owned(sent.ids)
        h, variance = compute_class_statistics(means, counts, squares)
        h = world.air.send("up", "h", h, ids, owned.sum(1) * world.features) * world.tensor(owned)[..., None]
        # The noise of the uplink may turn a variance negative.
        variance = world.air.send("up", "variance", variance, ids, np.ones(len(ids))).clamp(min=0)
        return mix(sent, solve_head_weights(h, variance), "head.")

    def aligned(self, before: Prototypes, trained: Population, world: World) -> Prototypes:
        """Update the global prototypes after the round."""
        ids, (means, counts) = trained.ids, prototypes(world, trained)
        sent = world.air.send("up", "counts", counts, ids, world.owned(ids).sum(1))
        # Noise may reach a count, but a class that a client owns has a sample.
        return before.up(world, ids, means, sent.clamp(min=1) * world.tensor(world.owned(ids)), "counts")
