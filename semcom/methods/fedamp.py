"""FedAMP: every client gets its own cloud model, mixed from clients with similar models.

Huang, Chu, Zhou, Wang, Liu, Pei, Zhang, "Personalized Cross-Silo Federated Learning on Non-IID Data", AAAI 2021,
Algorithm 1, and its heuristic form, HeurFedAMP. Up: a client's model w_k. Down: its cloud model u_k = sum_j xi_kj w_j.
Mixed are the models that the clients of the last round have sent, at first those that this round's begin with, and the
client's own. Of n in all

    cosine:  xi_kj = (1 - 1/n) softmax over j != k of sigma cos(w_k, w_j)
    euclid:  xi_kj = min(alpha, sigma / n) / sigma exp(-||w_k - w_j||^2 / sigma)

and xi_kk is the rest to 1. Distances and cosines are of parameters; running statistics are mixed with the same weights.
A client trains on `CE + lam/(2 alpha) ||w - u_k||^2`. alpha is 1e4, times 0.1 every 30 rounds. At 1e4 the pull is weak,
so the start counts more: at u_k, or with `start` `own` at w_k. A run by SGD in which alpha would fall below lam times
the rate / (2 + 2 momentum), where each step overshoots u_k, is refused.

Choices where the paper is silent: xi_kk = 1/n of `cosine`, sigma of `euclid` (the median squared distance), rates and
schedule.

Departures: `weights` `cosine`, HeurFedAMP, is the default. A client trains E epochs from u_k, where the paper
minimises. Models from before the last round are not mixed (the paper has all clients in each). The server's step of
`euclid` is at most sigma / n: with the paper's alpha the others' weights would sum to thousands between similar models.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from semcom.channels.options import COUNT, NOT_NEGATIVE, POSITIVE, require
from semcom.config import ROUND, ConfigError, Resolved
from semcom.engine.store.population import Population, gram, mix
from semcom.engine.train.context import Context, Given, Log
from semcom.engine.train.forward import Batch, StackedModel
from semcom.engine.train.view import View
from semcom.engine.world import World
from semcom.methods.base import Method, task_loss
from semcom.methods.parts.distance import proximal


class FedAMP(Method):
    """u_k = sum_j xi_kj w_j; CE + lambda / (2 alpha) ||w - u_k||^2."""

    paper = "Huang et al., AAAI 2021"
    averages = ("encoder.", "head.")
    shares = "a mixture u_k for each client"
    personal = "encoder and head"
    sends = "w_k up, u_k down"
    # Each has a mixture of its own, of whole models.
    unused = ("air.privacy", "air.access", "air.compress=top-k", "air.repeat", "train.deadline_s")

    @dataclass(frozen=True)
    class Hyper(Method.Hyper):
        """The hyperparameters of FedAMP."""

        weights: Literal["cosine", "euclid"] = "cosine"
        """Source of xi: the cosines of models (HeurFedAMP), or their squared distances (FedAMP)."""
        sigma: float | None = None
        """sigma: sharpness of the attention (None: 25 for cosine; the median squared distance for euclid)."""
        alpha: float = 1e4
        """alpha: step of the server (euclid), and divisor of lambda."""
        alpha_decay: float = 0.1
        """Factor of alpha after every `alpha_every` rounds."""
        alpha_every: int = 30
        """Number of rounds after which alpha is multiplied by `alpha_decay`."""
        lam: float = 1.0
        """lambda: weight of the distance to the cloud model."""
        start: Literal["cloud", "own"] = "cloud"
        """Start of local training: at u_k (`cloud`), or at w_k (`own`)."""

        def check(self) -> None:
            """Check the signs and ranges."""
            for name in ("sigma", "alpha", "alpha_decay"):
                require(name, getattr(self, name), POSITIVE)
            require("alpha_every", self.alpha_every, COUNT)
            require("lam", self.lam, NOT_NEGATIVE)

    @dataclass(frozen=True)
    class State:
        """The clients' own models.

        Attributes:
            model: w_k, `[K, ...]`.
            sent: as the base station has received them, `[K, ...]`, at first the initial ones.
            told: the clients that sent theirs in the last round, bool `[K]` on the host; at first none.
        """

        model: Population
        sent: Population
        told: Tensor

    def check(self, config: Resolved) -> None:
        """Check that alpha does not get so small that steps of SGD overshoot u_k by more each time.

        The pull is a quadratic of curvature lambda / alpha, on which SGD with momentum m is stable at rates up to 2 (1
        + m) alpha / lambda. A step of Adam does not grow with the pull.

        Raises:
            ConfigError: alpha gets too small, or the clients have several architectures.
        """
        super().check(config)
        train, rate = config.train, config.train.lr
        if train.optimizer != "sgd":
            return
        last = train.rounds + (config.finish.kind == ROUND)
        least = min(self.alpha(r) / train.rate_factor(r) for r in range(1, last + 1))
        need = self.hyper.lam * (max(rate) if isinstance(rate, tuple) else rate) / (2 + 2 * train.momentum)
        if least < need:
            raise ConfigError(f"hyper.alpha: it falls to {least:g}; SGD at this train.lr needs at least {need:g}")

    def setup(self, world: World) -> FedAMP.State:
        """Start from each client's own initial model."""
        model = world.population()
        return self.State(model, model, torch.zeros(world.clients).bool())

    def alpha(self, round_: int) -> float:
        """Compute alpha in a round."""
        return float(self.hyper.alpha * self.hyper.alpha_decay ** ((round_ - 1) // self.hyper.alpha_every))

    def round(self, state: FedAMP.State, world: World) -> FedAMP.State:
        """Mix models into cloud models, train locally near these, and send what comes of it (Algorithm 1)."""
        ids, alpha = world.sample(), self.alpha(world.round)
        told = np.flatnonzero(state.told) if state.told.any() else ids
        own, known = state.model.select(ids), np.union1d(ids, told)
        sent = state.sent.select(known)
        xi = self.attention(gram(sent), alpha, torch.from_numpy(np.isin(known, told)))
        clouds = world.air.down(mix(sent, xi).narrow(ids), self.averages)
        start = clouds if self.hyper.start == "cloud" else own
        given = Given(common={"pull": world.tensor(self.hyper.lam / alpha)}, anchors={"cloud": clouds})
        trained = world.fit(start, self.objective, given=given).models
        model, heard = state.model.put(trained), world.air.up(trained, self.averages, since=clouds)
        sent = model if heard is trained else state.sent.put(heard)  # stored once where the exchange has no errors
        return self.State(model, sent, torch.zeros_like(state.told).index_fill_(0, torch.from_numpy(ids), True))

    def attention(self, inner: Tensor, alpha: float, mixed: Tensor) -> Tensor:
        """Compute xi, each client's weights summing to 1.

        Args:
            inner: the models' inner products, `[n, n]`.
            alpha: of the round.
            mixed: which models are mixed into others, bool `[n]` on the host.

        Returns:
            `[n, n]`, with zeros in columns that are not mixed, but for the diagonal.
        """
        apart = ~mixed.to(inner.device) | torch.eye(len(inner), device=inner.device, dtype=torch.bool)
        norms = inner.diagonal()
        n = (~apart).sum(1, keepdim=True).to(inner) + 1  # with the client's own
        if self.hyper.weights == "cosine":
            scores = (self.hyper.sigma or 25.0) * inner / (norms[:, None] * norms).sqrt()
            others = scores.masked_fill(apart, -torch.inf).softmax(1) * (1 - 1 / n)  # each keeps 1 / n
        else:
            # Rounding may turn the square of a small distance negative. NaN keeps the rest out of the median.
            squared = (norms[:, None] + norms - 2 * inner).clamp(min=0).masked_fill(apart, torch.nan)
            sigma = squared.nanmedian() if self.hyper.sigma is None else squared.new_tensor(self.hyper.sigma)
            sigma = sigma.clamp(min=torch.finfo(sigma.dtype).tiny)  # models that are all alike have no distance
            others = torch.minimum(alpha / sigma, 1 / n) * (-squared / sigma).exp()
        others = others.masked_fill(apart, 0.0)
        return others + (1 - others.sum(1)).diag()

    def objective(self, model: StackedModel, batch: Batch, context: Context) -> tuple[Tensor, Log]:
        """Compute CE + lambda / (2 alpha) ||w - u_k||^2 per client, `[k]`."""
        task = task_loss(model(batch)[1], batch)
        distance = proximal(model, context.models["cloud"])
        return task + context.common["pull"] / 2 * distance, {"task": task, "distance": distance}

    def views(self, state: FedAMP.State, world: World) -> dict[str, View]:
        """Evaluate the clients' own models w_k as `personal`."""
        return {"personal": View(state.model)}
