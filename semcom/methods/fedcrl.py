"""FedCRL: the first version of FedCoSR's paper, with the same equations and algorithm.

Huang, Chen, Zhang, Wang, "FedCRL: Personalized Federated Learning with Contrastive Shared Representations for Label
Heterogeneity in Non-IID Data", arXiv:2404.17916v1. It alone prints hyperparameters: Table I, and Adam; k = 128 and the
dropout of 0.3 of that table belong to the network.
"""

from __future__ import annotations

from semcom.methods.fedcosr import FedCoSR


class FedCRL(FedCoSR):
    """FedCoSR in the setting of FedCRL's Table I."""

    paper = "Huang et al., arXiv:2404.17916v1"
    preset = {"optimizer": "adam", "lr": 0.003, "batch_size": 16, "local_epochs": 1, "participation": 1.0}
