"""What a worker repeats: a round of the engine, a round of the plain loop, or products of matrices."""

from __future__ import annotations

import json
import time
from dataclasses import asdict, dataclass
from typing import Any, Protocol

import torch

from semcom.bench.data import synthetic
from semcom.bench.plain import make_loop
from semcom.bench.variants import Variant
from semcom.bench.workloads import Workload
from semcom.config import Resolved
from semcom.data.federation import Federation
from semcom.engine.host.memory import keep_freed_memory
from semcom.engine.host.ranks import ALONE, Team
from semcom.engine.world import World
from semcom.methods.base import Method
from semcom.methods.registry import METHODS

PRODUCTS = 10


@dataclass(frozen=True)
class Job:
    """What a worker is there for.

    Attributes:
        variant: how; of products, only its device and threads count.
        workload: what to train; None: products of matrices.
        size: rows and columns of each factor.
    """

    variant: Variant
    workload: Workload | None = None
    size: int = 2048

    def to_json(self) -> str:
        """One line."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, line: str | bytes) -> Job:
        """Inverse of `to_json`."""
        values: dict[str, Any] = json.loads(line)
        workload = values["workload"]
        return cls(Variant(**values["variant"]), workload and Workload(**workload), values["size"])


class Repeated(Protocol):
    """Something that can be measured again and again."""

    def measure(self) -> float:
        """Does it once; returns seconds."""


class Rounds:
    """Rounds of a configured run, without evaluation.

    Args:
        config: resolved.
        federation: its data.
        team: the processes that share the clients; each of them has to measure the same rounds.
    """

    def __init__(self, config: Resolved, federation: Federation, team: Team = ALONE) -> None:
        self.device = torch.device(config.device)
        keep_freed_memory()
        self.method: Method = METHODS.get(config.method)(config.hyper)
        self.world = World(config, federation.to(self.device), self.device, split=self.method.split, team=team)
        self.state = self.method.setup(self.world)

    def measure(self) -> float:
        """The next round."""
        begun = time.perf_counter()
        self.world.session.tally.begin(self.world.round + 1)
        self.state = self.method.round(self.state, self.world)
        wait(self.device)
        return time.perf_counter() - begun


class EngineRounds(Rounds):
    """Rounds of a workload with a variant of the engine."""

    def __init__(self, workload: Workload, variant: Variant, team: Team = ALONE) -> None:
        super().__init__(workload.config(variant), synthetic(workload), team)


class SharedRounds:
    """Rounds that the ranks of a team share, seen from rank 0: the others wait in `follow` for each."""

    def __init__(self, workload: Workload, variant: Variant, team: Team) -> None:
        self.rounds, self.team = EngineRounds(workload, variant, team), team

    def measure(self) -> float:
        """The next round, on all ranks."""
        self.team.broadcast(torch.ones(1))
        return self.rounds.measure()


def follow(team: Team, payload: bytes) -> None:
    """The life of a rank other than 0: a round whenever rank 0 begins one, until that ends this process."""
    job = Job.from_json(payload)
    assert job.workload is not None
    rounds = EngineRounds(job.workload, job.variant, team)
    while True:
        team.broadcast(torch.zeros(1))
        rounds.measure()


class PlainRounds:
    """Rounds of the plain loop; its images lie on the host, and batches go to the device one by one."""

    def __init__(self, workload: Workload, variant: Variant) -> None:
        self.device = torch.device(variant.device)
        self.loop = make_loop(workload, synthetic(workload), self.device)

    def measure(self) -> float:
        """The next round."""
        begun = time.perf_counter()
        self.loop.round()
        wait(self.device)
        return time.perf_counter() - begun


class Products:
    """Products of two square float32 matrices; what one takes at best."""

    def __init__(self, size: int, device: torch.device) -> None:
        self.device = device
        self.factors = torch.randn(2, size, size, device=device)
        self.product = torch.empty(size, size, device=device)

    def measure(self) -> float:
        """Seconds of the fastest of ten."""
        return min(self._one() for _ in range(PRODUCTS))

    def _one(self) -> float:
        begun = time.perf_counter()
        torch.mm(self.factors[0], self.factors[1], out=self.product)
        wait(self.device)
        return time.perf_counter() - begun


def prepare(job: Job) -> Repeated:
    """What a job asks for, ready for its first measurement, in this process alone."""
    if job.workload is None:
        return Products(job.size, torch.device(job.variant.device))
    if job.variant.plain:
        return PlainRounds(job.workload, job.variant)
    return EngineRounds(job.workload, job.variant)


def wait(device: torch.device) -> None:
    """Until the device has done all that it was given."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
