"""FedCRL: the first version of FedCoSR's paper, with the same equations and algorithm.

Huang, Chen, Zhang, Wang, "FedCRL: Personalized Federated Learning with Contrastive Shared Representations for Label
Heterogeneity in Non-IID Data", arXiv:2404.17916v1. Only this version prints hyperparameters: Table I, and Adam. Its k =
128 belongs to the network.

Choices where the paper is silent: those of `fedcosr`, and the place of the dropout of 0.3 in Table I (the encoder
`cnn-dropout` has it on the features, `cnn-linear` has none).

Departures: the headline is `personal`, the mixture of Eq. 9; line 28 of Algorithm 1 returns the trained model,
`trained`. Weights are not clipped into [0, 1] (line 22, `clip`).
"""

from __future__ import annotations

from semcom.methods.fedcosr import FedCoSR


class FedCRL(FedCoSR):
    """FedCoSR in the setting of FedCRL's Table I."""

    paper = "Huang et al., arXiv:2404.17916v1"
    preset = {"optimizer": "adam", "lr": 0.003, "batch_size": 16, "local_epochs": 1, "participation": 1.0}
