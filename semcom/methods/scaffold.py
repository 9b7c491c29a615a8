"""SCAFFOLD: control variates take the drift out of local steps.

Karimireddy, Kale, Mohri, Reddi, Stich, Suresh, "SCAFFOLD: Stochastic Controlled Averaging for Federated Learning", ICML
2020, Algorithm 1, option II. Up: the model w_k and the change of the control c_k, one number for each parameter. Down:
w and c. c_k stays.

Local steps are plain SGD along `grad CE + c - c_k`, at a rate of their own: option II infers a gradient from the way
from w to w_k, the number of steps and the rate. `train.lr_milestones` scale this rate. Afterwards c_k becomes `c_k - c
+ (w - w_k) / (steps eta_l)`, c moves by the mean of the changes, and w moves by `eta_g` times the way to the clients'
mean. Round 1 is FedAvg's. BatchNorm's running statistics have no control.

Choices where the paper is silent: `eta_l` 0.05; the paper tunes it for each task.

Departures: models are averaged by p_k, and c is the mean of all c_k weighted by the clients' numbers of images
(Algorithm 1: plain means), so that corrections cancel in the average of unequal clients too.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from semcom.channels.options import POSITIVE, require
from semcom.engine.store.population import Population, blend
from semcom.engine.train.context import Context, Given, Log
from semcom.engine.train.forward import Batch, StackedModel
from semcom.engine.world import World
from semcom.methods.base import Method, task_loss
from semcom.methods.fedavg import FedAvg
from semcom.methods.parts.distance import inner_product


class Scaffold(FedAvg):
    """w_k <- w_k - eta_l (grad CE + c - c_k); then c_k <- c_k - c + (w - w_k) / (steps eta_l)."""

    paper = "Karimireddy et al., ICML 2020"
    preset = {}
    unused = (
        "air.privacy",  # control variates go up too
        "train.lr", "train.optimizer", "train.momentum", "train.weight_decay",
        "model.init", "air.repeat", "train.deadline_s",  # c is the mean of the c_k as long as every change arrives
    )  # fmt: skip
    shares = "encoder and head, control c"
    personal = "a control c_k"
    sends = "w and the change of c_k up, w and c down"

    @dataclass(frozen=True)
    class Hyper(Method.Hyper):
        """The hyperparameters of SCAFFOLD."""

        eta_l: float = 0.05
        """eta_l: rate of local steps, scaled by the run's schedule."""
        eta_g: float = 1.0
        """eta_g: rate of the base station's step towards the clients' mean."""

        def check(self) -> None:
            """Check that both rates are positive."""
            require("eta_l", self.eta_l, POSITIVE)
            require("eta_g", self.eta_g, POSITIVE)

    @dataclass(frozen=True)
    class State(FedAvg.State):
        """FedAvg's State, the controls c_k in `own`, `[K, ...]`, and c in the parameters of `mean`, `[1, ...]`."""

        own: Population
        mean: Population

    def setup(self, world: World) -> Scaffold.State:
        """Start from common weights, and from controls of zero."""
        model = world.population(shared=self.averages)
        zeros = {name: torch.zeros_like(t) for name, t in model.one(self.averages).named().items()}
        return self.State(model, world.constant(model.parameters(), 0.0), model.share(zeros))

    def objective(self, model: StackedModel, batch: Batch, context: Context) -> tuple[Tensor, Log]:
        """Compute CE + <c - c_k, w> per client, `[k]`: its gradient is the corrected one."""
        context.carry["steps"].add_(1)  # clients with more samples take more steps in an epoch
        c, own = context.models["mean"].tensors, context.models["own"].tensors
        correction = inner_product(model, {name: c[name] - own[name] for name in model.params})
        task = task_loss(model(batch)[1], batch)
        return task + correction, {"task": task}

    def round(self, state: Scaffold.State, world: World) -> Scaffold.State:
        """Train locally along corrected gradients, average models and controls (Algorithm 1)."""
        ids, names = world.sample(), state.model.parameters()
        p, own = world.weights(ids), state.own.select(ids)
        received = world.air.down(state.model.select(ids), self.averages)
        mean = world.air.down(state.mean.select(ids), names, "control.")
        sgd = world.optimizer(name="sgd", lr=self.hyper.eta_l, momentum=0.0, weight_decay=0.0)
        given = Given(anchors={"own": own, "mean": mean}, carry={"steps": torch.zeros_like(p)})
        fitted = world.fit(received, self.objective, given=given, optimizer=sgd)
        newest = world.air.average(fitted.models, self.averages, p, since=received)
        c_k, c, start, end = (pop.named(names) for pop in (own, mean, received, fitted.models))
        # Option II of the paper: the mean gradient of the steps that were taken, without a pass over the data.
        rates = {n: fitted.carried["steps"] * (sgd.base_lr * sgd.factor(n)) for n in names}
        change = {n: torch.einsum("k,k...->k...", 1 / rates[n], start[n] - end[n]) - c[n] for n in names}
        shift = world.air.average(own.replaced(change), names, p, name="control.")
        server, controls = state.model.one(self.averages), state.mean.one(names).named()
        # `names` are parameters only: a step of eta_g above 1 could turn a running variance negative.
        moved = blend(server.replaced(newest), server, self.hyper.eta_g, names).named(names)
        return self.State(
            state.model.share(newest | moved),
            state.own.put(own.replaced({n: c_k[n] + change[n] for n in names})),
            state.mean.share({n: controls[n] + world.fraction(ids) * shift[n] for n in names}),
        )
