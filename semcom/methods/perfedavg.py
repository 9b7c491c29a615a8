"""Per-FedAvg: a global model from which one gradient step on own data leads to a good personal one.

Fallah, Mokhtari, Ozdaglar, "Personalized Federated Learning with Theoretical Guarantees: A Model-Agnostic Meta-Learning
Approach", NeurIPS 2020, Algorithm 1 in its first-order (`fo`) and Hessian-free (`hf`) forms. Up and down: the whole
model.

A step goes to `w - beta g` along the gradient g at the point `w - alpha grad CE(w)`, with separate batches for the two
gradients. `fo` omits the term of the Hessian. `hf` computes it as a difference of two gradients, at `w + delta g` and
`w - delta g`, on a third batch. Both rates are hyperparameters; of the run's optimiser only the schedule counts,
`train.lr_milestones`, which scales beta, not alpha.

Only the outer pass, whose batch follows FedAvg's order, moves BatchNorm's running statistics. The inner and the third
batch have orders and noise of their own. `personal` is w after a step at rate alpha on the client's training images,
taken anew for each test.

Choices where the paper is silent: `delta` 0.01 (float32 loses the difference at 1e-4), and the step of `personal` on
all training images of a client at once.

Departures: the clients' models are averaged by p_k (Algorithm 1: plain mean).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from torch import Tensor

from semcom.channels.options import NOT_NEGATIVE, POSITIVE, require
from semcom.config.options import Needs
from semcom.engine.store.population import Population
from semcom.engine.train.context import Context, Gradient, Log
from semcom.engine.train.forward import Batch, StackedModel
from semcom.engine.train.phase import Phase, Take
from semcom.engine.train.view import View
from semcom.engine.world import World
from semcom.methods.base import Method
from semcom.methods.fedavg import FedAvg
from semcom.methods.parts.slopes import measure_slope, move_along, take_whole_gradient_step


class PerFedAvg(FedAvg):
    """w <- w - beta (I - alpha Hessian) grad CE(w - alpha grad CE(w)), with no Hessian or two gradients for it."""

    paper = "Fallah et al., NeurIPS 2020"
    preset = {"rounds": 1000, "batch_size": 40, "local_steps": 10, "participation": 0.2}
    unused = ("train.lr", "train.optimizer", "train.momentum", "train.weight_decay")
    personal = "a step on own data, for tests"

    @dataclass(frozen=True)
    class Hyper(Method.Hyper):
        """The hyperparameters of Per-FedAvg."""

        needs: ClassVar[Needs] = {"delta": {"variant": ("hf",)}}

        variant: Literal["fo", "hf"] = "fo"
        """Form: the Hessian's term left out (`fo`), or as a difference of gradients on a third batch (`hf`)."""
        alpha: float = 0.01
        """Rate of the inner step, and of the personal one, the same in all rounds."""
        beta: float = 0.001
        """Rate of the outer step, scaled by the run's schedule."""
        delta: float = 0.01
        """Distance from w at which `hf` takes its two gradients, over the length of the outer gradient."""

        def check(self) -> None:
            """Check the signs of the rates and of delta."""
            require("alpha", self.alpha, NOT_NEGATIVE)
            require("beta", self.beta, POSITIVE)
            require("delta", self.delta, POSITIVE)

    def gradient(self, model: StackedModel, batch: Batch, context: Context) -> tuple[dict[str, Tensor], Log]:
        """Compute the gradient and the loss at the adapted point, with `hf` minus alpha times the Hessian's term."""
        h, w = self.hyper, model.params
        _, inner = measure_slope(model, context.takes["inner"], w)
        # Only one of the passes tracks running statistics, which would otherwise count a step several times.
        loss, outer = measure_slope(model, batch, move_along(w, inner, -h.alpha), track=True)
        if h.variant == "hf":
            third = context.takes["third"]
            ahead, behind = (measure_slope(model, third, move_along(w, outer, d))[1] for d in (h.delta, -h.delta))
            outer = {n: g - h.alpha * (ahead[n] - behind[n]) / (2 * h.delta) for n, g in outer.items()}
        return outer, {"loss": loss}

    def local(self, received: Population, state: FedAvg.State, world: World) -> Population:
        """Train by plain SGD along `gradient`."""
        # Two gradients are taken on the third batch.
        names, passes = (("inner", "third"), 4) if self.hyper.variant == "hf" else (("inner",), 2)
        optimizer = world.optimizer(name="sgd", lr=self.hyper.beta, momentum=0.0, weight_decay=0.0)
        phase = Phase(takes=[Take(name) for name in names])
        return world.fit(received, Gradient(self.gradient, passes), phase=phase, optimizer=optimizer).models

    def views(self, state: FedAvg.State, world: World) -> dict[str, View]:
        """Evaluate w after one step as `personal`, taken when a client is tested, and w itself as `global`."""
        aside = world.aside()
        stepped = state.model.derive(lambda some: take_whole_gradient_step(aside, some, self.hyper.alpha), alike=False)
        return {"personal": View(stepped), "global": View(state.model)}
