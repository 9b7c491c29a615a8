"""FedPer: the body is federated, the head is personal.

Arivazhagan, Aggarwal, Singh, Choudhary, "Federated Learning with Personalization Layers", arXiv:1912.00818, 2019,
Algorithms 1 and 2. Up and down: the encoder, parameters and BatchNorm buffers. Body and head train together, and a head
stays with its client from round to round.
"""

from __future__ import annotations

from semcom.methods.fedavg import FedAvg


class FedPer(FedAvg):
    """E epochs of CE on the received body and the own head; the bodies are averaged by p_k."""

    paper = "Arivazhagan et al., arXiv:1912.00818, 2019"
    preset = {"optimizer": "sgd", "lr": 0.01, "local_epochs": 4, "batch_size": 128}
    averages = ("encoder.",)
    shares = "encoder"
    personal = "head"
    sends = "theta up, theta down"
