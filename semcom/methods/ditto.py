"""Ditto: a personal model beside the global one, held near it.

Li, Hu, Beirami, Smith, "Ditto: Fair and Robust Federated Learning Through Personalization", ICML 2021, Algorithm 1 and
Eq. 2. Up and down: the global model w, trained as in FedAvg. The personal v_k stays, and trains in the rounds of its
client on `CE + lam/2 ||v - w_received||^2`: the pull is towards w as received, before the client trains it. w and v_k
see the same batches and the same noise.

Choices where the paper is silent: `lam` 1.0, which the authors choose from 0.1, 1 and 2 on validation data; v_k takes
as many epochs as w.

Departures: the clients' models are averaged by p_k (Algorithm 1: plain mean of their updates).
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from semcom.channels.options import NOT_NEGATIVE, require
from semcom.engine.store.population import Population
from semcom.engine.train.context import Context, Given, Log
from semcom.engine.train.forward import Batch, StackedModel
from semcom.engine.train.phase import Phase
from semcom.engine.train.view import View
from semcom.engine.world import World
from semcom.methods.base import Method, task_loss
from semcom.methods.fedavg import FedAvg
from semcom.methods.parts.distance import proximal


class Ditto(FedAvg):
    """FedAvg for w; CE + lambda/2 ||v - w_received||^2, the squared norm over all parameters, for v_k."""

    paper = "Li et al., ICML 2021"
    preset = {}
    personal = "a model v_k of its own"

    @dataclass(frozen=True)
    class Hyper(Method.Hyper):
        """The hyperparameter of Ditto."""

        lam: float = 1.0
        """lambda: how strongly v_k is tied to w (0: local training)."""

        def check(self) -> None:
            """Check that lambda is not negative."""
            require("lam", self.lam, NOT_NEGATIVE)

    @dataclass(frozen=True)
    class State(FedAvg.State):
        """FedAvg's State, and in `personal` v_k after its client's last participation, `[K, ...]`.

        At first v_k is the client's initial model.
        """

        personal: Population

    def setup(self, world: World) -> Ditto.State:
        """Start from common weights for w, and from each client's own for v_k."""
        return self.State(world.population(shared=self.averages), world.population())

    def objective(self, model: StackedModel, batch: Batch, context: Context) -> tuple[Tensor, Log]:
        """Compute h_k, the personal objective of Eq. 2 for a given w, per client, `[k]`."""
        task = task_loss(model(batch)[1], batch)
        distance = proximal(model, context.models["received"])
        return task + self.hyper.lam / 2 * distance, {"task": task, "distance": distance}

    def round(self, state: Ditto.State, world: World) -> Ditto.State:
        """Train w and v_k locally, average w by p_k (Algorithm 1).

        Both models meet the same batches, as in the authors' code, and the same noise, as they use the same phase. So w
        is FedAvg's for any lambda, and v_k at lambda = 0 is that of local training.
        """
        ids = world.sample()
        received = world.air.down(state.model.select(ids), self.averages)
        trained = world.fit(received, super().objective, phase=Phase(log="global")).models
        newest = world.air.average(trained, self.averages, world.weights(ids), since=received)
        near = Given(anchors={"received": received})
        personal = world.fit(state.personal.select(ids), self.objective, given=near).models
        return self.State(state.model.share(newest), state.personal.put(personal))

    def views(self, state: Ditto.State, world: World) -> dict[str, View]:
        """Evaluate v_k as `personal` and w as `global`."""
        return {"personal": View(state.personal), "global": View(state.model)}
