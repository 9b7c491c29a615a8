"""Workloads of CIFAR-10's shape on random images, and the variants in which they are carried out."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import joblib
import numpy as np
import torch

from semcom import resolve
from semcom.config import ChannelConfig, ModelConfig, Resolved, RunConfig, TrainConfig
from semcom.data.federation import Federation, Ragged

LEARNING_RATE, CLASSES = 1e-3, 10


@dataclass(frozen=True)
class Variant:
    """One way of carrying a workload out.

    Attributes:
        name: its name in the table.
        plain: the plain per-client loop instead of the engine.
        bare: without its `DataLoader`: images in memory, channels last, and freed memory is kept, as in the engine.
        device: cpu or cuda.
        chunk: clients that the engine trains at once.
        processes: that share the clients.
        threads: of torch in each process.
        precision: of the products; the plain loop's on a CPU is float32, but for the bare one's.
        rounded_from: of a reduced precision, the variant that it is but for its precision.
    """

    name: str
    plain: bool = False
    bare: bool = False
    device: Literal["cpu", "cuda"] = "cpu"
    chunk: int | Literal["all", "auto"] = 1
    processes: int = 1
    threads: int = 1
    precision: Literal["float32", "tf32", "bf16"] = "float32"
    rounded_from: str | None = None


def list_workload_variants(cuda: bool) -> list[Variant]:
    """List all variants; with `cuda` also those on a GPU. The plain loop has as many threads as torch chooses.

    The bare one has a single thread, as `loop` has: what `loop` takes beyond it is what the engine costs.
    """
    cores, threads = joblib.cpu_count(), joblib.cpu_count(only_physical_cores=True)
    best = Variant("processes", processes=cores) if cores > 1 else Variant("loop")
    bare, loop = Variant("bare", plain=True, bare=True), Variant("loop")
    found = [Variant("plain", plain=True, threads=threads), bare, loop, Variant("chunk", chunk="all"), best]
    found.append(replace(best, name="bf16", precision="bf16", rounded_from=best.name))
    single = (bare, loop) if cores > 1 else (bare,)
    found += [replace(v, name=f"{v.name}-bf16", precision="bf16", rounded_from=v.name) for v in single]
    if cuda:
        best = Variant("cuda", device="cuda", chunk="auto", threads=threads)
        plain = replace(best, name="plain-cuda", plain=True)
        found += [plain, best, replace(best, name="cuda-loop", chunk=1), replace(best, name="cuda-all", chunk="all")]
        found += [
            replace(v, name=f"{v.name}-{precision}", precision=precision, rounded_from=v.name)
            for precision in ("tf32", "bf16")
            for v in (plain, best)
        ]
    return list(dict.fromkeys(found))


@dataclass(frozen=True)
class Workload:
    """Rounds of one local epoch on random images.

    Attributes:
        title: what it is, in a line.
        method: fedavg, fedcl or another method.
        encoder, features: the network; its head is one matrix to 10 classes.
        clients: K.
        samples: training images per client.
        batch: mini-batch.
        ways: classes per client.
        snr_db: SNR of the AWGN link that training passes (a split method's gradients too); None: there is no link.
        active: clients that take part in a round (None: all).
        pool: images that the clients' index tables point to.
        tests: test images per client, of those of the pool.
        tested: clients that a test looks at (None: all).
    """

    title: str
    method: str
    encoder: str
    features: int
    clients: int
    samples: int
    batch: int
    ways: int = CLASSES
    snr_db: float | None = None
    active: int | None = None
    pool: int = 6_000
    tests: int = 0
    tested: int | None = None

    @property
    def visited(self) -> int:
        """Samples that a round visits."""
        return (self.active or self.clients) * self.samples

    def config(self, variant: Variant) -> Resolved:
        """Resolve the configuration of an engine variant, which trains with Adam."""
        tested = self.tested if self.tested != self.clients else None
        train = TrainConfig(batch_size=self.batch, lr=LEARNING_RATE, eval_clients=tested)
        link = ChannelConfig(kind="none") if self.snr_db is None else ChannelConfig(kind="awgn", snr_db=self.snr_db)
        wanted = RunConfig(
            method=self.method,
            clients=self.clients,
            model=ModelConfig(encoder=self.encoder, features=self.features),
            channel=link,
            train=replace(train, participation=(self.active or self.clients) / self.clients),
            device=variant.device,
            precision=variant.precision,
            chunk=self.clients if variant.chunk == "all" else variant.chunk,
            processes=variant.processes,
        )
        return resolve(wanted)


def make_synthetic_workload(workload: Workload, seed: int = 0) -> Federation:
    """Make K clients with n random training images each, as many of each of their classes, without a loop over clients.

    Their lists of the N images overlap, but no client has one twice: it takes every s-th image of each of its classes
    from a random one on, with a stride s of its own. Its tests are the first of its list.
    """
    rng = np.random.default_rng(seed)
    clients, turn = workload.clients, np.arange(workload.samples)
    owned = np.argsort(rng.random((clients, CLASSES)), axis=1)[:, : workload.ways]  # [K, ways], without repetition
    member = np.zeros((clients, CLASSES), dtype=bool)
    np.put_along_axis(member, owned, True, axis=1)
    per_class, each = workload.pool // CLASSES, -(-workload.samples // workload.ways)
    start = rng.integers(0, per_class, (clients, 1))
    stride = rng.integers(1, per_class // each + 1, (clients, 1))
    within = (start + stride * (turn // workload.ways)) % per_class
    table = within * CLASSES + owned[:, turn % workload.ways]  # [K, n]: image i has class i mod C
    images = rng.integers(0, 256, (workload.pool, 32, 32, 3), dtype=np.uint8)

    def lists(n: int) -> Ragged:
        return Ragged(torch.from_numpy(table[:, :n].ravel()), np.arange(clients + 1, dtype=np.int64) * n)

    return Federation(
        images=torch.from_numpy(images).movedim(-1, 1),  # [N, 3, 32, 32], channels last in memory
        labels=torch.arange(workload.pool) % CLASSES,
        train=lists(workload.samples),
        test=lists(workload.tests),
        validation=lists(0),
        classes=tuple(f"class {c}" for c in range(CLASSES)),
        owned=member,
    )
