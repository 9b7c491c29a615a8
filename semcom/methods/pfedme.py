"""pFedMe: personal models tied to a global one by Moreau envelopes.

Dinh, Tran, Nguyen, "Personalized Federated Learning with Moreau Envelopes", NeurIPS 2020, Algorithm 1. Up and down: the
global model w. The personal theta stays.

Each mini-batch takes K = `inner_steps` steps `theta <- theta - lr_p (grad CE + lam (theta - w) + nu theta)` with the
same noise, then `w <- w - eta lam (w - theta)`. theta starts at w in each round and continues from batch to batch. The
new global model is `(1 - beta) w + beta mean`, the mean with weights p_k. Values with lr_p (lam + nu) > 2, where the
inner step diverges, are refused. Both rates are hyperparameters; of the run's optimiser only the schedule counts,
`train.lr_milestones`, which scales eta, not lr_p.

BatchNorm's running statistics move once per mini-batch, in the last of the K passes, and are averaged. `personal` is
theta with the statistics of its own training.

Choices where the paper is silent: none known.

Departures: only the clients of a round train, and their w are averaged by p_k (Algorithm 1: all clients train, and the
plain mean is over a drawn part of them; the authors' code averages by p_k too). The weight decay `nu` is 0.0 (the code:
0.001). `lr_p` 0.01 is the authors' value for synthetic data (for MNIST, whence the preset: 0.1 and 0.09), as our
features of unit power ask for smaller steps.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from semcom.channels.options import COUNT, NOT_NEGATIVE, POSITIVE, require
from semcom.config import ConfigError
from semcom.engine.store.population import Population, blend
from semcom.engine.train.context import Context, Given, Gradient, Log
from semcom.engine.train.forward import Batch, StackedModel
from semcom.engine.train.view import View
from semcom.engine.world import World
from semcom.methods.base import Method
from semcom.methods.fedavg import FedAvg
from semcom.methods.parts.slopes import measure_slope


class PFedMe(FedAvg):
    """theta <- theta - lr_p (grad CE + lambda (theta - w) + nu theta), K times; w <- w - eta lambda (w - theta)."""

    paper = "Dinh et al., NeurIPS 2020"
    preset = {"rounds": 800, "batch_size": 20, "local_steps": 20, "participation": 0.25}
    unused = ("train.lr", "train.optimizer", "train.momentum", "train.weight_decay")
    personal = "a copy theta of the model"

    @dataclass(frozen=True)
    class Hyper(Method.Hyper):
        """The hyperparameters of pFedMe."""

        lam: float = 15.0
        """lambda: how strongly theta is tied to w."""
        inner_steps: int = 5
        """K: steps on theta per mini-batch."""
        lr_p: float = 0.01
        """Rate of theta, the same in all rounds."""
        eta: float = 0.005
        """Rate of w, scaled by the run's schedule."""
        beta: float = 1.0
        """beta: weight of the clients' mean in the new global model."""
        nu: float = 0.0
        """Weight decay of theta (the authors' code: 0.001)."""

        def check(self) -> None:
            """Check the signs, and that lr_p times (lambda + nu) is at most 2."""
            rules = {"lr_p": POSITIVE, "eta": POSITIVE, "beta": POSITIVE, "lam": NOT_NEGATIVE, "nu": NOT_NEGATIVE}
            for name, rule in {**rules, "inner_steps": COUNT}.items():
                require(name, getattr(self, name), rule)
            pull = self.lr_p * (self.lam + self.nu)
            if pull > 2:
                raise ConfigError(f"hyper.lr-p: {self.lr_p} times lam + nu is {pull:g}, above 2: theta diverges")

    @dataclass(frozen=True)
    class State(FedAvg.State):
        """FedAvg's State, and in `theta` the personal models after the last participation, `[K, ...]`.

        At first they are the initial ones.
        """

        theta: Population

    def setup(self, world: World) -> PFedMe.State:
        """Start from common weights for w, and from each client's own for theta."""
        return self.State(world.population(shared=self.averages), world.population())

    def gradient(self, model: StackedModel, batch: Batch, context: Context) -> tuple[dict[str, Tensor], Log]:
        """Compute lambda (w - theta) after K steps on theta, `context.carry`.

        The loss is that of theta before the last of these steps.
        """
        h, w = self.hyper, {name: t.detach() for name, t in model.params.items()}
        theta = {name: context.carry[name] for name in w}
        for step in range(1, h.inner_steps + 1):
            # All K steps see one batch, which the running statistics must count once.
            loss, slopes = measure_slope(model, batch, theta, track=step == h.inner_steps)
            theta = {n: t - h.lr_p * (slopes[n] + h.lam * (t - w[n]) + h.nu * t) for n, t in theta.items()}
        for name, t in theta.items():
            context.carry[name].copy_(t)
        return {name: h.lam * (w[name] - t) for name, t in theta.items()}, {"loss": loss}

    def round(self, state: PFedMe.State, world: World) -> PFedMe.State:
        """Train theta and w locally, average w by p_k, and mix it with the last w by beta (Algorithm 1)."""
        ids = world.sample()
        received = world.air.down(state.model.select(ids), self.averages)
        start = received.named()
        given = Given(carry={name: start[name] for name in received.parameters(self.averages)})
        sgd = world.optimizer(name="sgd", lr=self.hyper.eta, momentum=0.0, weight_decay=0.0)
        fitted = world.fit(received, Gradient(self.gradient, self.hyper.inner_steps), given=given, optimizer=sgd)
        trained, theta = fitted.models, fitted.carried
        newest = world.air.average(trained, self.averages, world.weights(ids), since=received)
        server = state.model.one(self.averages)
        # Parameters alone: with beta above 1 a running variance, taken further than its mean, could turn negative.
        mixed = blend(server.replaced(newest), server, self.hyper.beta, server.parameters()).named()
        return self.State(state.model.share(mixed), state.theta.put(trained.replaced(theta)))

    def views(self, state: PFedMe.State, world: World) -> dict[str, View]:
        """Evaluate theta as `personal` and w as `global`."""
        return {"personal": View(state.theta), "global": View(state.model)}
