"""The cost of a run before it begins: the training samples that pass through its encoder.

A sample counts once per epoch of the common schedule. What a method does beyond that is not counted here: phases of a
head alone, several passes for one step, a last stage, new clients (docs/methods.md has these).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from semcom.config import Resolved, to_dict

PUBLISHED: Mapping[str, tuple[int, int, int]] = {
    "digits": (1438, 359, 10),
    "cifar10": (50_000, 10_000, 10),
    "cifar100": (50_000, 10_000, 100),
    "mnist": (60_000, 10_000, 10),
    "fashion-mnist": (60_000, 10_000, 10),
    "emnist": (112_800, 18_800, 47),
    "svhn": (73_257, 26_032, 10),
    "cinic10": (180_000, 90_000, 10),
}
"""Dataset -> its training images, test images and classes, which those of `noisy` share; any other one would have to
be loaded to know."""
DIVIDED = ("iid", "dirichlet", "dirichlet-client", "pathological")
"""Partitions that divide all images among the clients; what another one gives is not known before it is made."""


def count_cost_in_samples(config: Resolved) -> float | None:
    """Count the training samples that a resolved run passes through the encoder; None where the data are not known.

    Sizes that are drawn (spreads, scarce clients, a part of the clients) count with their mean.
    """
    schedule, size = config.train, count_client_samples(config)
    if schedule.local_steps is not None:
        visited: float | None = _count_samples_of_steps(schedule.local_steps, schedule.batch_size, size)
    else:
        visited = None if size is None else _average_epochs(config) * size
    return None if visited is None else schedule.rounds * config.participants * visited


def estimate_run_cost(config: Resolved) -> float:
    """Estimate how long a run takes beside others: `count_cost_in_samples`, or passes over data of unknown size."""
    known = count_cost_in_samples(config)
    return config.train.rounds * config.participants * _average_epochs(config) if known is None else known


def count_client_samples(config: Resolved) -> float | None:
    """Compute the mean number of training samples per client of a resolved run; None where the data are not known."""
    fields = to_dict(config)["partition"]
    fields |= fields.get("options") or {}
    clients, name = config.sharers, config.data.options.of if config.data.name == "noisy" else config.data.name
    if fields["kind"] == "shots":
        size = float(fields["ways"] * fields["shots"])
    elif fields["kind"] not in DIVIDED or name not in PUBLISHED:
        return None
    else:
        size = _count_divided_samples(name, fields, clients) / clients
    scarce = len(set(fields.get("scarce", ()))) / config.clients
    return size * (1 - fields.get("validation", 0.0)) * (1 - scarce * (1 - fields.get("scarce_fraction", 1.0)))


def _count_divided_samples(dataset: str, fields: Mapping[str, Any], clients: int) -> float:
    """Count the training samples that a partition gives to all clients that it divides the images among."""
    train, test, classes = PUBLISHED[dataset]
    pool = train if fields.get("test") == "own" else (train + test) * (1 - fields["test_fraction"])
    owned = min(1.0, clients * fields["classes"] / classes) if fields["kind"] == "pathological" else 1.0
    return pool * fields["fraction"] * owned


def _average_epochs(config: Resolved) -> float:
    epochs = config.train.local_epochs
    return sum(epochs) / len(epochs) if isinstance(epochs, tuple) else float(epochs or 1)


def _count_samples_of_steps(steps: int, batch: int, size: float | None) -> float:
    """Count the samples of a client's steps: the last mini-batch of each epoch is smaller where `size` asks for it."""
    if size is None:
        return float(steps * batch)
    epochs, rest = divmod(steps, math.ceil(size / batch))
    return epochs * size + min(rest * batch, size)
