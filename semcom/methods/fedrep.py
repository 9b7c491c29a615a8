"""FedRep: a common representation, and per client a head that is fitted to it first.

Collins, Hassani, Mokhtari, Shakkottai, "Exploiting Shared Representations for Personalized Federated Learning", ICML
2021, Algorithm 1. Up and down: the encoder. The head trains `head_epochs` on the received body in evaluation mode,
whose BatchNorm is frozen with it. Then the body trains `train.local_epochs` with that head frozen, in the same order of
batches.

Choices where the paper is silent: none known.

Departures: bodies are averaged by p_k, as in the authors' code (Algorithm 1: plain mean). That code adds a last round
in which every client trains its head alone, on the body it received, and tests each client's own body and head after
other rounds too; here an absent client keeps its head, and tests have the mean body.
"""

from __future__ import annotations

from dataclasses import dataclass

from semcom.channels.options import WHOLE, require
from semcom.engine.store.population import Population
from semcom.engine.train.phase import Phase
from semcom.engine.world import World
from semcom.methods.base import Method
from semcom.methods.fedavg import FedAvg
from semcom.methods.fedper import FedPer


class FedRep(FedPer):
    """Head epochs with the frozen body, then body epochs with the frozen head; the bodies are averaged by p_k."""

    paper = "Collins et al., ICML 2021"
    preset = {
        "optimizer": "sgd", "lr": 0.01, "momentum": 0.5, "batch_size": 10,
        "rounds": 100, "local_epochs": 1, "participation": 0.1,
    }  # fmt: skip

    @dataclass(frozen=True)
    class Hyper(Method.Hyper):
        """The hyperparameter of FedRep."""

        head_epochs: int = 10
        """Epochs on the head in a round, before those on the body (0: heads never move)."""

        def check(self) -> None:
            """Check the number of epochs."""
            require("head_epochs", self.head_epochs, WHOLE)

    def local(self, received: Population, state: FedAvg.State, world: World) -> Population:
        """Train the heads, then the bodies (Algorithm 1, lines 6 to 10)."""
        if self.hyper.head_epochs:
            head = Phase("head", epochs=self.hyper.head_epochs)
            received = world.fit(received, self.objective, train="head.", phase=head).models
        return world.fit(received, self.objective, train="encoder.").models
