"""The plain per-client loop, as federated toolkits write it: the yardstick of the engine's benchmark.

One module and one `DataLoader` per client, a new Adam in every round, `loss.backward()`, averages of `state_dict`s; one
process, torch's default threads and memory format. Or bare: images in memory, channels last, nothing that a loop could
do without, which is the least that the same training takes. The networks are the engine's, so both compute the same (a
test compares them). Images are floats already, and nothing is logged.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from semcom.data.federation import Federation
from semcom.engine.host.memory import keep_freed_memory
from semcom.engine.train.precision import autocast_of
from semcom.models.registry import ENCODERS, HEADS
from semcom.models.scg import SCG
from semcom_papers.experiments.bench.workloads import CLASSES, LEARNING_RATE, Variant, Workload

LAMBDA = 1 / 64  # weight of FedCL's regulariser, the engine's default


def add_plain_noise(features: Tensor, deviation: float) -> Tensor:
    """Add noise to features `[b, d]` of mean square 1; their gradient gets as much, scaled to its r.m.s."""
    received = features + deviation * torch.randn_like(features)
    received.register_hook(lambda g: g + deviation * g.square().mean().sqrt() * torch.randn_like(g))
    return received


class Network(nn.Module):
    """A workload's encoder, its link in both directions with power normalisation, if it has one, and decoder."""

    def __init__(self, workload: Workload) -> None:
        super().__init__()
        self.encoder = ENCODERS.get(workload.encoder)(3, workload.features)
        self.head = HEADS.get("linear")(workload.features, CLASSES)
        self.deviation = None if workload.snr_db is None else 10 ** (-workload.snr_db / 20)

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """Compute received features `[b, d]` and logits `[b, C]` of images `[b, 3, 32, 32]`."""
        features = self.encoder(images)
        if self.deviation is not None:
            wide = features.float() if features.dtype == torch.bfloat16 else features  # from autocast
            features = add_plain_noise(F.normalize(wide, dim=1) * math.sqrt(features.shape[1]), self.deviation)
        return features, self.head(features)


class InMemory:
    """Mini-batches of images in memory, channels last, in an order that is new in each epoch."""

    def __init__(self, images: Tensor, labels: Tensor, batch: int) -> None:
        self.rows, self.labels, self.batch = images.movedim(1, -1).contiguous(), labels, batch

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        for index in torch.randperm(len(self.labels)).split(self.batch):
            yield self.rows.index_select(0, index).movedim(-1, 1), self.labels[index]


@dataclass
class Client:
    """A client: its network, D_k samples, its device, the type that products are rounded to, torch's kind of Adam."""

    network: Network
    loader: Iterable[Sequence[Tensor]]
    samples: int
    device: torch.device
    autocast: torch.dtype | None = None
    fused: bool | None = None

    def train(self, objective: Callable[[Tensor, Tensor, Tensor], Tensor]) -> None:
        """Train for one epoch of a loss of received features `[b, d]`, logits `[b, C]` and labels `[b]`."""
        optimizer = torch.optim.Adam(self.network.parameters(), lr=LEARNING_RATE, fused=self.fused)
        self.network.train()
        for images, labels in self.loader:
            images, labels = images.to(self.device), labels.to(self.device)
            optimizer.zero_grad()
            with torch.autocast(self.device.type, self.autocast, enabled=self.autocast is not None):
                received, logits = self.network(images)
            objective(received, logits if self.autocast is None else logits.float(), labels).backward()
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
        self.server.load_state_dict(average_plain(self.clients, [client.network for client in self.clients]))


class Bare(FedAvg):
    """FedAvg in one network, in which the clients train one after the other, and one sum of what they make of it."""

    def round(self) -> None:
        """Train the server's network at each client; the server takes their average."""
        server, total = self.server.state_dict(), sum(client.samples for client in self.clients)
        mean = {name: torch.zeros_like(t) for name, t in server.items()}
        for client in self.clients:
            client.network.load_state_dict(server)
            client.train(lambda _, logits, labels: F.cross_entropy(logits, labels))
            for name, t in client.network.state_dict().items():
                mean[name].add_(t, alpha=client.samples / total) if t.is_floating_point() else mean[name].copy_(t)
        self.server.load_state_dict(mean)


class FedCL:
    """Wang et al. 2024, Algorithm 1: personal encoders, an averaged decoder, centroids from a generator."""

    def __init__(self, clients: list[Client], generator: SCG) -> None:
        self.clients, self.generator = clients, generator
        self.optimizer = torch.optim.Adam(generator.parameters(), lr=LEARNING_RATE)
        self.centroids = generator().detach()

    def round(self) -> None:
        """Train encoder and decoder of each client, average the decoders, and train the generator by a step."""
        local = [self._train(client) for client in self.clients]
        head = average_plain(self.clients, [client.network.head for client in self.clients])
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
        similarity = means @ self.generator().T
        itself = torch.eye(CLASSES, dtype=torch.bool, device=means.device)
        terms = similarity.masked_fill(itself, -math.inf).logsumexp(2) - similarity.diagonal(dim1=1, dim2=2)
        self.optimizer.zero_grad()
        (terms[owned].sum() / len(means)).backward()
        self.optimizer.step()
        self.centroids = self.generator().detach()


def average_plain(clients: Sequence[Client], modules: Sequence[nn.Module]) -> dict[str, Tensor]:
    """Average the clients' modules, weighted by samples; counters are those of the first."""
    total, states = sum(client.samples for client in clients), [module.state_dict() for module in modules]
    mean = dict(states[0])
    for name, first in mean.items():
        if first.is_floating_point():
            shares = (client.samples / total * state[name] for client, state in zip(clients, states, strict=True))
            mean[name] = torch.stack(list(shares)).sum(0)
    return mean


def make_plain_loop(workload: Workload, federation: Federation, variant: Variant) -> FedAvg | FedCL:
    """Make the loop of a workload; its clients start with the same weights, their images lie on the host."""
    torch.manual_seed(0)
    products = "tf32" if variant.precision == "tf32" else "ieee"  # torch's own default rounds convolutions alone
    for kind in (torch.backends.cuda.matmul, torch.backends.cudnn.conv):  # type: ignore[attr-defined]
        kind.fp32_precision = products
    device, autocast = torch.device(variant.device), autocast_of(variant.precision)
    network, clients = Network(workload).to(device), []
    if variant.bare:
        keep_freed_memory()
        network = network.to(memory_format=torch.channels_last)
    for k in range(workload.clients):
        index = federation.train[k]
        data = federation.gather(index), federation.labels[index]
        whole = DataLoader(TensorDataset(data[0].contiguous(), data[1]), batch_size=workload.batch, shuffle=True)
        loader = InMemory(*data, workload.batch) if variant.bare else whole
        own = network if variant.bare and workload.method == "fedavg" else copy.deepcopy(network)
        clients.append(Client(own, loader, len(index), device, autocast, fused=variant.bare or None))
    if workload.method == "fedcl":
        return FedCL(clients, SCG(CLASSES, workload.features).to(device))
    return Bare(clients) if variant.bare else FedAvg(clients)
