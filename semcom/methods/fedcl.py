"""FedCL: federated contrastive learning for personalized semantic communication.

Wang, Ni, Yi, Xu, Zhang, Nallanathan, "Federated Contrastive Learning for Personalized Semantic Communication", IEEE
Communications Letters, 2024; equation numbers are the letter's. Up: features and labels. Down: gradients. No model
crosses the air: the base station holds a decoder instance per client, their average, and the semantic centroid
generator (SCG), a small network that turns a fixed random vector per class into the global centroid of that class.

In a round each client encodes and sends its features up. The base station decodes them with the client's instance,
takes the loss of Eq. 10, steps the instance and sends the gradient down, by which the client steps its encoder. The
received features give local centroids (Eq. 7). Then the SCG takes E' steps on Eqs. 8 and 9, and the instances are
averaged with weights p_k (Eq. 5). With `warmup` 0, the SCG's random first centroids pull from round 1 on. `source`
`pass` costs another uplink.

Steps are SGD's (Eqs. 4 and 6; Theorem 1 for the SCG), also in the preset. In a run by Adam the SCG's optimiser is Adam
too, whose moments continue from round to round: one step a round of a new Adam would move every weight by the rate,
whatever its gradient. `sgd` as `scg_optimizer` has neither momentum nor weight decay. A common offset of all centroids
leaves Eq. 9 as printed unchanged, so the gradient of the SCG's last bias is zero but for rounding. Adam in float32
moves this bias all the same, by a third as much as the weights; SGD and float64 do not.

Choices where the letter is silent: the regulariser of Eq. 10 is the squared norm summed over the d features, inside the
sample mean, on the received features (the authors' proof). Eq. 9 as printed is unbounded below, so `infonce` is offered
beside it; only the classes that a client owns count for it, as Eq. 7 is not defined for the others. The mean norm of
the centroids is logged, and a run warns when the regulariser dominates the loss. docs/methods.md explains this, and the
letter's results list the other choices.

Departures: the sum over clients in Eq. 9 is their mean. Adam replaces SGD unless `--train.optimizer sgd` or the preset
says otherwise. `average_encoder` is not the letter's, whose encoders are personal.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import numpy as np
import torch
from torch import Tensor

from semcom.channels.options import COUNT, NOT_NEGATIVE, POSITIVE, WHOLE, require
from semcom.config.options import NOT_ZERO, Needs
from semcom.engine.host.sending import send_to_device
from semcom.engine.store.population import Population, average
from semcom.engine.train.context import Context, Fitted, Given, Log
from semcom.engine.train.descent import Optimizer
from semcom.engine.train.forward import Batch, StackedModel
from semcom.engine.train.phase import Phase
from semcom.engine.train.view import View
from semcom.engine.world import World
from semcom.methods.base import Method, task_loss
from semcom.methods.parts.prototypes import Prototypes, carry, class_means, collect, prototypes, squared_distance
from semcom.models.scg import SCG

FAR, FLOOR = 10.0, 5.0
"""The regulariser dominates if it is more than 10 times the cross-entropy, and more than 5 nat."""


class FedCL(Method):
    """Personal encoders, a global decoder, and a semantic centroid generator (SCG) at the base station."""

    paper = "Wang et al., IEEE Commun. Lett. 2024"
    preset = {"rounds": 200, "optimizer": "sgd", "lr": 0.001}
    split = True
    exchanges = False
    shares = "decoder (at the base station)"
    personal = "encoder"
    sends = "features and labels up, gradients down"

    @dataclass(frozen=True)
    class Hyper(Method.Hyper):
        """The hyperparameters of FedCL, without values in the letter."""

        needs: ClassVar[Needs] = {
            **dict.fromkeys(("lam", "source"), {"centroids": ("scg", "mean")}),  # a pass is sent, whatever lambda is
            **dict.fromkeys(("reduction", "warmup"), {"centroids": ("scg", "mean"), "lam": NOT_ZERO}),
            **dict.fromkeys(
                ("scg_loss", "scg_steps", "scg_optimizer", "scg_lr"), {"centroids": ("scg",), "lam": NOT_ZERO}
            ),
            "tau": {"centroids": ("scg",), "lam": NOT_ZERO, "scg_loss": ("infonce",)},
        }

        lam: float = 1 / 64
        """lambda: weight of the distance to the global centroids (Eq. 10)."""
        reduction: Literal["sum", "mean"] = "sum"
        """Squared norm of Eq. 10: summed over the d features, or their mean (a factor d)."""
        centroids: Literal["scg", "mean", "none"] = "scg"
        """Global centroids: the SCG's, the plain mean of the clients', or no regulariser at all."""
        scg_loss: Literal["letter", "infonce"] = "letter"
        """Eq. 9 as printed, or InfoNCE: cosine, temperature, the positive in the denominator."""
        tau: float = 0.1
        """tau: temperature of `infonce`."""
        scg_steps: int = 1
        """E': steps on the SCG per round."""
        scg_optimizer: Literal["adam", "sgd"] | None = None
        """Optimiser of the SCG, of which Adam's moments go on from round to round (None: the clients' optimiser)."""
        scg_lr: float | None = None
        """Learning rate of the SCG (None: the clients', their mean where they differ)."""
        warmup: int = 0
        """Number of first rounds without the regulariser."""
        average_decoder: bool = True
        """Average of the decoder instances after each round (Eq. 5); without it each client has its own."""
        average_encoder: bool = False
        """Average of the encoders too, which then cross the air; in the letter they stay with their clients."""
        source: Literal["training", "pass"] = "training"
        """Source of local centroids (Eq. 7): the features received in training, or a pass of their own."""

        def check(self) -> None:
            """Check the signs and ranges."""
            require("lam", self.lam, NOT_NEGATIVE)
            require("tau", self.tau, POSITIVE)
            require("scg_lr", self.scg_lr, POSITIVE)
            require("scg_steps", self.scg_steps, COUNT)
            require("warmup", self.warmup, WHOLE)

    @dataclass(frozen=True)
    class State:
        """Encoders and decoder, and the tensors of the base station.

        Attributes:
            model: encoders `[K, ...]` and decoder `[1, ...]`.
            scg: the SCG, `[1, ...]`.
            moments: its optimiser's state, `[1, ...]`, empty for SGD.
            centroids: the global centroids.
        """

        model: Population
        scg: Population
        moments: Population
        centroids: Prototypes

    def __init__(self, hyper: FedCL.Hyper) -> None:
        super().__init__(hyper)
        self.decoder: tuple[str, ...] = ("head.",) if hyper.average_decoder else ()
        self.shared: tuple[str, ...] = ("encoder.",) if hyper.average_encoder else ()
        self.averages, self.exchanges = (*self.shared, *self.decoder), bool(self.shared)

    def setup(self, world: World) -> FedCL.State:
        """Start from own encoders, a common decoder and the SCG.

        The SCG's first centroids regularise from round 1 on. Plain means do not exist yet.
        """
        c, d = world.classes, world.features
        scg = world.server(lambda: SCG(c, d), "scg")
        known = torch.full((c,), self.hyper.centroids == "scg")
        model, moments = world.population(shared=self.averages), self._optimizer(world).state(scg)
        return self.State(model, scg, moments, Prototypes(generate(scg), known))

    def objective(self, model: StackedModel, batch: Batch, context: Context) -> tuple[Tensor, Log]:
        """Compute Eq. 10 per client, `[k]`, at the base station, on the received features."""
        features, logits = model(batch)
        collect(context.carry, features, batch)
        distance = squared_distance(features, context.common["centroids"], context.common["known"], batch)
        if self.hyper.reduction == "mean":
            distance = distance / features.shape[-1]
        task = task_loss(logits, batch)
        return task + context.common["lam"] * distance, {"task": task, "distance": distance}

    def round(self, state: FedCL.State, world: World) -> FedCL.State:
        """Train through the link, average the decoders by p_k, train the SCG (Algorithm 1, lines 4 to 16)."""
        ids = world.sample()
        off = self.hyper.centroids == "none" or world.round <= self.hyper.warmup
        lam = torch.tensor(0.0 if off else self.hyper.lam, dtype=state.centroids.values.dtype)
        told = send_to_device({"known": state.centroids.known, "lam": lam}, state.centroids.values.device)
        common = {"centroids": state.centroids.values, **told}
        given = Given(common=common, carry=carry(world, len(ids)))
        received = world.air.down(state.model.select(ids), self.shared)
        fitted = world.fit(received, self.objective, given=given)
        trained, p = fitted.models, world.weights(ids)
        self._warn(fitted.log, world)
        if world.round == 1 and self.hyper.warmup >= world.config.train.rounds:
            world.warn("warmup", f"hyper.warmup: {self.hyper.warmup} rounds leave none with the regulariser")
        means, counts = class_means(**fitted.carried), fitted.carried["counts"]
        if self.hyper.source == "pass":
            means, counts = prototypes(world, trained)
        # The air leaves out late clients by itself here, which the decoder and the SCG below have to do by hand.
        encoder = world.air.average(trained, self.shared, p, since=received)
        arrived = world.arrived(ids)
        here, late = np.flatnonzero(arrived), ids[~arrived]  # those whose features came after the deadline
        if len(late):
            trained = trained.put(trained.select(late).take("head.", state.model.select(late)))
        model = state.model.put(trained).share(encoder)
        if not len(here):
            return replace(state, model=model)
        if len(late):
            ids, trained = ids[here], trained.select(ids[here])
            means, counts = (t[world.tensor(here)] for t in (means, counts))
            p = world.weights(ids)
        model = model.share(average(trained, self.decoder, p))
        newest = self._centroids(replace(state, model=model), world, means, counts)
        if self.hyper.centroids != "none":
            world.report("centroids/norm", newest.centroids.values[newest.centroids.known].norm(dim=-1))
        return newest

    def _warn(self, log: Log, world: World) -> None:
        """Warn if the regulariser is far larger than the cross-entropy, as centroids without end make it."""
        task, loss = torch.stack([log["task"], log["loss"]]).mean(1).tolist()
        regulariser = loss - task
        if regulariser > FLOOR and regulariser > FAR * task:
            what = f"lambda times the distance of Eq. 10 is {regulariser:.3g} nat, the cross-entropy {task:.3g} nat"
            remedies = ", or ".join(self._remedies(world))
            world.warn("regulariser", f"fedcl: the regulariser dominates the cross-entropy: {what}; take {remedies}")

    def _remedies(self, world: World) -> list[str]:
        """List the settings that keep the regulariser small; with Eq. 9 as printed it grows with the centroids."""
        found = [f"a smaller hyper.lam than {self.hyper.lam:.3g}"]
        if self.hyper.centroids == "scg" and self.hyper.scg_loss == "letter":
            found += ["hyper.scg-loss infonce", "a smaller hyper.scg-lr"]
            if self._optimizer(world).name == "sgd":  # under which the growth is exponential
                found.append("hyper.scg-optimizer adam")
        return found

    def _centroids(self, state: FedCL.State, world: World, means: Tensor, counts: Tensor) -> FedCL.State:
        """Update SCG and global centroids by Eqs. 8 and 9 on local means `[n, C, d]`."""
        if self.hyper.centroids != "scg":
            return replace(state, centroids=state.centroids.renewed(means, counts, "mean"))
        fitted = self._train_scg(state, world, means, counts)
        centroids = Prototypes(generate(fitted.models), state.centroids.known)
        return replace(state, scg=fitted.models, moments=fitted.optimizer_state, centroids=centroids)

    def _train_scg(self, state: FedCL.State, world: World, means: Tensor, counts: Tensor) -> Fitted:
        """Take E' steps on Eq. 8, from SCG and optimiser as the last round left them."""

        def objective(model: StackedModel, batch: None, context: Context) -> Tensor:
            return self.scg_loss(context.common["means"], model.output().squeeze(0), context.common["counts"] > 0)[None]

        return world.fit(
            state.scg,
            objective,
            train="",
            given=Given(common={"means": means, "counts": counts}),
            phase=Phase(stream="scg", steps=self.hyper.scg_steps),
            optimizer=self._optimizer(world),
            optimizer_state=state.moments,
        )

    def _optimizer(self, world: World) -> Optimizer:
        """Make the SCG's optimiser in this round, by default at the clients' rate, without momentum or weight decay."""
        name, rate = self.hyper.scg_optimizer, self.hyper.scg_lr
        return world.optimizer(name=name, lr=rate, momentum=0.0, weight_decay=0.0)

    def scg_loss(self, local: Tensor, centroids: Tensor, owned: Tensor) -> Tensor:
        """Compute Eqs. 8 and 9, the mean over participants: `[n, C, d], [C, d], bool [n, C] -> []`.

        Only classes that a client owns count for it. All the others are negatives.
        """
        if self.hyper.scg_loss == "infonce":
            normal = torch.nn.functional.normalize
            similarity = normal(local, dim=-1) @ normal(centroids, dim=-1).T / self.hyper.tau
            negatives = similarity
        else:
            similarity = local @ centroids.T
            negatives = similarity.masked_fill(owned.new_ones(len(centroids)).diag(), -torch.inf)
        terms = negatives.logsumexp(-1) - similarity.diagonal(dim1=-2, dim2=-1)
        return torch.where(owned, terms, 0.0).sum() / len(local)

    def views(self, state: FedCL.State, world: World) -> dict[str, View]:
        """Evaluate the personal encoders theta_k with the global decoder phi as `personal`."""
        return {"personal": View(state.model)}


@torch.no_grad()
def generate(scg: Population) -> Tensor:
    """Generate the centroids `[C, d]` of an SCG in its current state."""
    cohort = scg.cohorts[0]
    return StackedModel(cohort.network, {}, cohort.tensors).output().squeeze(0)
