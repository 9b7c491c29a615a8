"""The plain per-client loop, as federated toolkits write it: the yardstick of the engine's benchmark.

One module and one `DataLoader` per client, a new Adam in every round, `loss.backward()`, averages of `state_dict`s; one
process, torch's default threads and memory format. The networks are the engine's, so both compute the same (a test
compares them). Images are floats already, and nothing is logged. On CUDA torch lets convolutions round to TF32.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from semcom.bench.workloads import CLASSES, LEARNING_RATE, SNR_DB, Workload
from semcom.data.federation import Federation
from semcom.models.registry import ENCODERS, HEADS
from semcom.models.scg import SCG

LAMBDA = 1 / 64  # weight of FedCL's regulariser, the engine's default


def noisy(features: Tensor, deviation: float) -> Tensor:
    """Return features `[b, d]` of mean square 1 with noise; their gradient gets as much, scaled to its r.m.s."""
    received = features + deviation * torch.randn_like(features)
    received.register_hook(lambda g: g + deviation * g.square().mean().sqrt() * torch.randn_like(g))
    return received


class Network(nn.Module):
    """A workload's encoder, power normalisation, link of an SNR in both directions (None: no noise), and decoder."""

    def __init__(self, workload: Workload, snr_db: float | None) -> None:
        super().__init__()
        self.encoder = ENCODERS.get(workload.encoder)(3, workload.features)
        self.head = HEADS.get("linear")(workload.features, CLASSES)
        self.deviation = None if snr_db is None else 10 ** (-snr_db / 20)

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """Return received features `[b, d]` and logits `[b, C]` of images `[b, 3, 32, 32]`."""
        features = self.encoder(images)
        features = F.normalize(features, dim=1) * math.sqrt(features.shape[1])
        if self.deviation is not None:
            features = noisy(features, self.deviation)
        return features, self.head(features)


@dataclass
class Client:
    """A client: its network, D_k samples, and the device that it trains on."""

    network: Network
    loader: DataLoader[tuple[Tensor, ...]]
    samples: int
    device: torch.device

    def train(self, objective: Callable[[Tensor, Tensor, Tensor], Tensor]) -> None:
        """Train for one epoch of a loss of received features `[b, d]`, logits `[b, C]` and labels `[b]`."""
        optimizer = torch.optim.Adam(self.network.parameters(), lr=LEARNING_RATE)
        self.network.train()
        for images, labels in self.loader:
            images, labels = images.to(self.device), labels.to(self.device)
            optimizer.zero_grad()
            received, logits = self.network(images)
            objective(received, logits, labels).backward()
            optimizer.step()


class FedAvg:
    """McMahan et al. 2017, Algorithm 1, with every client in every round."""

    def __init__(self, clients: list[Client]) -> None:
        self.clients = clients
        self.server = copy.deepcopy(clients[0].network)

    def round(self) -> None:
        """Train the server's network at each client; the server takes their average."""
        for client in self.clients:
            client.network.load_state_dict(self.server.state_dict())
            client.train(lambda _, logits, labels: F.cross_entropy(logits, labels))
        self.server.load_state_dict(average(self.clients, [client.network for client in self.clients]))


class FedCL:
    """Wang et al. 2024, Algorithm 1: personal encoders, an averaged decoder, centroids from a generator."""

    def __init__(self, clients: list[Client], generator: SCG) -> None:
        self.clients, self.generator = clients, generator
        self.centroids = generator().detach()

    def round(self) -> None:
        """Train encoder and decoder of each client, average the decoders, and train the generator by a step."""
        local = [self._train(client) for client in self.clients]
        head = average(self.clients, [client.network.head for client in self.clients])
        for client in self.clients:
            client.network.head.load_state_dict(head)
        self._train_generator(torch.stack([means for means, _ in local]), torch.stack([owned for _, owned in local]))

    def _train(self, client: Client) -> tuple[Tensor, Tensor]:
        """Train for one epoch of Eq. 10; return the mean received features `[C, d]`, and which classes there are."""
        sums, counts = torch.zeros_like(self.centroids), self.centroids.new_zeros(CLASSES)

        def objective(received: Tensor, logits: Tensor, labels: Tensor) -> Tensor:
            sums.index_add_(0, labels, received.detach())
            counts.add_(torch.bincount(labels, minlength=CLASSES))
            distance = (received - self.centroids[labels]).square().sum(1).mean()
            return F.cross_entropy(logits, labels) + LAMBDA * distance

        client.train(objective)
        return sums / counts.clamp(min=1)[:, None], counts > 0

    def _train_generator(self, means: Tensor, owned: Tensor) -> None:
        """Take one step on Eqs. 8 and 9 with local means `[K, C, d]`, where a client owns the class."""
        optimizer = torch.optim.Adam(self.generator.parameters(), lr=LEARNING_RATE)
        similarity = means @ self.generator().T
        itself = torch.eye(CLASSES, dtype=torch.bool, device=means.device)
        terms = similarity.masked_fill(itself, -math.inf).logsumexp(2) - similarity.diagonal(dim1=1, dim2=2)
        optimizer.zero_grad()
        (terms[owned].sum() / len(means)).backward()
        optimizer.step()
        self.centroids = self.generator().detach()


def average(clients: Sequence[Client], modules: Sequence[nn.Module]) -> dict[str, Tensor]:
    """Return the mean of the clients' modules, weighted by samples; counters are those of the first."""
    total, states = sum(client.samples for client in clients), [module.state_dict() for module in modules]
    mean = dict(states[0])
    for name, first in mean.items():
        if first.is_floating_point():
            shares = (client.samples / total * state[name] for client, state in zip(clients, states, strict=True))
            mean[name] = torch.stack(list(shares)).sum(0)
    return mean


def make_loop(workload: Workload, federation: Federation, device: torch.device) -> FedAvg | FedCL:
    """Return the plain loop of a workload; its clients start with the same weights, their images lie on the host."""
    torch.manual_seed(0)
    network = Network(workload, SNR_DB if workload.through_link else None).to(device)
    clients = []
    for k in range(workload.clients):
        index = federation.train[k]
        data = TensorDataset(federation.gather(index).contiguous(), federation.labels[index])
        loader = DataLoader(data, batch_size=workload.batch, shuffle=True)
        clients.append(Client(copy.deepcopy(network), loader, len(index), device))
    if workload.method == "fedcl":
        return FedCL(clients, SCG(CLASSES, workload.features).to(device))
    return FedAvg(clients)
