"""FedAMP: every client gets a cloud model of its own, mixed from those clients whose models are like its own.

Huang, Chu, Zhou, Wang, Liu, Pei, Zhang, "Personalized Cross-Silo Federated Learning on Non-IID Data", AAAI 2021,
Algorithm 1, Eqs. 3 to 7, and its heuristic form (HeurFedAMP). Up: a client's model w_k. Down: its cloud model u_k.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from semcom.checks import COUNT, NOT_NEGATIVE, POSITIVE, require
from semcom.engine.distance import proximal
from semcom.engine.fit import Context, Log
from semcom.engine.forward import Batch, StackedModel
from semcom.engine.population import Population, gram, mix
from semcom.engine.visit import View
from semcom.engine.world import World
from semcom.methods.base import Method, task_loss


class FedAMP(Method):
    """u_k = sum_j xi_kj w_j; CE + lambda / (2 alpha) ||w - u_k||^2."""

    paper = "Huang et al., AAAI 2021"
    averages = ("encoder.", "head.")
    shares = "a mixture u_k for each client"
    personal = "encoder and head"
    sends = "w_k up, u_k down"

    @dataclass(frozen=True)
    class Hyper(Method.Hyper):
        """FedAMP's hyperparameters."""

        weights: Literal["cosine", "euclid"] = "cosine"
        """xi from cosines of models (HeurFedAMP), or from their squared distances (Eq. 4)."""
        sigma: float | None = None
        """sigma: sharpness of the attention (None: 25 for cosine; the median squared distance for euclid)."""
        alpha: float | None = None
        """alpha: step of the server, and the prox's divisor (None: 1e4 for cosine; sigma / K for euclid)."""
        alpha_decay: float = 0.1
        """What alpha is multiplied by every `alpha_every` rounds."""
        alpha_every: int = 30
        """See `alpha_decay`."""
        lam: float = 1.0
        """lambda: weight of the distance to the cloud model."""
        start: Literal["cloud", "own"] = "cloud"
        """Where local training starts: at u_k, or at w_k."""

        def check(self) -> None:
            """Signs and ranges."""
            for name in ("sigma", "alpha", "alpha_decay"):
                require(f"method.{name}", getattr(self, name), POSITIVE)
            require("method.alpha_every", self.alpha_every, COUNT)
            require("method.lam", self.lam, NOT_NEGATIVE)

    @dataclass(frozen=True)
    class State:
        """`model`: the personal models w_k, `[K, ...]`."""

        model: Population

    def setup(self, world: World) -> FedAMP.State:
        """Own models."""
        return self.State(world.population())

    def round(self, state: FedAMP.State, world: World) -> FedAMP.State:
        """Algorithm 1, over the round's participants."""
        own = state.model.rows(world.sample())
        sent = world.air.up(own, self.averages)
        decay = self.hyper.alpha_decay ** ((world.round - 1) // self.hyper.alpha_every)
        xi, alpha = self.attention(gram(sent), decay)
        clouds = world.air.down(mix(sent, xi), self.averages)
        trained, _, _ = world.fit(
            clouds if self.hyper.start == "cloud" else own,
            self.objective,
            anchors={"cloud": clouds},
            shared={"pull": (self.hyper.lam / (2 * alpha)).nan_to_num(posinf=0.0)},  # all alike: nothing to pull to
        )
        return self.State(state.model.put(trained))

    def attention(self, inner: Tensor, decay: float) -> tuple[Tensor, Tensor]:
        """xi `[n, n]` (rows sum to 1) and alpha `[]` from the models' inner products `[n, n]`."""
        n, others = len(inner), ~torch.eye(len(inner), dtype=torch.bool, device=inner.device)
        norms = inner.diagonal()
        if self.hyper.weights == "cosine":
            cosines = inner / (norms[:, None] * norms).sqrt()
            scores = ((self.hyper.sigma or 25.0) * cosines).masked_fill(~others, -torch.inf)
            xi = scores.softmax(1).nan_to_num() * (1 - 1 / n)
            alpha = inner.new_tensor((self.hyper.alpha or 1e4) * decay)
        else:
            squared = (norms[:, None] + norms - 2 * inner).clamp(min=0)
            median = squared[others].median() if n > 1 else squared.sum()
            sigma = median if self.hyper.sigma is None else squared.new_tensor(self.hyper.sigma)
            alpha = (sigma / n if self.hyper.alpha is None else sigma.new_tensor(self.hyper.alpha)) * decay
            xi = (alpha / sigma * (-squared / sigma).exp()).nan_to_num(1 / n).masked_fill(~others, 0.0)
        return xi + (1 - xi.sum(1)).diag(), alpha

    def objective(self, model: StackedModel, batch: Batch, context: Context) -> tuple[Tensor, Log]:
        """Eq. 7."""
        task = task_loss(model(batch)[1], batch)
        distance = proximal(model, context.models["cloud"])
        return task + context.shared["pull"].to(task) * distance, {"task": task, "distance": distance}

    def views(self, state: FedAMP.State, world: World) -> dict[str, View]:
        """Own models w_k."""
        return {"personal": View(state.model)}
