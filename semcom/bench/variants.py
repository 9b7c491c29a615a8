"""How a workload is carried out: the plain loop, and the ways of the engine."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Variant:
    """One way of carrying a workload out.

    Attributes:
        name: what the table calls it.
        plain: the plain per-client loop instead of the engine.
        device: cpu or cuda.
        chunk: clients that the engine trains at once.
        processes: that share the clients.
        threads: of torch in each process; None: torch's own choice.
        precision: of the engine.
    """

    name: str
    plain: bool = False
    device: Literal["cpu", "cuda"] = "cpu"
    chunk: int | Literal["all", "auto"] = 1
    processes: int = 1
    threads: int | None = 1
    precision: Literal["float32", "tf32", "bf16"] = "float32"


def cores() -> int:
    """Processor cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def variants(cuda: bool) -> list[Variant]:
    """All variants in float32 and tf32; with `cuda` also those on a GPU. The first of each device is its plain loop."""
    found = [
        Variant("plain", plain=True, threads=None),
        Variant("loop"),
        Variant("chunk", chunk="all"),
    ]
    if cores() > 1:
        found.append(Variant("processes", processes=cores()))
    if cuda:
        found += [
            Variant("plain-cuda", plain=True, device="cuda", threads=None),
            Variant("cuda", device="cuda", chunk="auto", threads=None),
            Variant("cuda-loop", device="cuda", threads=None),
            Variant("cuda-all", device="cuda", chunk="all", threads=None),
        ]
    return found


def rounded(best: Variant) -> list[Variant]:
    """The best variant of a device with factors of products rounded to shorter numbers."""
    on_gpu = best.device == "cuda"
    prefix = "cuda-" if on_gpu else ""
    kinds: tuple[Literal["tf32", "bf16"], ...] = ("tf32", "bf16") if on_gpu else ("bf16",)
    return [
        Variant(f"{prefix}{kind}", False, best.device, best.chunk, best.processes, best.threads, kind) for kind in kinds
    ]
