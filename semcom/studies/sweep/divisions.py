"""The data of a sweep, loaded and divided before its first run, so that missing or insufficient data show early."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from semcom.config import RunConfig
from semcom.studies.results.outcome import has_outcome

if TYPE_CHECKING:
    from semcom.data.dataset import Dataset
    from semcom.data.split import Split


def divide_data(configs: Iterable[RunConfig]) -> Iterator[tuple[Dataset, Split]]:
    """Load each dataset of some runs once, and yield it with each of its divisions.

    A dataset that has to be downloaded is so by one process.

    Raises:
        ConfigError: data cannot be had, or a partition of them.
    """
    from semcom.data.load import read_dataset
    from semcom.data.partitions import partition_dataset

    needed: dict[str, dict[str, RunConfig]] = {}  # by what is equal: the parts need not be hashable
    for c in configs:
        needed.setdefault(repr(c.data), {})[repr((c.partition, c.sharers, c.seed))] = c
    for same_data in needed.values():
        dataset = read_dataset(next(iter(same_data.values())).data)
        for c in same_data.values():
            yield dataset, partition_dataset(dataset, c.partition, c.sharers, c.seed)


def check_sweep_data(configs: Iterable[RunConfig]) -> None:
    """Load and divide the data of unfinished runs; errors are those of `divide_data`."""
    for _ in divide_data(c for c in configs if not has_outcome(c)):
        pass


def mark_images(configs: Iterable[RunConfig], parts: Sequence[str]) -> dict[str, npt.NDArray[np.bool_]]:
    """Mark the images that some clients of some runs have in any of the parts `train`, `test` and `validation`.

    Returns:
        Digest of a dataset's labels -> bool `[N]`. Datasets with the same labels have the same images.

    Raises:
        ConfigError: as `divide_data`.
    """
    from semcom.data.split_file import LABELS, describe_dataset

    found: dict[str, npt.NDArray[np.bool_]] = {}
    for dataset, split in divide_data(configs):
        marks = found.setdefault(describe_dataset(dataset)[LABELS], np.zeros(len(dataset.images), dtype=bool))
        for lists in (getattr(split, part) for part in parts):
            marks[np.concatenate(lists)] = True
    return found
