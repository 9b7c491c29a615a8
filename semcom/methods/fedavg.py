"""FedAvg, and the family of methods that train locally and average a part of the model.

McMahan, Moore, Ramage, Hampson, Aguera y Arcas, "Communication-Efficient Learning of Deep Networks from Decentralized
Data", AISTATS 2017, Algorithm 1. Up and down: the averaged part, parameters and BatchNorm buffers. Each client
overwrites its model by the shared one and trains E epochs on CE; the base station averages the models with weights p_k.

Choices where the paper is silent: the preset keeps its rate of 0.1 in all rounds. The paper tunes the rate for each
task, and on CIFAR-10 multiplies it by 0.99 after each round.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from torch import Tensor

from semcom.engine.store.population import Population, Prefix
from semcom.engine.train.view import View
from semcom.engine.world import World
from semcom.methods.base import Method


class FedAvg(Method):
    """Overwrite by the shared part, train E epochs of cross-entropy, average by p_k.

    A subclass with other `averages` is another member of the family: `local` averages no part, FedPer the body,
    LG-FedAvg the head. A subclass with another local training overrides `local`, and a subclass that remembers more
    than a model overrides `after`.
    """

    paper = "McMahan et al., AISTATS 2017"
    preset = {"optimizer": "sgd", "lr": 0.1, "local_epochs": 5, "batch_size": 50, "participation": 0.1}
    averages: tuple[str, ...] = ("encoder.", "head.")
    shares = "encoder and head"
    personal = "nothing"
    sends = "w up, w down"

    @dataclass(frozen=True)
    class State:
        """The clients' models: `model`, with own tensors `[K, ...]` and averaged ones `[1, ...]`."""

        model: Population

    def __init__(self, hyper: Any) -> None:
        super().__init__(hyper)
        common = type(self).setup is FedAvg.setup and type(self).choose_part is FedAvg.choose_part
        if common and set(self.averages) == {"encoder.", "head."}:
            self.unused = (*self.unused, "model.init")  # there is one model, and no client's own

    def setup(self, world: World) -> Any:
        """Start from common weights for the averaged parts."""
        return self.State(world.population(shared=self.choose_part(world)))

    def choose_part(self, world: World) -> Prefix:
        """Choose the part to average in this run: the prefixes in `averages`, or names of single tensors."""
        return self.averages

    def round(self, state: Any, world: World) -> Any:
        """Train locally, and average by p_k (Algorithm 1), buffers like parameters."""
        ids, part = world.sample(), self.choose_part(world)
        received = world.air.down(state.model.select(ids), part)
        trained = self.local(received, state, world)
        newest = world.air.average(trained, part, world.weights(ids), since=received)
        return self.after(state, trained, newest)

    def local(self, received: Population, state: Any, world: World) -> Population:
        """Train the models of the round's clients, as they received them."""
        return world.fit(received, self.objective).models

    def after(self, state: Any, trained: Population, newest: Mapping[str, Tensor]) -> Any:
        """Build the State after a round with `trained` models and the averages `newest`, `[1, ...]`."""
        return replace(state, model=state.model.put(trained).share(newest))

    def views(self, state: Any, world: World) -> dict[str, View]:
        """Evaluate one model: `global` where everything is averaged, otherwise `personal`.

        Where an averaged encoder comes down uncoded, `received` has it as each client receives it.
        """
        everything = set(self.averages) == {"encoder.", "head."}
        found = {"global" if everything else "personal": View(state.model)}
        if "encoder." in self.averages and world.config.air.parameters == "analog":
            found["received"] = View(world.air.down(state.model, "encoder.", "received."))
        return found
