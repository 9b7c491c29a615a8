"""The plain per-client loop, as federated toolkits write it: the yardstick of the engine's benchmark.

One module and one `DataLoader` per client, a new Adam in every round, `loss.backward()`, averages of `state_dict`s; one
process, torch's default number of threads and memory format. The networks are those of the engine, so both compute
the same numbers (a test holds them against each other). Where the loop has a choice it takes the faster one: images are
floats already, and nothing is logged. On CUDA torch's default lets its convolutions round to TF32, as the engine's
`precision="tf32"` does.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from semcom.bench.workloads import CLASSES, LEARNING_RATE, SNR_DB, Workload
from semcom.data.federation import Federation
from semcom.models.registry import ENCODERS, HEADS
from semcom.models.scg import SCG

LAMBDA = 1 / 64
"""Weight of FedCL's regulariser, the engine's default."""


class NoisyLink(torch.autograd.Function):
    """Features `[b, d]` of mean square 1 get noise on their way up, their gradient on its way down."""

    @staticmethod
    def forward(ctx: Any, features: Tensor, deviation: float) -> Tensor:
        """Received features `[b, d]`; `deviation` is that of the noise on features of mean square 1."""
        ctx.deviation = deviation
        return features + deviation * torch.randn_like(features)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        """The gradient as the client gets it: the noise is scaled to its r.m.s."""
        scale = ctx.deviation * grads[0].square().mean().sqrt()
        return grads[0] + scale * torch.randn_like(grads[0]), None


class Network(nn.Module):
    """Encoder, power normalisation, link, decoder.

    Args:
        workload: which networks.
        snr_db: of the link in both directions; None: no noise.
    """

    def __init__(self, workload: Workload, snr_db: float | None) -> None:
        super().__init__()
        self.encoder = ENCODERS.get(workload.encoder)(3, workload.features)
        self.head = HEADS.get("linear")(workload.features, CLASSES)
        self.deviation = None if snr_db is None else 10 ** (-snr_db / 20)

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """Received features `[b, d]` and logits `[b, C]` of images `[b, 3, 32, 32]`."""
        features = self.encoder(images)
        features = F.normalize(features, dim=1) * math.sqrt(features.shape[1])
        if self.deviation is not None:
            features = NoisyLink.apply(features, self.deviation)  # type: ignore[assignment]
        return features, self.head(features)


@dataclass
class Client:
    """A client: its network, its data, and the device that it trains on."""

    network: Network
    loader: DataLoader[tuple[Tensor, ...]]
    device: torch.device

    @property
    def samples(self) -> int:
        """D_k."""
        return len(self.loader.dataset)  # type: ignore[arg-type]

    def batches(self) -> Iterator[tuple[Tensor, Tensor]]:
        """Images and labels of one epoch, on the device."""
        for images, labels in self.loader:
            yield images.to(self.device), labels.to(self.device)


class Loop(Protocol):
    """A method in plain torch."""

    clients: list[Client]

    def round(self) -> None:
        """One communication round."""


class FedAvg:
    """McMahan et al. 2017, Algorithm 1, with every client in every round."""

    def __init__(self, clients: list[Client]) -> None:
        self.clients = clients
        self.server = copy.deepcopy(clients[0].network)

    def round(self) -> None:
        """Each client trains the server's network; the server takes their average."""
        for client in self.clients:
            client.network.load_state_dict(self.server.state_dict())
            self._train(client)
        self.server.load_state_dict(average([c.network for c in self.clients], [c.samples for c in self.clients]))

    def _train(self, client: Client) -> None:
        """One epoch of cross-entropy."""
        optimizer = torch.optim.Adam(client.network.parameters(), lr=LEARNING_RATE)
        client.network.train()
        for images, labels in client.batches():
            optimizer.zero_grad()
            _, logits = client.network(images)
            F.cross_entropy(logits, labels).backward()
            optimizer.step()


class FedCL:
    """Wang et al. 2024, Algorithm 1: personal encoders, an averaged decoder, centroids from a generator."""

    def __init__(self, clients: list[Client], generator: SCG) -> None:
        self.clients, self.generator = clients, generator
        self.centroids = generator().detach()

    def round(self) -> None:
        """Each client trains encoder and decoder; then the decoders' average and one step of the generator."""
        local = [self._train(client) for client in self.clients]
        head = average([c.network.head for c in self.clients], [c.samples for c in self.clients])
        for client in self.clients:
            client.network.head.load_state_dict(head)
        self._train_generator(torch.stack([means for means, _ in local]), torch.stack([owned for _, owned in local]))

    def _train(self, client: Client) -> tuple[Tensor, Tensor]:
        """One epoch of Eq. 10; the means of the received features per class `[C, d]`, and which classes there are."""
        optimizer = torch.optim.Adam(client.network.parameters(), lr=LEARNING_RATE)
        client.network.train()
        sums, counts = torch.zeros_like(self.centroids), self.centroids.new_zeros(CLASSES)
        for images, labels in client.batches():
            optimizer.zero_grad()
            received, logits = client.network(images)
            distance = (received - self.centroids[labels]).square().sum(1).mean()
            (F.cross_entropy(logits, labels) + LAMBDA * distance).backward()
            optimizer.step()
            sums.index_add_(0, labels, received.detach())
            counts += torch.bincount(labels, minlength=CLASSES)
        return sums / counts.clamp(min=1)[:, None], counts > 0

    def _train_generator(self, means: Tensor, owned: Tensor) -> None:
        """One step on Eqs. 8 and 9 with local means `[K, C, d]`, where a client owns the class."""
        optimizer = torch.optim.Adam(self.generator.parameters(), lr=LEARNING_RATE)
        similarity = means @ self.generator().T
        itself = torch.eye(CLASSES, dtype=torch.bool, device=means.device)
        positive = similarity.diagonal(dim1=1, dim2=2)
        terms = similarity.masked_fill(itself, -math.inf).logsumexp(2) - positive
        optimizer.zero_grad()
        (terms[owned].sum() / len(means)).backward()
        optimizer.step()
        self.centroids = self.generator().detach()


def average(modules: Sequence[nn.Module], samples: Sequence[int]) -> dict[str, Tensor]:
    """Mean of the modules' `state_dict`s, weighted by samples; counters are those of the first."""
    states: list[Mapping[str, Tensor]] = [module.state_dict() for module in modules]
    shares = [n / sum(samples) for n in samples]
    mean = dict(states[0])
    for name, first in mean.items():
        if first.is_floating_point():
            mean[name] = torch.zeros_like(first)
            for share, state in zip(shares, states, strict=True):
                mean[name] += share * state[name]
    return mean


def make_clients(workload: Workload, federation: Federation, device: torch.device) -> list[Client]:
    """Clients that start with the same weights, each with its images as floats and a shuffling loader."""
    network = Network(workload, SNR_DB if workload.through_link else None).to(device)
    made = []
    for k in range(workload.clients):
        index = federation.train[k]
        data = TensorDataset(federation.gather(index).contiguous(), federation.labels[index])
        loader = DataLoader(data, batch_size=workload.batch, shuffle=True)
        made.append(Client(copy.deepcopy(network), loader, device))
    return made


def make_loop(workload: Workload, federation: Federation, device: torch.device) -> Loop:
    """The plain loop of a workload, on images that lie on the host."""
    torch.manual_seed(0)
    clients = make_clients(workload, federation, device)
    if workload.method == "fedcl":
        return FedCL(clients, SCG(CLASSES, workload.features).to(device))
    return FedAvg(clients)
