"""The partition `file`: a split read from an .npz file."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from semcom.config import ConfigError
from semcom.data.archive import read_archive
from semcom.data.dataset import Dataset, Indices
from semcom.data.split import Lists, Partition, Split
from semcom.files import resolve_file, write_atomically


class File(Partition):
    """Clients with the samples that an .npz file lists, from `semcom split` or your own (docs/data.md)."""

    @dataclass(frozen=True)
    class Options(Partition.Options):
        """Options of `file`: the path of the file."""

        path: Path | None = None
        """Path of the .npz that holds train_0, test_0, train_1, ...; it has to be given."""

        def check(self) -> None:
            """Raise ValueError where no file is named."""
            if self.path is None:
                raise ValueError("path: no file is named; partition.kind 'file' needs the path of an .npz")

    def divide(self, dataset: Dataset, clients: int, rng: np.random.Generator) -> Split:
        """Read the split from the file, without draws."""
        return Split(*read_split(self.options.path, clients, dataset))


NAME, IMAGES, LABELS = "data_name", "data_images", "data_labels"
"""Arrays that identify the dataset of a file: its name, its number of images, the digest of its labels."""


def is_split_array(name: str) -> bool:
    """Check whether an array of a split file is a list of samples, or identifies their dataset."""
    return name.startswith(("train_", "test_", "validation_")) or name in (NAME, IMAGES, LABELS)


def describe_dataset(dataset: Dataset) -> dict[str, str]:
    """Describe a dataset by its name (that of a file without its folder), its size and its labels.

    So the content of a split does not depend on where its images lie.
    """
    labels = hashlib.sha256(dataset.labels.astype("<i8").tobytes()).hexdigest()
    return {NAME: Path(dataset.name).name, IMAGES: str(len(dataset.images)), LABELS: labels}


def write_split(path: str | Path, split: Split, dataset: Dataset) -> Path:
    """Write train_0, test_0, validation_0 (if any), train_1, ... to an .npz that the kind `file` reads.

    It also identifies the dataset of these lists (`describe_dataset`).

    Returns the path. Raises OSError if it could not be written; a previous file is then still there.
    """
    arrays: dict[str, Any] = dict(describe_dataset(dataset))
    for client, (train, test, validation) in enumerate(zip(split.train, split.test, split.validation, strict=True)):
        arrays |= {f"train_{client}": train, f"test_{client}": test}
        if len(validation):
            arrays[f"validation_{client}"] = validation
    return write_atomically(path, lambda file: np.savez_compressed(file, **arrays))


def read_split(path: str, clients: int, dataset: Dataset) -> tuple[Lists, Lists, Lists]:
    """Read training, test and validation indices from an .npz with train_0, test_0, ... (validation_k is optional).

    Raises ConfigError if it is missing or damaged, names another dataset, is not for that many clients, or holds
    indices that are not whole numbers below the number of images, or that occur twice within a client.
    """
    arrays = read_archive(resolve_file(path), f"partition.path: {path!r}", is_split_array)
    _check_dataset(path, {key: str(arrays[key]) for key in (NAME, IMAGES, LABELS) if key in arrays}, dataset)
    found = sum(key.startswith("train_") for key in arrays)
    if found != clients:
        raise ConfigError(f"clients: {clients}, but {path!r} divides the data over {found} clients")
    parts: dict[str, Lists] = {}
    for part in ("train", "test", "validation"):
        keys = [f"{part}_{client}" for client in range(clients)]
        missing = [key for key in keys if key not in arrays] if part != "validation" else []
        if missing:
            raise ConfigError(f"partition.path: {path!r} has no {missing[0]}")
        nothing = np.empty(0, dtype=np.int64)
        parts[part] = tuple(_check_indices(path, key, arrays.get(key, nothing), len(dataset.images)) for key in keys)
    for client, lists in enumerate(zip(*parts.values(), strict=True)):
        if len(np.unique(np.concatenate(lists))) < sum(map(len, lists)):
            raise ConfigError(f"partition.path: {path!r} gives client {client} an image twice")
    learned, chosen = (np.concatenate(parts[part]) for part in ("train", "validation"))
    for part, seen, what in (
        ("test", learned, "training"), ("validation", learned, "training"), ("test", chosen, "validation")
    ):  # fmt: skip
        for client, indices in enumerate(parts[part]):
            if np.isin(indices, seen).any():
                raise ConfigError(f"partition.path: {path!r} has a {what} image of some client in {part}_{client}")
    return parts["train"], parts["test"], parts["validation"]


def _check_dataset(path: str, told: dict[str, str], dataset: Dataset) -> None:
    """Raise ConfigError if a file names another dataset. Fields that it leaves out are not checked.

    The same images under another name count as the same dataset.
    """
    here = describe_dataset(dataset)
    if any(key in told and told[key] != here[key] for key in (IMAGES, LABELS)):
        there, given = (
            f"{known.get(NAME, 'a dataset without a name')} "
            f"({known.get(IMAGES, '?')} images, labels {known.get(LABELS, '?')[:8]})"
            for known in (told, here)
        )
        raise ConfigError(f"partition.path: {path!r} divides {there}, and data.name is {given}; name the same data")


def _check_indices(path: str, key: str, array: npt.NDArray[Any], images: int) -> Indices:
    if array.ndim != 1 or (array.dtype.kind not in "iu" and array.size):
        raise ConfigError(
            f"partition.path: {key} of {path!r} is no list of whole numbers ({array.dtype} {array.shape})"
        )
    if array.size and not (int(array.min()) >= 0 and int(array.max()) < images):
        raise ConfigError(f"partition.path: {key} of {path!r} has indices outside 0 to {images - 1}")
    return array.astype(np.int64)
