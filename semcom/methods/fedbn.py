"""FedBN: batch normalisation stays with its client.

Li, Jiang, Zhang, Kamp, Dou, "FedBN: Federated Learning on Non-IID Features via Local Batch Normalization", ICLR 2021,
Algorithm 1. Up and down: the model without its BatchNorm layers. Their parameters and running statistics are each
client's own. On a network without BatchNorm it is FedAvg.

Choices where the paper is silent: none known.

Departures: the other layers are averaged by p_k (Algorithm 1: plain mean).
"""

from __future__ import annotations

from semcom.engine.store.population import Prefix
from semcom.engine.train.view import View
from semcom.engine.world import World
from semcom.methods.fedavg import FedAvg
from semcom.models.batchnorm import BatchNorm


class FedBN(FedAvg):
    """E epochs of CE on the whole model; all layers but BatchNorm are averaged by p_k."""

    paper = "Li et al., ICLR 2021"
    preset = {}
    shares = "encoder and head without BatchNorm"
    personal = "BatchNorm"
    sends = "w without BatchNorm up and down"

    def choose_part(self, world: World) -> Prefix:
        """List the tensors outside BatchNorm."""
        return world.outside(BatchNorm)

    def views(self, state: FedAvg.State, world: World) -> dict[str, View]:
        """Evaluate `personal`: the common layers between the client's own BatchNorm."""
        return {"personal": View(state.model)}
