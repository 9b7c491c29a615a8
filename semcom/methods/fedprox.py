"""FedProx: local training stays near the model that it started from.

Li, Sahu, Zaheer, Sanjabi, Talwalkar, Smith, "Federated Optimization in Heterogeneous Networks", MLSys 2020, Algorithm 2
and Eq. 2. Up and down: the whole model. The loss is `CE + mu/2 ||w - w_received||^2`, the norm over all parameters, the
received model without gradient. BatchNorm's running statistics are averaged as in FedAvg.

Choices where the paper is silent: `mu` 0.1; the paper tunes it for each dataset, from 0.001 to 1.

Departures: clients are drawn uniformly and averaged by p_k, as in the authors' code (Algorithm 2 draws them by p_k and
takes their plain mean). All clients do the same work. For the paper's stragglers, give `train.local_epochs` a value per
client.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from semcom.channels.options import NOT_NEGATIVE, require
from semcom.engine.store.population import Population
from semcom.engine.train.context import Context, Given, Log
from semcom.engine.train.forward import Batch, StackedModel
from semcom.engine.world import World
from semcom.methods.base import Method, task_loss
from semcom.methods.fedavg import FedAvg
from semcom.methods.parts.distance import proximal


class FedProx(FedAvg):
    """CE + mu/2 ||w - w_received||^2, the squared norm over all parameters."""

    paper = "Li et al., MLSys 2020"
    preset = {
        "optimizer": "sgd", "lr": 0.03, "batch_size": 10,
        "rounds": 100, "local_epochs": 20, "participation": 0.01,
    }  # fmt: skip

    @dataclass(frozen=True)
    class Hyper(Method.Hyper):
        """The hyperparameter of FedProx; the paper tunes it in {0.001, 0.01, 0.1, 1}."""

        mu: float = 0.1
        """Weight of the proximal term (FedCRC's setting of it)."""

        def check(self) -> None:
            """Check that mu is not negative."""
            super().check()
            require("mu", self.mu, NOT_NEGATIVE)

    def local(self, received: Population, state: FedAvg.State, world: World) -> Population:
        """Train E epochs on Eq. 2 around the received model."""
        return world.fit(received, self.objective, given=Given(anchors={"received": received})).models

    def objective(self, model: StackedModel, batch: Batch, context: Context) -> tuple[Tensor, Log]:
        """Compute Eq. 2 per client, `[k]`: cross-entropy and mu/2 times the squared distance."""
        task = task_loss(model(batch)[1], batch)
        distance = proximal(model, context.models["received"])
        return task + self.hyper.mu / 2 * distance, {"task": task, "distance": distance}
