"""FedProto: clients exchange class prototypes and keep their models.

Tan, Long, Liu, Zhou, Lu, Jiang, Zhang, "FedProto: Federated Prototype Learning across Heterogeneous Clients", AAAI
2022, Algorithm 1. Up: a client's prototypes, d numbers per class that it owns. Down: the global ones, d per class that
has one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from semcom.checks import NOT_NEGATIVE, require
from semcom.engine.fit import Context, Log
from semcom.engine.forward import Batch, StackedModel
from semcom.engine.population import Population
from semcom.engine.prototypes import carry, class_means, collect, combine, prototypes, squared_distance
from semcom.engine.visit import View
from semcom.engine.world import World
from semcom.methods.base import Method, task_loss


class FedProto(Method):
    """CE + lambda MSE(f, global prototype of its class); f is the received feature, as the base station has it."""

    paper = "Tan et al., AAAI 2022"
    preset = {"optimizer": "sgd", "lr": 0.01, "momentum": 0.5, "batch_size": 4, "rounds": 100}
    shares = "class prototypes"
    personal = "encoder and head"
    sends = "prototypes up, prototypes down"

    @dataclass(frozen=True)
    class Hyper(Method.Hyper):
        """FedProto's hyperparameters."""

        lam: float = 1.0
        """lambda: weight of the distance to the global prototypes (Eq. 7)."""
        aggregation: Literal["mean", "counts"] = "mean"
        """Global prototype: plain mean over its owners (the authors' code), or weighted by counts (Eq. 6)."""
        source: Literal["training", "pass"] = "training"
        """Local prototypes: from the features of the last local epoch, or from an extra pass after training."""

        def check(self) -> None:
            """lambda is not negative."""
            require("method.lam", self.lam, NOT_NEGATIVE)

    @dataclass(frozen=True)
    class State:
        """`model` `[K, ...]`; global `prototypes` `[C, d]`; `known`: classes that have one, bool `[C]` on the host."""

        model: Population
        prototypes: Tensor
        known: Tensor

    def setup(self, world: World) -> FedProto.State:
        """No prototype exists before the first round."""
        c, d = len(world.federation.classes), world.config.model.features
        none = torch.zeros(c, d, dtype=world.dtype, device=world.device)
        return self.State(world.population(), none, torch.zeros(c, dtype=torch.bool))

    def objective(self, model: StackedModel, batch: Batch, context: Context) -> tuple[Tensor, Log]:
        """Eq. 7; a class without a global prototype adds nothing."""
        features, logits = model(batch)
        collect(context.carry, features, batch)
        distance = squared_distance(features, context.rows["prototypes"], context.shared["known"], batch)
        task, distance = task_loss(logits, batch), distance / features.shape[-1]
        return task + self.hyper.lam * distance, {"task": task, "distance": distance}

    def round(self, state: FedProto.State, world: World) -> FedProto.State:
        """Algorithm 1."""
        ids = world.sample()
        n, d = len(ids), state.prototypes.shape[1]
        down = np.full(n, int(state.known.sum()) * d)
        received = world.air.send("down", "prototypes", state.prototypes.expand(n, -1, -1), ids, down)
        trained, _, carried = world.fit(
            state.model.rows(ids),
            self.objective,
            rows={"prototypes": received},
            shared={"known": state.known.to(world.device)},
            carry=carry(world, n),
        )
        means, counts = class_means(**carried), carried["counts"]
        if self.hyper.source == "pass":
            means, counts = prototypes(world, trained)
        owned = (counts > 0).cpu().numpy()  # with few local steps a client may not have seen all of its classes
        sent = world.air.send("up", "prototypes", means, ids, owned.sum(1) * d)
        newest, has = combine(sent, counts, self.hyper.aggregation), torch.as_tensor(owned.any(0))
        # A class whose owners are all absent keeps the prototype that it had.
        kept = torch.where(has.to(world.device)[:, None], newest, state.prototypes)
        return self.State(state.model.put(trained), kept, state.known | has)

    def views(self, state: FedProto.State, world: World) -> dict[str, View]:
        """`personal`: the head's answer; `prototype`: the nearest global prototype among the client's own classes."""
        ids = state.model.ids
        among = world.owned(ids) & state.known.to(world.device)
        rows = {"prototypes": state.prototypes.expand(len(ids), -1, -1), "among": among}
        return {"personal": View(state.model), "prototype": View(state.model, nearest, rows)}


def nearest(features: Tensor, logits: Tensor, rows: Mapping[str, Tensor]) -> Tensor:
    """Minus the distance to each prototype, minus infinity outside `among`: `[k, b, C]`."""
    distance = torch.cdist(features, rows["prototypes"])
    return (-distance).masked_fill(~rows["among"].unsqueeze(1), -torch.inf)
