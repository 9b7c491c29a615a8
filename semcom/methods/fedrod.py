"""FedRoD: two heads on one encoder, a generic one for all classes and a personal one for the client's own.

Chen, Chao, "On Bridging Generic and Personalized Federated Learning for Image Classification", ICLR 2022, Algorithm 1
(its linear personal head). Up and down: encoder and generic head. These train on the balanced softmax, CE of `g + gamma
log N_k` with the generic logits g and the client's numbers of images per class, without the classes that it does not
own. The personal head adds to the generic logits, and trains on the CE of the sum, on features and generic logits
without gradient. It has the architecture of the run's head and starts as a copy of the client's initial one, as in
PFLlib (with `model.init` client a draw of its own). `personal` answers by the sum, `global` by the generic head.

Choices where the paper is silent: none known.

Departures: no hypernetwork, which in the paper makes personal heads for new clients.
"""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from semcom.channels.options import NOT_NEGATIVE, require
from semcom.engine.store.population import Population
from semcom.engine.train.context import Context, Given, Log
from semcom.engine.train.forward import Batch, StackedModel
from semcom.engine.train.view import View
from semcom.engine.world import World
from semcom.methods.base import Method, task_loss
from semcom.methods.fedavg import FedAvg
from semcom.models.split import SplitModel
from semcom.models.stacks import for_stacks


@for_stacks
class TwoHeads(nn.Module):
    """A generic head and a personal head, which starts as its copy, with the sum of their logits."""

    def __init__(self, head: nn.Module) -> None:
        super().__init__()
        self.generic, self.personal = head, deepcopy(head)

    def forward(self, features: Tensor) -> Tensor:
        """Add both heads' logits, `[..., d] -> [..., C]`."""
        return self.generic(features) + self.personal(features)


def add_fedrod_head(model: SplitModel) -> None:
    """Put a personal head beside a model's own."""
    model.head = TwoHeads(model.head)


class FedRoD(FedAvg):
    """Balanced softmax for encoder and generic head, averaged by p_k; CE of both heads' sum for the personal one."""

    paper = "Chen and Chao, ICLR 2022"
    classifies = True
    preset = {}
    averages = ("encoder.", "head.generic.")
    shares = "encoder and generic head"
    personal = "a second head"
    sends = "encoder and generic head up and down"

    @dataclass(frozen=True)
    class Hyper(Method.Hyper):
        """The hyperparameter of FedRoD."""

        gamma: float = 1.0
        """gamma: exponent of a class's number of images in the balanced softmax (0: plain cross-entropy)."""

        def check(self) -> None:
            """Check that gamma is not negative."""
            require("gamma", self.gamma, NOT_NEGATIVE)

    def setup(self, world: World) -> FedAvg.State:
        """Start from common weights but for the personal heads."""
        return self.State(world.population(shared=self.averages, extend=add_fedrod_head))

    def local(self, received: Population, state: FedAvg.State, world: World) -> Population:
        """Train E epochs on both losses."""
        # log 0 is -inf, which drops absent classes from the balanced softmax.
        prior = world.count_classes(received.ids).pow(self.hyper.gamma).log()
        return world.fit(received, self.objective, given=Given(per_client={"prior": prior})).models

    def objective(self, model: StackedModel, batch: Batch, context: Context) -> tuple[Tensor, Log]:
        """Compute the sum of the two losses per client, `[k]`. No weight gets a gradient of both."""
        features = model.receive(model.encode(batch), batch)
        generic = model.run("head.generic.", features, batch)
        personal = model.run("head.personal.", features.detach(), batch)
        balanced = task_loss(generic + context.per_client["prior"][:, None], batch)
        task = task_loss(generic.detach() + personal, batch)
        return balanced + task, {"task": task, "balanced": balanced}

    def views(self, state: FedAvg.State, world: World) -> dict[str, View]:
        """Evaluate both heads' sum as `personal`, and the generic head as `global`."""
        (cohort,) = state.model.select(state.model.ids[:1]).cohorts
        # A personal head of zeros adds nothing to the generic logits.
        silent = {n: torch.zeros_like(t) for n, t in cohort.tensors.items() if n.startswith("head.personal.")}
        return {**super().views(state, world), "global": View(state.model.share(silent))}
