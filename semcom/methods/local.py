"""Local training: no client ever hears of another. The floor that every federated arm must clear; nothing is sent."""

from __future__ import annotations

from semcom.methods.fedavg import FedAvg


class Local(FedAvg):
    """E epochs of cross-entropy per round on own data; the family of FedAvg with nothing averaged."""

    paper = "baseline"
    preset = {}
    averages = ()
    exchanges = False
    shares = "nothing"
    personal = "encoder and head"
    sends = "nothing"
