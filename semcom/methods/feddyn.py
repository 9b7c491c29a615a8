"""FedDyn: a regulariser that each client renews, so that the clients' minima and the global one agree.

Acar, Zhao, Matas Navarro, Mattina, Whatmough, Saligrama, "Federated Learning Based on Dynamic Regularization", ICLR
2021, Algorithm 1. Up and down: the whole model. Client k keeps g_k, the paper's grad L_k(theta_k), one number for each
parameter. The base station keeps h. BatchNorm's running statistics are averaged and have neither.

The loss is `CE - <g_k, w> + alpha/2 ||w - w_received||^2`. Then g_k becomes `g_k - alpha (w_k - w_received)`, h becomes
`h - alpha sum_k (D_k / D) (w_k - w)`, D over all clients, and w becomes the mean minus `h / alpha`, so alpha must not
be 0.

Choices where the paper is silent: `alpha` 0.1, which the paper chooses from 0.1, 0.01 and 0.001.

Departures: models are averaged by p_k, and h sums the clients by their numbers of images (Algorithm 1: plain means; the
authors' code divides `alpha` by a client's weight instead). Clients train E epochs where the paper minimises, without
the gradient clipping of the authors' code. Uncoded or quantised, h follows the models as they arrive and g_k the exact
ones, and the errors of all rounds stay in h: of n of N equal clients in each of t rounds, sqrt(t n) / N times that of
one change of g_k. All 20 clients leave in 60 rounds 0.55 of a change's r.m.s. at 10 dB, or 0.006 of its largest number
with 8 bits.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from semcom.channels.options import POSITIVE, require
from semcom.engine.store.population import Population
from semcom.engine.train.context import Context, Given, Log
from semcom.engine.train.forward import Batch, StackedModel
from semcom.engine.world import World
from semcom.methods.base import Method, task_loss
from semcom.methods.fedavg import FedAvg
from semcom.methods.parts.distance import inner_product, proximal


class FedDyn(FedAvg):
    """CE - <g_k, w> + alpha/2 ||w - w_received||^2; then g_k <- g_k - alpha (w_k - w_received)."""

    paper = "Acar et al., ICLR 2021"
    preset = {}
    unused = (
        "air.privacy",
        "model.init",
        "air.repeat",
        "train.deadline_s",
    )  # h belongs to the g_k, but for noise, if every model arrives
    personal = "a gradient g_k"

    @dataclass(frozen=True)
    class Hyper(Method.Hyper):
        """The hyperparameter of FedDyn."""

        alpha: float = 0.1
        """alpha: weight of the regulariser."""

        def check(self) -> None:
            """Check that alpha is positive: the base station divides by it."""
            require("alpha", self.alpha, POSITIVE)

    @dataclass(frozen=True)
    class State(FedAvg.State):
        """FedAvg's State, g_k in `own`, `[K, ...]`, and the base station's `h`, `[1, ...]`."""

        own: Population
        h: Population

    def setup(self, world: World) -> FedDyn.State:
        """Start from common weights, with g_k and h of zero."""
        model = world.population(shared=self.averages)
        names = model.parameters()
        h = model.one(names)
        zeros = {name: torch.zeros_like(t) for name, t in h.named().items()}
        return self.State(model, world.constant(names, 0.0), h.replaced(zeros))

    def objective(self, model: StackedModel, batch: Batch, context: Context) -> tuple[Tensor, Log]:
        """Compute the regularised loss of Algorithm 1 per client, `[k]`."""
        task = task_loss(model(batch)[1], batch)
        distance = proximal(model, context.models["received"])
        loss = task + self.hyper.alpha / 2 * distance - inner_product(model, context.models["own"].tensors)
        return loss, {"task": task, "distance": distance}

    def round(self, state: FedDyn.State, world: World) -> FedDyn.State:
        """Train locally, renew g_k and h, and take h / alpha from the average (Algorithm 1)."""
        ids, names, alpha = world.sample(), state.model.parameters(), self.hyper.alpha
        own = state.own.select(ids)
        received = world.air.down(state.model.select(ids), self.averages)
        given = Given(anchors={"received": received, "own": own})
        trained = world.fit(received, self.objective, given=given).models
        newest = world.air.average(trained, self.averages, world.weights(ids), since=received)
        g, start, end = (pop.named(names) for pop in (own, received, trained))
        before, h = state.model.one(names).named(), state.h.named()  # not `received`: h sums the server's own steps
        h = {n: h[n] - alpha * world.fraction(ids) * (newest[n] - before[n]) for n in names}
        return self.State(
            state.model.share(newest | {n: newest[n] - h[n] / alpha for n in names}),
            state.own.put(own.replaced({n: g[n] - alpha * (end[n] - start[n]) for n in names})),
            state.h.replaced(h),
        )
