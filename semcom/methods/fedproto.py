"""FedProto: clients exchange class prototypes and keep their models.

Tan, Long, Liu, Zhou, Lu, Jiang, Zhang, "FedProto: Federated Prototype Learning across Heterogeneous Clients", AAAI
2022, Algorithm 1. Up: a client's prototypes, d numbers per class that it owns. Down: the global prototypes, d per class
that has one.

The loss is CE + lam times the mean over samples of `||f - P_class||^2 / d`, with the global prototype P of the image's
class (Eq. 7). A class without a prototype adds zero, so round 1 is local training. Local prototypes are class means of
the received features f over the last local epoch (`source` `pass`: from an extra pass after it). `personal`, the
headline, decides by the head; `prototype`, the paper's rule, by the nearest global prototype among the client's own
classes.

Choices where the paper is silent: none known.

Departures: the headline decides by the head, as in the other methods. Global prototypes are the plain mean over their
owners (`aggregation` `mean`), as in the authors' code (Eq. 6: weighted by samples). Smaller last batches are kept,
which the code drops.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from torch import Tensor

from semcom.channels.options import NOT_NEGATIVE, require
from semcom.engine.store.population import Population
from semcom.engine.train.context import Context, Given, Log
from semcom.engine.train.forward import Batch, StackedModel
from semcom.engine.train.view import View
from semcom.engine.world import World
from semcom.methods.base import Method, task_loss
from semcom.methods.parts.prototypes import (
    Prototypes,
    carry,
    class_means,
    collect,
    find_nearest_prototype,
    prototypes,
    squared_distance,
)


class FedProto(Method):
    """CE + lambda MSE(f, global prototype of its class); f is the received feature, as the base station has it."""

    paper = "Tan et al., AAAI 2022"
    classifies = True
    preset = {"optimizer": "sgd", "lr": 0.01, "momentum": 0.5, "batch_size": 4, "rounds": 100}
    shares = "class prototypes"
    personal = "encoder and head"
    sends = "prototypes up, prototypes down"

    @dataclass(frozen=True)
    class Hyper(Method.Hyper):
        """The hyperparameters of FedProto."""

        lam: float = 1.0
        """lambda: weight of the distance to the global prototypes (Eq. 7)."""
        aggregation: Literal["mean", "counts"] = "mean"
        """Weights in a global prototype: plain mean over its owners (the authors' code), or by counts (Eq. 6)."""
        source: Literal["training", "pass"] = "training"
        """Source of local prototypes: the features of the last local epoch, or an extra pass after training."""

        def check(self) -> None:
            """Check that lambda is not negative."""
            require("lam", self.lam, NOT_NEGATIVE)

    @dataclass(frozen=True)
    class State:
        """The clients' own models in `model`, `[K, ...]`, and the global `prototypes`."""

        model: Population
        prototypes: Prototypes

    def __init__(self, hyper: FedProto.Hyper) -> None:
        super().__init__(hyper)
        self.tells = "counts" if hyper.aggregation == "counts" else "classes"

    def setup(self, world: World) -> FedProto.State:
        """Start from the clients' own models, without any prototype."""
        return self.State(world.population(), Prototypes.none(world))

    def objective(self, model: StackedModel, batch: Batch, context: Context) -> tuple[Tensor, Log]:
        """Compute Eq. 7 per client, `[k]`. A class without a global prototype adds no loss."""
        features, logits = model(batch)
        collect(context.carry, features, batch)
        distance = squared_distance(features, context.per_client["prototypes"], context.common["known"], batch)
        task, distance = task_loss(logits, batch), distance / features.shape[-1]
        return task + self.hyper.lam * distance, {"task": task, "distance": distance}

    def round(self, state: FedProto.State, world: World) -> FedProto.State:
        """Train locally near the global prototypes, average the clients' prototypes (Algorithm 1)."""
        ids = world.sample()
        given = Given(
            per_client={"prototypes": state.prototypes.down(world, ids)},
            common={"known": world.tensor(state.prototypes.known)},
            carry=carry(world, len(ids)),
        )
        fitted = world.fit(state.model.select(ids), self.objective, given=given)
        trained, means, counts = fitted.models, class_means(**fitted.carried), fitted.carried["counts"]
        if self.hyper.source == "pass":
            means, counts = prototypes(world, trained)
        newest = state.prototypes.up(world, ids, means, counts, self.hyper.aggregation)
        return self.State(state.model.put(trained), newest)

    def views(self, state: FedProto.State, world: World) -> dict[str, View]:
        """Evaluate `personal`, which takes the head's answer, and `prototype`.

        The latter answers by the nearest global prototype among the client's own classes.
        """
        ids, common = state.model.ids, state.prototypes
        among = world.tensor(world.owned(ids)) & world.tensor(common.known)
        given = {"prototypes": common.values.expand(len(ids), -1, -1), "among": among}
        return {"personal": View(state.model), "prototype": View(state.model, find_nearest_prototype, given)}
