"""Facts about the machine that a measurement was made on, and how much of it torch takes."""

from __future__ import annotations

import logging
import os
import platform
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from semcom.bench.variants import cores
from semcom.runs.folder import commit, versions

logger = logging.getLogger(__name__)

BUSY = 0.3
"""Load per core from which others must be at work."""


def machine() -> dict[str, Any]:
    """Processor, cores, memory, load, GPU, versions and commit, as plain values; to be asked before anything works.

    Warns where others are at work: threads that wait for each other then suffer far more than single ones do.
    """
    cuda, load = torch.cuda.is_available(), _load()
    if load is not None and load > BUSY * cores():
        logger.warning("others are at work here (load %.1f on %d cores): numbers will be off", load, cores())
    return {
        "cpu": _cpu(),
        "cores": cores(),
        "memory_gib": _memory_gib(),
        "load": load,
        "gpu": torch.cuda.get_device_name() if cuda else None,
        "cuda": torch.version.cuda if cuda else None,
        "system": platform.platform(),
        "versions": versions(),
        "commit": commit(),
    }


@contextmanager
def one_thread() -> Iterator[None]:
    """One thread for torch; afterwards as many as before."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _load() -> float | None:
    """Processes at work, averaged over the last minute; None where the system does not tell."""
    return os.getloadavg()[0] if hasattr(os, "getloadavg") else None


def _cpu() -> str:
    """The processor's name."""
    return _field("/proc/cpuinfo", "model name") or platform.processor() or platform.machine()


def _memory_gib() -> float | None:
    """Memory that is built in."""
    found = _field("/proc/meminfo", "MemTotal")
    return round(int(found.split()[0]) / 2**20, 1) if found else None


def _field(path: str, name: str) -> str | None:
    """The value behind the first `name: value` of a file of /proc; None where there is no such file or line."""
    try:
        lines = Path(path).read_text().splitlines()
    except OSError:
        return None
    return next((line.partition(":")[2].strip() for line in lines if line.startswith(name)), None)
