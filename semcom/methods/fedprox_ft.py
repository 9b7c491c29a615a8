"""FedProx + FT: each client fine-tunes FedProx's global model on its own data after the last round.

Li et al., "Federated Optimization in Heterogeneous Networks", MLSys 2020, with the fine-tuning of `fedavg_ft`: plain
CE, without the proximal term, as in a baseline of RepPer (Jing et al., arXiv:2204.11841, 2022). Up and down: the whole
model.

Choices where the paper is silent: the fine-tuning, which is not part of it.

Departures: those of `fedprox`.
"""

from __future__ import annotations

from dataclasses import dataclass

from semcom.methods.fedavg_ft import FedAvgFT
from semcom.methods.fedprox import FedProx


class FedProxFT(FedAvgFT, FedProx):
    """FedProx; at the end each client trains a copy of the global model by CE."""

    paper = "Li et al., MLSys 2020, fine-tuned"
    preset = FedProx.preset

    @dataclass(frozen=True)
    class Hyper(FedAvgFT.Hyper, FedProx.Hyper):
        """Hyperparameters of FedProx, then those of fine-tuning."""
