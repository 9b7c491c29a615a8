"""FedGH: clients with encoders of their own, and a head that the base station trains on their prototypes.

Yi, Wang, Liu, Shi, Yu, "FedGH: Heterogeneous Federated Learning with Generalized Global Header", ACM Multimedia 2023,
Algorithm 1. Down: the global head phi, which overwrites the client's; the client then trains its whole model. Up: its
prototypes, d numbers per class that it owns. The base station trains phi by plain SGD at `server_lr`, one step per
(client, class) mean in one pass. `trained` is the model after local training, `personal` its encoder with the newest
phi.

Choices where the paper is silent: the order of the base station's steps, here by client id and class.

Departures: no gradients are clipped (the authors' script clips at 50), and a prototype is the mean over all of a
client's images of a class, measured in evaluation mode (the script: the mean of batches' means). The base station steps
phi, as in Algorithm 1 (the script steps the clients' optimiser, and phi stays). The preset omits the script's momentum
and weight decay.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from semcom.channels.options import NOT_NEGATIVE, require
from semcom.engine.store.population import Population
from semcom.engine.train.context import Context, Given
from semcom.engine.train.descent import Optimizer
from semcom.engine.train.forward import StackedModel
from semcom.engine.train.phase import Phase
from semcom.engine.train.view import View
from semcom.engine.world import World
from semcom.methods.base import Method
from semcom.methods.parts.prototypes import prototypes


class FedGH(Method):
    """The head is overwritten by phi, the whole model trained; phi learns from the class means of its features."""

    paper = "Yi et al., ACM Multimedia 2023"
    classifies = True
    preset = {
        "optimizer": "sgd", "lr": 0.01, "batch_size": 64, "rounds": 500, "local_epochs": 10, "participation": 0.1,
    }  # fmt: skip
    shares = "head"
    personal = "encoder"
    tells = "classes"
    sends = "prototypes up, phi down"
    unused = ("model.snr_input",)  # phi learns from means over clients, which have no SNR

    @dataclass(frozen=True)
    class Hyper(Method.Hyper):
        """The hyperparameters of FedGH."""

        server_lr: float = 0.01
        """Rate of the base station's SGD on its head; the run's schedule leaves it alone."""

        def check(self) -> None:
            """Check that the rate is not negative."""
            require("server_lr", self.server_lr, NOT_NEGATIVE)

    @dataclass(frozen=True)
    class State:
        """Encoders `[K, ...]` and phi `[1, ...]` in `model`; whole models after their last training in `trained`."""

        model: Population
        trained: Population

    def setup(self, world: World) -> FedGH.State:
        """Start from own encoders and one head for all."""
        return self.State(world.population(shared="head."), world.population())

    def round(self, state: FedGH.State, world: World) -> FedGH.State:
        """Train locally, send prototypes of the trained encoders, train phi on them in one pass (Algorithm 1)."""
        ids = world.sample()
        received = world.air.down(state.model.select(ids), "head.")
        trained = world.fit(received, self.objective).models
        means, _ = prototypes(world, trained)
        sent = world.air.send("up", "prototypes", means, ids, world.owned(ids).sum(1) * world.features)
        owned = world.owned(ids) & world.arrived(ids, "prototypes")[:, None]
        if not owned.any():  # all prototypes came after the deadline
            return self.State(state.model.put(trained), state.trained.put(trained))
        phi = world.fit(
            state.model.one("head."),
            self.server_objective,
            train="head.",
            given=Given(per_step=list_fedgh_pairs(sent, world.tensor(owned))),
            phase=Phase(stream="phi"),
            optimizer=Optimizer("sgd", self.hyper.server_lr),
        ).models
        return self.State(state.model.put(trained).share(phi.named("head.")), state.trained.put(trained))

    def server_objective(self, model: StackedModel, batch: None, context: Context) -> Tensor:
        """Compute the cross-entropy of one prototype, `[1]`."""
        logits = model.decode(context.per_step["means"].expand(1, 1, -1))
        return torch.nn.functional.cross_entropy(logits.squeeze(0), context.per_step["labels"], reduction="none")

    def views(self, state: FedGH.State, world: World) -> dict[str, View]:
        """Evaluate the models after local training as `trained`, their encoders with the newest phi as `personal`."""
        return {"trained": View(state.trained), "personal": View(state.model)}


def list_fedgh_pairs(means: Tensor, owned: Tensor) -> dict[str, Tensor]:
    """List the prototypes of owned classes with their labels: `[S, d]`, `[S, 1]`.

    Args:
        means: `[n, C, d]`.
        owned: bool `[n, C]`.
    """
    client, label = owned.nonzero(as_tuple=True)
    return {"means": means[client, label], "labels": label[:, None]}
