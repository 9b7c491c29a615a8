"""FedAvg + FT: each client fine-tunes the global model on its own data after the last round.

Wang, Mathews, Kiddon, Eichner, Beaufays, Ramage, "Federated Evaluation of On-device Personalization", arXiv:1910.10252,
2019. Up and down: the whole model. After the last round, each client trains a copy of the global model by plain CE, the
head only or (`tune` `all`) everything; the copies stay with their clients. RepPer's baseline (Jing et al.,
arXiv:2204.11841, 2022, Sec. 6.1) has 10 epochs of SGD, `--finish.epochs 10 --finish.optimizer sgd`, and gives no rate.

Choices where the paper is silent: `tune` `head`, as in RepPer's baseline, and the length and rate of the fine-tuning.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from semcom.engine.store.population import Prefix
from semcom.engine.train.view import View
from semcom.engine.world import World
from semcom.methods.base import Method
from semcom.methods.fedavg import FedAvg
from semcom.methods.parts.heads import fine_tuned


class FedAvgFT(FedAvg):
    """FedAvg; at the end each client trains a copy of the global model by CE, with an optimiser of its own."""

    paper = "Wang et al., arXiv:1910.10252, 2019"
    unused = ("model.init",)  # there is one model, of which all have copies
    personal = "a fine-tuned copy of the model"
    finishing = {}

    @dataclass(frozen=True)
    class Hyper(Method.Hyper):
        """The hyperparameter of fine-tuning."""

        tune: Literal["head", "all"] = "head"
        """The part that is fine-tuned: the head on frozen features, or the whole model."""

    def setup(self, world: World) -> FedAvg.State:
        """Start from common weights, some of which fine-tuning can change."""
        state: FedAvg.State = super().setup(world)
        if world.config.finish.epochs:
            world.refuse_frozen(state.model, self._tuned)
        return state

    @property
    def _tuned(self) -> Prefix:
        return "head." if self.hyper.tune == "head" else self.averages

    def finish(self, state: FedAvg.State, world: World) -> dict[str, View]:
        """Evaluate the fine-tuned copies as `personal`, and the model that they are copies of as `global`."""
        return {"personal": View(fine_tuned(world, state.model, self._tuned)), **self.views(state, world)}
