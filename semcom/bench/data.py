"""Synthetic federations: random images of CIFAR-10's shape, and index tables for any number of clients.

Legend: K clients, n samples of each, N images, C classes.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from semcom.bench.workloads import CLASSES, Workload
from semcom.data.federation import Federation, Ragged

Indices = np.ndarray


def synthetic(workload: Workload, seed: int = 0) -> Federation:
    """Clients with `workload.samples` training images each, as many of each of their classes, on the host; no tests.

    Without a pool no two clients have an image in common; with one their tables overlap. Nothing here loops over
    clients, so 100,000 take no longer than their table.

    Args:
        workload: K, n, classes per client, and the size N of the pool.
        seed: of every draw.
    """
    rng = np.random.default_rng(seed)
    owned = _owned(workload, rng)
    if workload.pool is None:
        labels = _labels(workload, owned)
        table = np.arange(labels.size).reshape(labels.shape)
        labels = labels.ravel()
    else:
        labels = np.arange(workload.pool) % CLASSES
        table = _table(workload, owned, rng)
    empty = Ragged(torch.zeros(0, dtype=torch.int64), np.zeros(workload.clients + 1, dtype=np.int64))
    member = np.zeros((workload.clients, CLASSES), dtype=bool)
    np.put_along_axis(member, owned, True, axis=1)
    return Federation(
        images=_images(len(labels), rng),
        labels=torch.from_numpy(labels.astype(np.int64)),
        train=_ragged(table),
        test=empty,
        validation=empty,
        classes=tuple(f"class {c}" for c in range(CLASSES)),
        owned=member,
    )


def _owned(workload: Workload, rng: np.random.Generator) -> Indices:
    """Each client's classes, `[K, ways]`, drawn without repetition."""
    return np.argsort(rng.random((workload.clients, CLASSES)), axis=1)[:, : workload.ways]


def _labels(workload: Workload, owned: Indices) -> Indices:
    """Labels of each client's samples, `[K, n]`: its classes in turn."""
    return owned[:, np.arange(workload.samples) % workload.ways]


def _table(workload: Workload, owned: Indices, rng: np.random.Generator) -> Indices:
    """Images of a pool in which image i has class i mod C, `[K, n]`; no client has one twice.

    A client takes every s-th image of each of its classes from a random one on, with a stride s of its own.
    """
    assert workload.pool is not None
    per_class, each = workload.pool // CLASSES, -(-workload.samples // workload.ways)
    start = rng.integers(0, per_class, (workload.clients, 1))
    stride = rng.integers(1, per_class // each + 1, (workload.clients, 1))
    within = (start + stride * (np.arange(workload.samples) // workload.ways)) % per_class
    return within * CLASSES + _labels(workload, owned)


def _images(count: int, rng: np.random.Generator) -> Tensor:
    """Random bytes as images `[N, 3, 32, 32]`, channels last in memory."""
    flat = rng.integers(0, 256, (count, 32, 32, 3), dtype=np.uint8)
    return torch.from_numpy(flat).movedim(-1, 1)


def _ragged(table: Indices) -> Ragged:
    """Lists of equal length `[K, n]`, joined."""
    offsets = np.arange(len(table) + 1, dtype=np.int64) * table.shape[1]
    return Ragged(torch.from_numpy(table.astype(np.int64).ravel()), offsets)
