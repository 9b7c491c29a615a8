"""FedAvg + FT: the global model, fine-tuned by each client on its own data after the last round.

Wang, Mathews, Kiddon, Eichner, Beaufays, Ramage, "Federated Evaluation of On-device Personalization",
arXiv:1910.10252, 2019; what is tuned, and for how long, is as in a baseline of RepPer (Jing et al.,
arXiv:2204.11841, 2022). Up and down: the whole model; the fine-tuned copies stay with their clients.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from channels.options import WHOLE, require
from semcom.engine.store.population import Population, Prefix
from semcom.engine.train.phase import Phase
from semcom.engine.train.view import View
from semcom.engine.world import World
from semcom.methods.base import Method, cross_entropy
from semcom.methods.fedavg import FedAvg


class FedAvgFT(FedAvg):
    """FedAvg; at the end each client trains a copy of the global model by CE, with the run's optimiser."""

    paper = "Wang et al., arXiv:1910.10252, 2019"
    personal = "a fine-tuned copy of the model"

    @dataclass(frozen=True)
    class Hyper(Method.Hyper):
        """The hyperparameters of fine-tuning."""

        tune_epochs: int = 10
        """Epochs of fine-tuning after the last round."""
        tune: Literal["head", "all"] = "head"
        """The part that is fine-tuned: the head on frozen features, or the whole model."""

        def check(self) -> None:
            """Check the number of epochs."""
            super().check()
            require("tune_epochs", self.tune_epochs, WHOLE)

    def finish(self, state: FedAvg.State, world: World) -> dict[str, View]:
        """Evaluate the fine-tuned copies as `personal`, and the model that they are copies of as `global`."""
        part = ("head.",) if self.hyper.tune == "head" else self.averages
        return {
            "personal": View(fine_tuned(world, state.model, part, self.hyper.tune_epochs)),
            **self.views(state, world),
        }


def fine_tuned(world: World, pop: Population, part: Prefix, epochs: int) -> Population:
    """Fine-tune copies of the models that are tested, by some epochs of plain CE on a part.

    Without any epochs, all models are returned as they are.
    """
    if not epochs:
        return pop
    return world.fit(pop.select(world.tested()), cross_entropy, train=part, phase=Phase("tune", epochs=epochs)).models
