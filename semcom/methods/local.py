"""Local training: clients exchange nothing. The floor for every federated method."""

from __future__ import annotations

from semcom.methods.fedavg import FedAvg


class Local(FedAvg):
    """E epochs of cross-entropy per round on own data: the family of FedAvg without averages."""

    paper = "baseline"
    preset = {}
    averages = ()
    exchanges = False
    shares = "nothing"
    personal = "encoder and head"
    sends = "nothing"
