"""FedBABU: the body is trained and averaged; the head is random, common and frozen until fine-tuning.

Oh, Kim, Yun, "FedBABU: Towards Enhanced Representation for Federated Image Classification", ICLR 2022, Algorithm 1. Up
and down: the encoder. All clients know the head from the start, whatever `model.init` says, and no optimiser or weight
decay touches it. `global` is the model after the last round. Each client then fine-tunes a copy of body and head from
the aggregated body, for 5 epochs as in the paper.

Choices where the paper is silent: none known.

Departures: bodies are averaged by p_k (the authors' code: plain mean).
"""

from __future__ import annotations

from semcom.engine.store.population import Population
from semcom.engine.train.view import View
from semcom.engine.world import World
from semcom.methods.fedavg import FedAvg
from semcom.methods.parts.heads import fine_tuned


class FedBABU(FedAvg):
    """E epochs of CE on the body under one fixed head; the bodies are averaged by p_k."""

    paper = "Oh et al., ICLR 2022"
    preset = {
        "optimizer": "sgd", "lr": 0.1, "momentum": 0.9, "lr_milestones": (17, 25), "lr_decay": 0.1,
        "rounds": 32, "local_epochs": 10, "batch_size": 50, "participation": 0.1,
    }  # fmt: skip
    averages = ("encoder.",)
    finishing = {"epochs": 5}
    unused = ("model.init",)
    shares = "encoder, and the initial head"
    personal = "a fine-tuned copy of the model"
    sends = "theta up, theta down"

    def setup(self, world: World) -> FedAvg.State:
        """Start from common weights, the head's for good."""
        return self.State(world.population(shared=FedAvg.averages))

    def local(self, received: Population, state: FedAvg.State, world: World) -> Population:
        """Train E epochs on the body."""
        return world.fit(received, self.objective, train=self.averages).models

    def views(self, state: FedAvg.State, world: World) -> dict[str, View]:
        """Evaluate the aggregated body with the initial head as `global`."""
        return {"global": View(state.model)}

    def finish(self, state: FedAvg.State, world: World) -> dict[str, View]:
        """Evaluate `global`, and each client's fine-tuned copy of it as `personal`."""
        tuned = fine_tuned(world, state.model, FedAvg.averages, self.finishing["epochs"])
        return {**self.views(state, world), "personal": View(tuned)}
