"""FedCRC: a slowly moving global predictor as the common criterion of representation learning, and a personal one.

Wang, Xie, Yu, Qu, Zhang, Cao, "Federated Learning with Common Representation Learning Criterion and Personalized
Predictor", Algorithm 1; equation numbers are the paper's. Up and down: the encoder theta, the global predictor phi_g.

A round trains the body for E epochs with phi_g frozen, the own head h_k for E epochs on that body, and phi_g for one
epoch on CE + KL(h_k || phi_g), without gradient to h_k. The optimiser starts anew in each of the three. The base
station averages bodies by p_k and moves phi_g to `tau phi_g + (1 - tau) mean`. `global` is the paper's FedCRC.
FedCRC-Per is h_k on a body: on the mean body in `personal`, which a client gets next, on the client's own after its
last participation in `own_body`.

Choices where the paper is silent: the body of FedCRC-Per, as Algorithm 1 trains h_k on the client's own body while Eq.
5 speaks of the common one; `divergence` `forward`, as Eq. 6 does not name the direction of its divergence (`reverse`
swaps the two); the batch size and the widths of the network.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from torch import Tensor
from torch.nn.functional import kl_div

from semcom.channels.options import PART, require
from semcom.engine.store.population import Population
from semcom.engine.train.context import Context, Given, Log
from semcom.engine.train.forward import Batch, StackedModel
from semcom.engine.train.phase import Phase
from semcom.engine.train.view import View
from semcom.engine.world import World
from semcom.methods.base import Method, task_loss


class FedCRC(Method):
    """The encoder learns with phi_g frozen, a personal head on that encoder, and phi_g from labels and that head."""

    paper = "Wang et al. (FedCRC)"
    classifies = True
    preset = {
        "optimizer": "sgd", "lr": 0.05, "momentum": 0.9, "lr_milestones": (50, 75), "lr_decay": (0.2, 0.1),
        "rounds": 100, "local_epochs": 5, "participation": 0.1,
    }  # fmt: skip
    averages = ("encoder.", "head.")
    shares = "encoder and a global predictor"
    personal = "predictor h_k"
    sends = "theta and phi_g up, theta and phi_g down"

    @dataclass(frozen=True)
    class Hyper(Method.Hyper):
        """The hyperparameters of FedCRC."""

        tau: float = 0.99
        """tau: part of the global predictor that stays at the server's moving average."""
        divergence: Literal["forward", "reverse"] = "forward"
        """Eq. 7: KL(h_k || phi_g), or KL(phi_g || h_k)."""

        def check(self) -> None:
            """Check that tau is in range."""
            require("tau", self.tau, PART)

    @dataclass(frozen=True)
    class State:
        """The models.

        Attributes:
            model: the global model, `[1, ...]`.
            personal: its encoder with own predictors h_k, `[K, ...]`.
            own: whole models from the last training of h_k, `[K, ...]`, at first the initial models.
        """

        model: Population
        personal: Population
        own: Population

    def setup(self, world: World) -> FedCRC.State:
        """Start from common weights, and from each client's own for its predictor and the body that belongs to it."""
        heads = world.population(shared="encoder.")
        return self.State(world.population(shared=self.averages), heads, world.population())

    def round(self, state: FedCRC.State, world: World) -> FedCRC.State:
        """Train the body, the own predictor and the global one; average body and global predictor (Algorithm 1).

        The body and the own predictor train for E epochs each, the global predictor for a single epoch.
        """
        ids = world.sample()
        received = world.air.down(state.model.select(ids), self.averages)
        body = world.fit(received, self.objective, train="encoder.").models
        personal = body.take("head.", state.personal.select(ids))
        own = world.fit(personal, self.objective, train="head.", phase=Phase("personal")).models
        given, phase = Given(anchors={"own": own}), Phase("predictor", epochs=1)
        guided = world.fit(body, self.guided_objective, train="head.", given=given, phase=phase).models
        newest = world.air.average(guided, self.averages, world.weights(ids), since=received)
        before = state.model.one("head.").named()  # not `received`, which the downlink may have changed
        tau = self.hyper.tau
        predictor = {name: tau * t + (1 - tau) * newest[name] for name, t in before.items()}
        model = state.model.share({**newest, **predictor})
        return self.State(model, state.personal.put(own).share(model.one("encoder.").named()), state.own.put(own))

    def guided_objective(self, model: StackedModel, batch: Batch, context: Context) -> tuple[Tensor, Log]:
        """Compute Eq. 7 per client, `[k]`: phi_g learns from labels and from the client's own, frozen predictor."""
        features, logits = model(batch)
        own = context.models["own"].decode(features, batch).detach().log_softmax(-1)
        pair = (logits.log_softmax(-1), own) if self.hyper.divergence == "forward" else (own, logits.log_softmax(-1))
        divergence = batch.mean(kl_div(*pair, reduction="none", log_target=True).sum(-1))
        task = task_loss(logits, batch)
        return task + divergence, {"task": task, "divergence": divergence}

    def views(self, state: FedCRC.State, world: World) -> dict[str, View]:
        """Evaluate FedCRC as `global`; h_k with the mean body as `personal`, with the client's own as `own_body`."""
        return {"global": View(state.model), "personal": View(state.personal), "own_body": View(state.own)}
