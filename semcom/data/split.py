"""Base of the partitions, the split that each draws, and the tools that splits are made with.

Legend: K clients, C classes, N samples.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np

from semcom.channels.options import BaseOptions
from semcom.data import counts
from semcom.data.dataset import Dataset, Indices

Lists = tuple[Indices, ...]


@dataclass(frozen=True)
class Split:
    """Indices into `Dataset.images`, one array per client and part."""

    train: Lists
    """Training samples: at least one per client, no sample used twice (except as a file of kind `file` repeats it)."""
    test: Lists
    """Test samples: at least one per client, none of them any client's training sample."""
    validation: Lists = ()
    """Samples set aside from the training samples. Empty if a partition sets no samples aside."""


class Partition(ABC):
    """A way to divide a dataset over clients. Decorate a subclass with `@PARTITIONS.register("name")` to add it.

    Its options are the fields of its `Options`: flags `--partition.NAME`, part of config.json and of the run's hash.
    """

    @dataclass(frozen=True)
    class Options(BaseOptions):
        """Options of a partition. The base class has no options."""

    def __init__(self, options: Any) -> None:
        self.options = options

    @classmethod
    def settle(cls, options: Any, data: str) -> Any:
        """Fill in open options for the dataset called `data`, as config.json holds them."""
        return options

    @abstractmethod
    def divide(self, dataset: Dataset, clients: int, rng: np.random.Generator) -> Split:
        """Divide a dataset over clients.

        Args:
            dataset: images and labels, the first `train_size` of which are its training images.
            clients: K.
            rng: the only source of randomness, keyed by the run's seed and the partition's name.

        Raises:
            ConfigError: the data cannot meet the options.
        """

    def reduce(self, split: Split, labels: Indices, rng: np.random.Generator) -> Split:
        """Reduce a split, after scarce clients and validation, to the part that the run uses: here all of it."""
        return split


def deal_samples(pool: Indices, labels: Indices, table: Indices, rng: np.random.Generator) -> Lists:
    """Hand out the samples of `pool`, shuffled per class, by the table of counts `[K, C]`."""
    hands: list[list[Indices]] = [[] for _ in table]
    for c in range(table.shape[1]):
        ends = np.cumsum(table[:, c])
        shuffled = rng.permutation(pool[labels[pool] == c])
        for hand, dealt in zip(hands, np.split(shuffled[: ends[-1]], ends[:-1]), strict=True):
            hand.append(dealt)
    return tuple(np.concatenate(hand) for hand in hands)


def choose_samples(pool: Indices, labels: Indices, number: int, rng: np.random.Generator) -> Indices:
    """Choose `number` samples of the pool, with its own proportions of classes as well as whole numbers allow."""
    if number >= len(pool):
        return pool
    stock = np.bincount(labels[pool])
    return deal_samples(pool, labels, counts.round_amounts(stock * (number / len(pool)), number, rng)[None], rng)[0]


def split_samples_off(lists: Lists, labels: Indices, part: float, rng: np.random.Generator) -> tuple[Lists, Lists]:
    """Take `part` of each client's samples off, stratified. Return the rest, and the taken samples.

    Of two or more samples at least one is taken and at least one is left. A single sample is left.
    """
    sizes = [min(max(1, round(part * len(indices))), len(indices) - 1) for indices in lists]
    taken = tuple(
        choose_samples(indices, labels, max(0, size), rng) for indices, size in zip(lists, sizes, strict=True)
    )
    return tuple(np.setdiff1d(a, b) for a, b in zip(lists, taken, strict=True)), taken


def keep_samples(lists: Lists, labels: Indices, part: float, rng: np.random.Generator) -> Lists:
    """Keep `part` of each client's samples, at least one, stratified. A larger part extends a smaller one."""
    kept = []
    for indices in lists:
        number = max(1, round(part * len(indices))) if len(indices) else 0
        table = counts.count_among_first(np.bincount(labels[indices]), number, rng)
        kept.append(deal_samples(indices, labels, table[None], rng)[0] if number else indices)
    return tuple(kept)
