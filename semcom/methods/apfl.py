"""APFL: a mixture of a global and a local model, whose weight each client learns.

Deng, Kamani, Mahdavi, "Adaptive Personalized Federated Learning", arXiv:2003.13461, 2020, Algorithm 1. Up and down: the
global model w, trained as in FedAvg. The client keeps v_k and the weight alpha_k, and uses `alpha v + (1 - alpha) w`.
In every mini-batch w takes a step on its own CE, and v a step on that of the mixture, along `alpha grad CE(mixture)`.
Both passes see the same images and the same noise. v has the running statistics of the mixture.

alpha_k takes one step of SGD in a round (Eq. 10), on its first mini-batch as in the authors' code, with v and w from
before their own steps: `alpha - eta_alpha <v - w, grad CE(mixture)>`, clipped into [0, 1]. `personal` is the mixture
with the newest w.

Choices where the paper is silent: `alpha` 0.5 at the start.

Departures: w is averaged by p_k (Algorithm 1: plain mean). alpha has its own rate, `eta_alpha` 0.05, for any optimiser
of w and v (the paper: SGD at one rate for all three), because one step of a new Adam is as long as its rate, whatever
the gradient. For the same reason the factor alpha in v's step counts with SGD alone: with Adam v moves as fast at any
alpha above 0. alpha has no decay, which the authors' code has. Tests mix v_k with the newest w (the algorithm: with the
client's own).
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from copy import deepcopy
from dataclasses import dataclass

import torch
from torch import Tensor

from semcom.channels.options import NOT_NEGATIVE, PART, require
from semcom.engine.store.population import Population
from semcom.engine.train.context import Context, Given, Gradient, Log
from semcom.engine.train.descent import compute_gradients
from semcom.engine.train.forward import Batch, StackedModel
from semcom.engine.train.view import View
from semcom.engine.world import World
from semcom.methods.base import Method, task_loss
from semcom.methods.fedavg import FedAvg
from semcom.models.split import SplitModel


class APFL(FedAvg):
    """FedAvg for w; CE of alpha v + (1 - alpha) w, w without gradient, for v and alpha."""

    paper = "Deng et al., arXiv:2003.13461, 2020"
    preset = {}
    personal = "a second model v_k and its weight alpha_k"

    @dataclass(frozen=True)
    class Hyper(Method.Hyper):
        """The hyperparameters of APFL."""

        alpha: float = 0.5
        """alpha: weight of v_k in the mixture, at first or for good."""
        eta_alpha: float = 0.05
        """Rate of each client's alpha, scaled by the run's schedule (0: alpha stays)."""

        def check(self) -> None:
            """Check the range of alpha and the sign of its rate."""
            require("alpha", self.alpha, PART)
            require("eta_alpha", self.eta_alpha, NOT_NEGATIVE)

    def setup(self, world: World) -> FedAvg.State:
        """Start from common weights for w, from each client's initial model for v_k."""
        return self.State(world.population(shared=self.averages, extend=self.add_model))

    def add_model(self, model: SplitModel) -> None:
        """Put v, a copy, and alpha beside a model."""
        model.own = deepcopy(model)
        model.register_buffer("alpha", torch.tensor(self.hyper.alpha, dtype=torch.float64))

    def local(self, received: Population, state: FedAvg.State, world: World) -> Population:
        """Train E epochs on w and v, and alpha in the first step."""
        alpha, rate = received.named("alpha")["alpha"], world.optimizer(name="sgd", lr=self.hyper.eta_alpha).base_lr
        given = Given(carry={"alpha": alpha, "rate": torch.full_like(alpha, rate)})
        step = Gradient(self.gradient, passes=2)
        fitted = world.fit(received, step, given=given, train=(*self.averages, "own."))
        world.report("alpha", fitted.carried["alpha"])
        return fitted.models.replaced({"alpha": fitted.carried["alpha"]})

    def gradient(self, model: StackedModel, batch: Batch, context: Context) -> tuple[dict[str, Tensor], Log]:
        """Compute the gradients of both losses, at most one per weight, and move alpha once (Eq. 10)."""
        start, rate = context.carry["alpha"], context.carry["rate"]
        alpha = start.clone().requires_grad_()
        mixture = mix_apfl_models({**model.tensors, "alpha": alpha}, model.params)
        common, task = (task_loss(model(batch, instead)[1], batch) for instead in (None, mixture))
        gradients = compute_gradients(common + task, {**model.params, "alpha": alpha})
        start.copy_((start - rate * gradients.pop("alpha")).clamp(0, 1))
        rate.zero_()  # later in a round w is ahead of v, so that alpha would fall to 0
        return gradients, {"loss": task, "global/loss": common}

    def views(self, state: FedAvg.State, world: World) -> dict[str, View]:
        """Evaluate the mixture as `personal` and w as `global`."""
        weights = state.model.parameters()
        mixture = state.model.derive(lambda some: some.replaced(mix_apfl_models(some.named(), weights)))
        return {"personal": View(mixture), "global": View(state.model)}


def mix_apfl_models(tensors: Mapping[str, Tensor], weights: Container[str]) -> dict[str, Tensor]:
    """Compute alpha v + (1 - alpha) w, w without gradient, for the tensors that are `weights`, and add v's buffers."""
    found = {}
    for name in [name.removeprefix("own.") for name in tensors if name.startswith("own.")]:
        found[name] = v = tensors[f"own.{name}"]
        if name in weights:
            alpha = tensors["alpha"].view(-1, *[1] * (v.dim() - 1))
            found[name] = alpha * v + (1 - alpha) * tensors[name].detach()
    return found
