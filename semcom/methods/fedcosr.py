"""FedCoSR: contrast with the federation's label centroids; a body mixed of a client's own and the global one.

Huang, Chen, Zhang, Wang, "FedCoSR: Personalized Federated Learning with Contrastive Shareable Representations for Label
Heterogeneity in Non-IID Data", arXiv:2404.17916v3; equations and lines are those of the paper and its Algorithm 1,
whose initialisation is round 1 here. Up: the body, and d numbers per class that the client owns. Down: the global body,
and d numbers per class that has a centroid. The base station knows a client's samples per class, as it knows p_k.

Training starts from the body `tau_k body_k + (1 - tau_k) body_global` and the own head, on `CE + alpha InfoNCE(f,
global centroids)`. `tau_k = exp(-gamma L_Reg)` follows from the client's contrastive loss. Centroids are class means of
received features from a pass after training, weighted by counts. `personal` is the mixture from which the client would
start the next round with the newest global body; with gamma = 0 a client keeps its own body and is tested as in local
training. `trained` is its model as last trained. Ablations: `alpha` 0 (w/o CRL), `local_aggregation` off (w/o LA: the
global body overwrites), `separate` off (w/o Sep: the whole model is averaged).

Choices where the paper is silent: its hyperparameters, here those that FedCRL prints; L_Reg of Eq. 7 is the mean over
the client's last local epoch, not weighted by `alpha`; while there is none (round 1 has no centroids), the global body
overwrites the client's. Classes without a centroid are neither positives nor negatives.

Departures: the headline is `personal`, the mixture of Eq. 9; line 28 of Algorithm 1 returns the trained model,
`trained` (its line 2 names the mixture). Weights are not clipped into [0, 1] (line 22, `clip`): without negative
weights the network learns far less. In the study of scarce data (Fig. 6) clients keep their test images, where the
paper cuts "the data size" and does not say which.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from semcom.channels.options import NOT_NEGATIVE, POSITIVE, require
from semcom.config.options import Needs
from semcom.engine.store.population import Population, blend
from semcom.engine.train.context import Context, Given, Log
from semcom.engine.train.forward import Batch, StackedModel
from semcom.engine.train.view import View
from semcom.engine.world import World
from semcom.methods.base import Method, task_loss
from semcom.methods.parts.prototypes import Prototypes, contrast_with_prototypes, prototypes


class FedCoSR(Method):
    """CE + alpha InfoNCE(f, global centroids), from the body tau_k body_k + (1 - tau_k) body_global."""

    paper = "Huang et al., arXiv:2404.17916v3"
    classifies = True
    shares = "encoder and label centroids"
    personal = "head, and its part of the encoder"
    tells = "counts"
    sends = "theta and label centroids, up and down"

    @dataclass(frozen=True)
    class Hyper(Method.Hyper):
        """Hyperparameters of FedCoSR, as in Table I of FedCRL, since FedCoSR prints no values."""

        needs: ClassVar[Needs] = {"gamma": {"local_aggregation": (True,)}}

        alpha: float = 1.0
        """alpha: weight of the contrastive loss (Eq. 14); 0 is the paper's "w/o CRL"."""
        tau_cl: float = 0.1
        """tau_CL: temperature of InfoNCE (Eq. 13)."""
        gamma: float = 0.8
        """gamma: decay of tau_k = exp(-gamma L_Reg) (Eq. 7); with 0 a client keeps its own body for good."""
        local_aggregation: bool = True
        """Local aggregation, Eq. 8; without it ("w/o LA") the global body always overwrites the own one."""
        separate: bool = True
        """Separation of body and head, which stays; without it ("w/o Sep") the whole model takes the body's place."""
        clip: bool = False
        """Line 22's "clip into [0, 1]", on all weights after each step: without negative ones it learns far less."""

        def check(self) -> None:
            """Check the signs and ranges."""
            require("alpha", self.alpha, NOT_NEGATIVE)
            require("tau_cl", self.tau_cl, POSITIVE)
            require("gamma", self.gamma, NOT_NEGATIVE)

    @dataclass(frozen=True)
    class State:
        """The models, regularisers and centroids.

        Attributes:
            model: own heads `[K, ...]`, the global body `[1, ...]`.
            trained: whole models after training, `[K, ...]`.
            regulariser: L_Reg of each client's last participation, `[K]`, infinite before the first.
            centroids: the global label centroids.
        """

        model: Population
        trained: Population
        regulariser: Tensor
        centroids: Prototypes

    def __init__(self, hyper: FedCoSR.Hyper) -> None:
        super().__init__(hyper)
        self.averages = ("encoder.",) if hyper.separate else ("encoder.", "head.")

    def setup(self, world: World) -> FedCoSR.State:
        """Start from a common body, without any centroid (line 4; heads are equal too by `model.init` common)."""
        never = world.zeros(world.clients).fill_(torch.inf)
        return self.State(world.population(shared=self.averages), world.population(), never, Prototypes.none(world))

    def objective(self, model: StackedModel, batch: Batch, context: Context) -> tuple[Tensor, Log]:
        """Compute Eq. 14 per client, `[k]`, and log the fraction of the samples over which Eq. 13 averages."""
        features, logits = model(batch)
        centroids, known = context.per_client["centroids"], context.common["known"]
        regulariser, part = contrast_with_prototypes(features, centroids, known, batch, self.hyper.tau_cl)
        task = task_loss(logits, batch)
        return task + self.hyper.alpha * regulariser, {"task": task, "regulariser": regulariser, "contrasted": part}

    def aggregate(self, own: Population, received: Population, regulariser: Tensor) -> Population:
        """Compute the models at which each client starts (Eqs. 7 to 9); `regulariser` `[n]`."""
        if not self.hyper.local_aggregation:
            return received
        gamma = self.hyper.gamma  # 0 times an infinite loss is no number
        tau = torch.exp(-gamma * regulariser) if gamma else torch.ones_like(regulariser)
        return blend(own, received, tau, self.averages)

    def round(self, state: FedCoSR.State, world: World) -> FedCoSR.State:
        """Mix bodies and train locally (lines 13 to 25), then average bodies and centroids (lines 11 and 12)."""
        ids = world.sample()
        at, received = world.tensor(ids), world.air.down(state.model.select(ids), self.averages)
        start = self.aggregate(state.trained.select(ids), received, state.regulariser[at])
        given = Given(
            per_client={"centroids": state.centroids.down(world, ids, "centroids")},
            common={"known": world.tensor(state.centroids.known)},
        )
        clip = (lambda name, leaf: leaf.clamp(0, 1)) if self.hyper.clip else None
        fitted = world.fit(start, self.objective, given=given, project=clip)
        trained, log = fitted.models, fitted.log
        newest = world.air.average(trained, self.averages, world.weights(ids), since=received)
        part = log["contrasted"]
        # A client without a contrasted sample has no loss to compare: tau = exp(-inf) = 0 takes the received body.
        regulariser = world.tensor(torch.where(part > 0, log["regulariser"] / part, torch.inf))
        return self.State(
            state.model.put(trained).share(newest),
            state.trained.put(trained),
            state.regulariser.index_copy(0, at, regulariser),
            state.centroids.up(world, ids, *prototypes(world, trained), "counts", "centroids"),  # Eqs. 4 and 6
        )

    def views(self, state: FedCoSR.State, world: World) -> dict[str, View]:
        """Evaluate where each client would start the next round as `personal`, and its last training as `trained`."""

        def start(own: Population) -> Population:
            return self.aggregate(own, state.model.select(own.ids), state.regulariser[world.tensor(own.ids)])

        return {"personal": View(state.trained.derive(start)), "trained": View(state.trained)}
