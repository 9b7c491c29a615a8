"""LG-FedAvg: local representations, a global head.

Liang, Liu, Ziyin, Allen, Auerbach, Brent, Salakhutdinov, Morency, "Think Locally, Act Globally: Federated Learning with
Local and Global Representations", arXiv:2001.01523, 2020, Algorithm 1 (its supervised part). Up and down: the head.
Encoders stay with their clients and may differ in architecture. The authors start from FedAvg's model: with
`pretraining` n, the first n rounds are FedAvg's, in which the whole model crosses the air; the last of them ends with a
broadcast of the common encoder to every client. If nobody can take part in round n, the next round that has clients is
FedAvg's last.

Choices where the paper is silent: none known. `pretraining` is off by default, also in the preset; the authors' 200
rounds follow 1200 of FedAvg.

Departures: heads are averaged by p_k (the authors' code: plain mean). The common part is the head (the code: any upper
layers). The last models are tested (the code: each client's best by its tests).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from semcom.channels.options import WHOLE, require
from semcom.engine.store.population import Population
from semcom.engine.train.view import View
from semcom.engine.world import World
from semcom.methods.base import Method
from semcom.methods.fedavg import FedAvg


class Heads(FedAvg):
    """The member of FedAvg's family that averages heads."""

    averages = ("head.",)


class LGFedAvg(FedAvg):
    """E epochs of CE on the own encoder and the received head; the heads are averaged by p_k."""

    averages: tuple[str, ...] = Heads.averages
    paper = "Liang et al., arXiv:2001.01523, 2020"
    preset = {
        "optimizer": "sgd", "lr": 0.1, "momentum": 0.5, "batch_size": 50,
        "rounds": 200, "local_epochs": 1, "participation": 0.1,
    }  # fmt: skip
    shares = "head"
    personal = "encoder"
    sends = "phi up, phi down"

    @dataclass(frozen=True)
    class Hyper(Method.Hyper):
        """The hyperparameter of LG-FedAvg."""

        pretraining: int = 0
        """Number of first rounds in which the encoder is averaged too."""

        def check(self) -> None:
            """Check the number of rounds."""
            require("pretraining", self.pretraining, WHOLE)

    @dataclass(frozen=True)
    class State(FedAvg.State):
        """The State with `pretraining`: own encoders `[K, ...]` and head `[1, ...]` in `model`, and what comes before.

        Attributes:
            pretrained: FedAvg's last model.
            taken: whether clients have taken it over, bool `[]` on the host.
        """

        pretrained: Population
        taken: Tensor

    def __init__(self, hyper: LGFedAvg.Hyper) -> None:
        super().__init__(hyper)
        if hyper.pretraining:
            self.averages = FedAvg.averages

    def setup(self, world: World) -> FedAvg.State:
        """Start from a common head, and with `pretraining` from FedAvg's common weights."""
        model = world.population(shared=Heads.averages)
        if not self.hyper.pretraining:
            return FedAvg.State(model)
        return self.State(model, world.population(shared=FedAvg.averages), torch.tensor(False))

    def round(self, state: FedAvg.State, world: World) -> FedAvg.State:
        """Carry out a round of FedAvg, or one of Algorithm 1: train locally, average the heads by p_k.

        After FedAvg's last round every client takes over its encoder, as it arrives, and its head.
        """
        if not isinstance(state, LGFedAvg.State) or state.taken:
            return Heads(self.hyper).round(state, world)
        if world.round == 1 and self.hyper.pretraining >= world.config.train.rounds:
            told = f"hyper.pretraining: all {world.config.train.rounds} rounds are FedAvg's; none has own encoders"
            world.warn("pretraining", told)
        pretrained = FedAvg(self.hyper).round(FedAvg.State(state.pretrained), world).model
        if world.round < self.hyper.pretraining:
            return replace(state, pretrained=pretrained)
        model, head = state.model, pretrained.one("head.").named("head.")
        received = world.air.down(pretrained, "encoder.", "pretrained.")
        for some in model.pieces():
            model = model.put(some.take("encoder.", received.select(some.ids)))
        return self.State(model.share(head), pretrained, torch.tensor(True))

    def views(self, state: FedAvg.State, world: World) -> dict[str, View]:
        """Evaluate `personal`: the clients' models, or FedAvg's while that goes on."""
        if isinstance(state, LGFedAvg.State) and not state.taken:
            return {"personal": View(state.pretrained)}
        return {"personal": View(state.model)}
