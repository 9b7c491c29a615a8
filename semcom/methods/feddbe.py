"""FedDBE: each client's own bias of the features, and a pull of their mean to the common mean.

Zhang, Hua, Cao, Wang, Song, Xue, Ma, Guan, "Eliminating Domain Bias for Federated Learning in Representation Space",
NeurIPS 2023, Algorithm 1. Up and down: the model; up in round 1 also d numbers of mean features, down in all later
rounds the consensus, d numbers.

The personal bias (PRBM) is added to the received features before the head. It trains with the model and stays. The
regulariser (MR) is `kappa/2 mean((m - consensus)^2)`. m is the running mean of the client's features f, `(1 - mu) m +
mu mean(batch)` from 0 in each round, with the gradient of the last mini-batch. The consensus is the mean by p_k of the
clients' m at the end of round 1, which has no pull. kappa 50 and mu 1 are the paper's values for a small CNN, 1 and 0.1
those for ResNet-18. Round 1 is here the first that has clients.

Choices where the paper is silent: none known.

Departures: round 1 is the initialisation; its models are kept, and its clients make the consensus for the whole run,
also where they are few of many (the authors' code trains all clients once before round 1, without bias, and drops these
models). The consensus comes with every model, not once. The factor of one half is the code's. A small last mini-batch
counts as a whole one (PFLlib: dropped): with mu 1 the consensus is then a mean of few images.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from semcom.channels.options import NOT_NEGATIVE, SHARE, require
from semcom.config.options import NOT_ZERO, Needs
from semcom.engine.train.context import Context, Given, Log
from semcom.engine.train.forward import Batch, StackedModel
from semcom.engine.world import World
from semcom.methods.base import Method, task_loss
from semcom.methods.fedavg import FedAvg
from semcom.models.split import SplitModel
from semcom.models.stacks import for_stacks


@for_stacks
class Bias(nn.Module):
    """A layer that adds a vector, zero at first."""

    def __init__(self, features: int) -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(features))

    def forward(self, x: Tensor) -> Tensor:
        """Add the bias to `[..., b, d]`."""
        return x + self.bias.unsqueeze(-2)


class FedDBE(FedAvg):
    """CE of the head of f + bias_k, and kappa/2 times the mean square of mean(f) - consensus, from round 2."""

    paper = "Zhang et al., NeurIPS 2023"
    preset = {}
    averages: tuple[str, ...] = ("encoder.", "head.1.")
    unused = (
        "air.privacy",
        "model.init",
        "air.repeat",
        "train.deadline_s",
    )  # the consensus is that of all clients of round 1
    shares = "encoder and head, mean features"
    personal = "a bias of the features"
    sends = "w up, w and the mean features down; in round 1 mean features up"

    @dataclass(frozen=True)
    class Hyper(Method.Hyper):
        """The hyperparameters of FedDBE."""

        needs: ClassVar[Needs] = {"mu": {"kappa": NOT_ZERO}}

        kappa: float = 50.0
        """kappa: weight of the regulariser (the paper: 50 for a small CNN, 1 for ResNet-18)."""
        mu: float = 1.0
        """mu: weight of a mini-batch in the running mean (the paper: 1.0 for a small CNN, 0.1 for ResNet-18)."""
        bias: bool = True
        """The personal bias; without it and with kappa 0 the method is FedAvg."""

        def check(self) -> None:
            """Check the sign and the range."""
            require("kappa", self.kappa, NOT_NEGATIVE)
            require("mu", self.mu, SHARE)

    @dataclass(frozen=True)
    class State(FedAvg.State):
        """FedAvg's State, with the biases `[K, d]` in the models, and the `consensus`, `[d]` once it is made."""

        consensus: Tensor

    def __init__(self, hyper: FedDBE.Hyper) -> None:
        if not hyper.bias:
            self.averages = FedAvg.averages
        super().__init__(hyper)

    def setup(self, world: World) -> FedDBE.State:
        """Start from common weights, biases of zero, and without a consensus."""

        def add_bias(model: SplitModel) -> None:
            model.head = nn.Sequential(Bias(world.features), model.head)

        extend = add_bias if self.hyper.bias else None
        return self.State(world.population(shared=self.averages, extend=extend), world.zeros(0))

    def objective(self, model: StackedModel, batch: Batch, context: Context) -> tuple[Tensor, Log]:
        """Compute CE + kappa times the regulariser per client, `[k]`, and move the running mean of the features."""
        features, logits = model(batch)
        new = (features * batch.weight[..., None]).sum(1) / batch.count[:, None]
        mean = (1 - self.hyper.mu) * context.carry["mean"] + self.hyper.mu * new
        context.carry["mean"].copy_(mean.detach())  # or each batch would keep the graphs of all before it
        distance = (mean - context.per_client["consensus"]).square().mean(-1) * context.common["known"]
        task = task_loss(logits, batch)
        return task + self.hyper.kappa / 2 * distance, {"task": task, "distance": distance}

    def round(self, state: FedDBE.State, world: World) -> FedDBE.State:
        """Train locally, average by p_k, and in round 1 make the consensus (Algorithm 1)."""
        ids, known, consensus = world.sample(), len(state.consensus) > 0, state.consensus
        p, floats = world.weights(ids), np.full(len(ids), world.features)
        received = world.air.down(state.model.select(ids), self.averages)
        told = consensus.expand(len(ids), -1) if known else world.zeros(len(ids), world.features)
        if known:
            told = world.air.send("down", "consensus", told, ids, floats, broadcast=True)
        given = Given(
            per_client={"consensus": told},
            common={"known": world.tensor(float(known))},
            carry={"mean": torch.zeros_like(told)},
        )
        fitted = world.fit(received, self.objective, given=given)
        newest = world.air.average(fitted.models, self.averages, p, since=received)
        if not known:
            means = world.air.send("up", "consensus", fitted.carried["mean"], ids, floats)
            consensus = (p[:, None] * means).sum(0)
        return self.State(state.model.put(fitted.models).share(newest), consensus)
