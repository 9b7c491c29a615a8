"""Clients in a small world, what they train for, and what each of their samples meets on the way."""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from semcom.engine.store.population import Population
from semcom.engine.train.context import Context, Given, Log
from semcom.engine.train.descent import compute_gradients
from semcom.engine.train.forward import Batch, StackedModel
from semcom.engine.train.phase import Phase
from semcom.engine.world import World
from semcom.methods.base import task_loss
from semcom.methods.parts.distance import proximal
from tests import worlds

SIZES = (7, 3, 1, 5)
"""Batches of two: a last batch of one, and a client with a single sample."""
PER_EPOCH = np.array([4, 2, 1, 3])
NOISE = {"kind": "awgn", "snr_db": "3,6,9,12", "downlink_snr_db": 5.0}
MIXED = {"encoder": "test-conv,test-conv-wide"}


def make(**overrides: Any) -> World:
    """Clients with starts of their own, through a noisy link both ways."""
    train = {"optimizer": "sgd", "lr": 0.1, "local_epochs": 2, **overrides.pop("train", {})}
    method, sizes = overrides.pop("method", "test-split"), overrides.pop("sizes", SIZES)
    defaults: dict[str, Any] = {"split": True, "channel": NOISE, "model": {"init": "client"}, "chunk": 4}
    return worlds.world(method, sizes, train=train, **{**defaults, **overrides})


def task(model: StackedModel, batch: Batch, context: Context) -> Tensor:
    return task_loss(model(batch)[1], batch)


def slope(model: StackedModel, batch: Batch, context: Context) -> tuple[dict[str, Tensor], Log]:
    """What `task` would be descended along."""
    loss = task(model, batch, context)
    return compute_gradients(loss, model.params), {"loss": loss, "size": batch.count}


def arguments(**options: Any) -> dict[str, Any]:
    """The arguments of `World.fit` for options that name fields of `Given` and `Phase` along with its own."""
    sorted_: dict[str, dict[str, Any]] = {"given": {}, "phase": {}, "": {}}
    owners = {f.name: kind for kind, cls in (("given", Given), ("phase", Phase)) for f in dataclasses.fields(cls)}
    for name, value in options.items():
        sorted_[owners.get(name, "")][name] = value
    return {"given": Given(**sorted_["given"]), "phase": Phase(**sorted_["phase"]), **sorted_[""]}


See = Callable[[StackedModel, Batch, Context], Tensor]


def seen(w: World, pop: Population, see: See, **options: Any) -> dict[int, Tensor]:
    """Per client, what `see` gives of each visited sample (`[k, b, ...]` of a step), in visiting order: `[N, ...]`."""
    found: dict[int, list[Tensor]] = defaultdict(list)

    def objective(model: StackedModel, batch: Batch, context: Context) -> Tensor:
        values = see(model, batch, context).detach().clone()
        for i, k in enumerate(context.per_client["id"].tolist()):
            found[k].append(values[i][batch.weight[i] > 0])
        return task(model, batch, context)

    w.fit(pop, objective, **arguments(per_client={"id": torch.as_tensor(pop.ids)}, **options))
    return {k: torch.cat(parts) for k, parts in found.items()}


def same(one: dict[int, Tensor], other: dict[int, Tensor]) -> bool:
    assert one.keys() == other.keys()
    return all(torch.equal(t, other[k]) for k, t in one.items())


def images(model: StackedModel, batch: Batch, context: Context) -> Tensor:
    return batch.x


def received(model: StackedModel, batch: Batch, context: Context) -> Tensor:
    return model(batch, track=False)[0]


def trained(w: World, objective: Any = task, **options: Any) -> Population:
    return w.fit(w.population(), objective, **arguments(**options)).models


def pull(model: StackedModel, batch: Batch, context: Context) -> Tensor:
    return proximal(model, context.models["goal"]) / 2
