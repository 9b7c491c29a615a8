"""What is measured: workloads of CIFAR-10's shape, and their configuration for the engine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from semcom import resolve
from semcom.bench.variants import Variant
from semcom.config import ChannelConfig, ModelConfig, Resolved, RunConfig, TrainConfig

LEARNING_RATE = 1e-3
SNR_DB = 10.0
CLASSES = 10


@dataclass(frozen=True)
class Workload:
    """Rounds of one local epoch with Adam, on images that `semcom.bench.data` makes.

    Attributes:
        title: what it is, in a line.
        method: fedavg, fedcl or another arm.
        encoder, features: the network; its head is one matrix to 10 classes.
        clients: K.
        samples: training images per client.
        batch: mini-batch.
        ways: classes per client.
        through_link: whether training passes a link with noise of 10 dB (a split method's gradients too).
        active: clients that take part in a round (None: all).
        pool: images that the clients' index tables point to (None: one for each of their samples).
    """

    title: str
    method: str
    encoder: str
    features: int
    clients: int
    samples: int
    batch: int
    ways: int = CLASSES
    through_link: bool = False
    active: int | None = None
    pool: int | None = None

    @property
    def visited(self) -> int:
        """Samples that a round visits."""
        return (self.active or self.clients) * self.samples

    def grown(self, clients: int) -> Workload:
        """The same with another number of clients."""
        return replace(self, clients=clients)

    def config(self, variant: Variant) -> Resolved:
        """The resolved configuration of an engine variant."""
        wanted = RunConfig(
            method=self.method,
            clients=self.clients,
            model=ModelConfig(encoder=self.encoder, features=self.features),
            channel=ChannelConfig(kind="awgn", snr_db=SNR_DB),
            train=TrainConfig(
                batch_size=self.batch,
                lr=LEARNING_RATE,
                through_link=self.through_link,
                participation=(self.active or self.clients) / self.clients,
            ),
            device=variant.device,
            precision=variant.precision,
            chunk=self.clients if variant.chunk == "all" else variant.chunk,
            processes=variant.processes,
        )
        return resolve(wanted)


@dataclass(frozen=True)
class Case:
    """A workload of `semcom bench engine`.

    Attributes:
        name: one letter.
        workload: at full size.
        small: the same in a moment, for a test.
        grows: whether its cost is measured for several K too.
    """

    name: str
    workload: Workload
    small: Workload
    grows: bool = True


def _case(name: str, workload: Workload, clients: int, samples: int, batch: int, grows: bool = True) -> Case:
    """A case with its small form."""
    small = replace(workload, title=f"{workload.title} (small)", clients=clients, samples=samples, batch=batch)
    return Case(name, workload, small, grows)


CASES: Mapping[str, Case] = {
    "a": _case("a", Workload("FedAvg, 5x5 CNN 32-64-512, no link", "fedavg", "cnn", 512, 20, 300, 16), 2, 11, 4),
    "b": _case(
        "b",
        Workload(
            "FedCL, DCGAN 64-128-256, 3 classes per client, AWGN 10 dB both ways",
            "fedcl",
            "dcgan",
            64,
            20,
            300,
            50,
            ways=3,
            through_link=True,
        ),
        2,
        11,
        4,
    ),
    "c": _case(
        "c", Workload("FedAvg, ResNet-18, no link", "fedavg", "resnet18", 512, 10, 128, 64), 2, 4, 4, grows=False
    ),
}
"""The cases of the engine's benchmark, at full size and in small."""
