"""MOON: a contrast between models keeps local features near the global model's.

Li, He, Song, "Model-Contrastive Federated Learning", CVPR 2021, Algorithm 1. Up and down: the whole model. The loss is
`CE + mu CE([cos(z, z_global), cos(z, z_previous)] / tau, label 0)`, z the received feature. The two other models are
frozen and in evaluation mode; their features cross the link with noise of their own. `previous` is the client's model
after its last participation, at first its initial model; in round 1, where that is also the global one, the contrast
has no gradient over an ideal link.

Choices where the paper is silent: none known. `mu` 5.0 is its value for CIFAR-10 (1 for CIFAR-100).

Departures: no projection head (the authors' has two layers), so that all methods share one network. Features are those
that the base station receives.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor

from semcom.channels.options import NOT_NEGATIVE, POSITIVE, require
from semcom.config.options import NOT_ZERO, Needs
from semcom.engine.store.population import Population
from semcom.engine.train.context import Context, Given, Log
from semcom.engine.train.forward import Batch, StackedModel
from semcom.engine.world import World
from semcom.methods.base import Method, task_loss
from semcom.methods.fedavg import FedAvg


class Moon(FedAvg):
    """CE + mu CE([cos(z, z_global), cos(z, z_previous)] / tau, label 0)."""

    paper = "Li et al., CVPR 2021"
    preset = {
        "optimizer": "sgd", "lr": 0.01, "momentum": 0.9, "weight_decay": 1e-5,
        "rounds": 100, "local_epochs": 10, "batch_size": 64,
    }  # fmt: skip

    @dataclass(frozen=True)
    class Hyper(Method.Hyper):
        """The hyperparameters of MOON."""

        needs: ClassVar[Needs] = {"tau": {"mu": NOT_ZERO}}

        mu: float = 5.0
        """Weight of the contrast (the paper: 5 on CIFAR-10, 1 on CIFAR-100)."""
        tau: float = 0.5
        """Temperature of the contrast."""

        def check(self) -> None:
            """Check the signs of mu and tau."""
            require("mu", self.mu, NOT_NEGATIVE)
            require("tau", self.tau, POSITIVE)

    @dataclass(frozen=True)
    class State(FedAvg.State):
        """FedAvg's State, and in `previous` each client's own model after its last participation, `[K, ...]`.

        At first this is the client's initial model.
        """

        previous: Population

    def setup(self, world: World) -> Moon.State:
        """Start from common weights, and from each client's own for its previous model."""
        return self.State(world.population(shared=self.averages), world.population())

    def local(self, received: Population, state: Moon.State, world: World) -> Population:
        """Train beside the global and the previous model, both frozen and in evaluation mode."""
        previous = state.previous.select(received.ids)
        still = Given(frozen={"global": received, "previous": previous})
        return world.fit(received, self.objective, given=still).models

    def objective(self, model: StackedModel, batch: Batch, context: Context) -> tuple[Tensor, Log]:
        """Compute cross-entropy and mu times the contrast, on received features, per client, `[k]`."""
        features, logits = model(batch)
        others = (context.models[name] for name in ("global", "previous"))
        heard = [other.receive(other.encode(batch), batch) for other in others]
        cosines = torch.stack([torch.cosine_similarity(features, z, dim=-1) for z in heard], -1)
        contrast = batch.mean(-(cosines / self.hyper.tau).log_softmax(-1)[..., 0])
        task = task_loss(logits, batch)
        return task + self.hyper.mu * contrast, {"task": task, "contrast": contrast}

    def after(self, state: Moon.State, trained: Population, newest: Mapping[str, Tensor]) -> Moon.State:
        """Average as FedAvg, and store each trained model as its client's previous one."""
        return replace(super().after(state, trained, newest), previous=state.previous.put(trained))
