"""Partitions: which client owns which images, drawn from the run's seed.

Every kind but `file` first draws a table of counts `[K, C]`, how many samples of each class a client gets, and
then deals each class's samples, shuffled, accordingly: no sample goes to two clients. Legend: K clients, C classes,
N samples, n_c of them of class c; m classes per client (ways), q samples of each (shots).
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from semcom.config import ConfigError, PartitionConfig
from semcom.data import counts
from semcom.data.archive import read_archive
from semcom.data.dataset import Dataset, Indices
from semcom.files import write_atomically

Lists = tuple[Indices, ...]


@dataclass(frozen=True)
class Split:
    """Sorted indices into `Dataset.images`, one array per client and part."""

    train: Lists
    """Training samples: at least one per client, no sample used twice (but for `file`, as the file says)."""
    test: Lists
    """Test samples: at least one per client, none of them a training sample of anyone."""
    validation: Lists
    """Samples taken off the training samples; empty arrays unless the partition sets a part aside."""


def default_shots(dataset: str) -> int:
    """q of `shots` where the user leaves it open, for the dataset of that name."""
    return 15 if dataset == "digits" else 100


def partition(dataset: Dataset, config: PartitionConfig, clients: int, seed: int) -> Split:
    """Divides a dataset over clients; the same arguments give the same split.

    `shots`: each client owns m random classes and q training images of each. Test images are those of its own
    classes, at most `test_per_class` of each, drawn from the dataset's test images; clients that own the same
    class may share test images (20 clients share CIFAR-10's 1,000 per class), never training images.

    `dirichlet`: a class's samples are divided in proportions ~ Dir(beta) over clients; `dirichlet-client`: equally
    large clients, each with class probabilities ~ Dir(beta); `pathological`: `classes` random classes per client,
    a class in equal shares among its owners; `iid`: equal random parts. `file`: as an .npz says (`write_split`).

    Raises ConfigError for a request that the data cannot meet, naming the field, or the client left without samples.
    """
    if config.kind in ("shots", "file") and config.fraction != 1:
        raise ConfigError(f"partition.fraction: {config.fraction} does not apply to {config.kind!r}; leave it at 1")
    rng = _generator(seed, config.kind)
    validation: Lists = tuple(np.empty(0, dtype=np.int64) for _ in range(clients))
    if config.kind == "file":
        train, test, validation = read_split(config.path, clients, len(dataset.images))
    elif config.kind == "shots":
        train, test = _shots(dataset, config, clients, rng)
    else:
        train, test = _divide(dataset, config, clients, rng)
    _check_filled(config.kind, train, test)
    train = _cut_scarce(train, dataset.labels, config, rng)
    if config.validation and not any(len(indices) for indices in validation):
        train, validation = _take_off(train, dataset.labels, config.validation, rng)
    return Split(*(tuple(np.sort(indices) for indices in lists) for lists in (train, test, validation)))


def write_split(path: str | Path, split: Split) -> None:
    """Writes train_0, test_0, validation_0 (if there is one), train_1, ... to an .npz that the kind `file` reads."""
    arrays: dict[str, Any] = {}
    for client, (train, test, validation) in enumerate(zip(split.train, split.test, split.validation, strict=True)):
        arrays |= {f"train_{client}": train, f"test_{client}": test}
        if len(validation):
            arrays[f"validation_{client}"] = validation
    write_atomically(path, lambda file: np.savez_compressed(file, **arrays))


def read_split(path: str | None, clients: int, images: int) -> tuple[Lists, Lists, Lists]:
    """Training, test and validation indices of an .npz with train_0, test_0, train_1, ... (validation_k is optional).

    Raises ConfigError if it is missing or damaged, is not for that many clients, or holds indices that are not
    whole numbers below `images`, or that occur twice within a client.
    """
    if path is None:
        raise ConfigError("partition.path: None is no file; partition.kind 'file' needs the path of an .npz")
    arrays = read_archive(Path(path).expanduser(), f"partition.path: {path!r}")
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
        parts[part] = tuple(_check_indices(path, key, arrays.get(key, nothing), images) for key in keys)
    for client, lists in enumerate(zip(*parts.values(), strict=True)):
        if len(np.unique(np.concatenate(lists))) < sum(map(len, lists)):
            raise ConfigError(f"partition.path: {path!r} gives client {client} an image twice")
    learned = np.concatenate(parts["train"])
    for part in ("test", "validation"):
        for client, indices in enumerate(parts[part]):
            if np.isin(indices, learned).any():
                raise ConfigError(f"partition.path: {path!r} has a training image of some client in {part}_{client}")
    return parts["train"], parts["test"], parts["validation"]


def _shots(dataset: Dataset, config: PartitionConfig, clients: int, rng: np.random.Generator) -> tuple[Lists, Lists]:
    """Training and test samples of the kind `shots`."""
    labels, cut = dataset.labels, dataset.train_size
    classes = len(dataset.classes)
    shots = default_shots(dataset.name) if config.shots is None else config.shots
    ways_of = counts.spread("partition.ways", config.ways, config.ways_spread, clients, rng, top=classes)
    shots_of = counts.spread("partition.shots", shots, config.shots_spread, clients, rng)
    stock = np.bincount(labels[:cut], minlength=classes)
    table = counts.shots(stock, ways_of, shots_of, rng)
    test = []
    for row in table:
        own = [cut + np.flatnonzero(labels[cut:] == c) for c in np.flatnonzero(row)]
        test.append(np.concatenate([rng.permutation(indices)[: config.test_per_class] for indices in own]))
    return _deal(np.arange(cut), labels, table, rng), tuple(test)


def _divide(dataset: Dataset, config: PartitionConfig, clients: int, rng: np.random.Generator) -> tuple[Lists, Lists]:
    """Training and test samples of the kinds that divide all the data."""
    labels = dataset.labels
    merged, classes = config.test == "merged", len(dataset.classes)
    pool = np.arange(len(labels) if merged else dataset.train_size)
    pool = _choose(pool, labels, round(config.fraction * len(pool)), rng)
    stock = np.bincount(labels[pool], minlength=classes)
    draw = {
        "iid": lambda: counts.iid(stock, clients, rng),
        "dirichlet": lambda: counts.dirichlet(stock, clients, config.beta, config.min_size, rng),
        "dirichlet-client": lambda: counts.dirichlet_client(stock, clients, config.beta, rng),
        "pathological": lambda: counts.pathological(stock, clients, config.classes, rng),
    }
    table = draw[config.kind]()
    train = _deal(pool, labels, table, rng)
    if merged:
        return _take_off(train, labels, config.test_fraction, rng)
    rest = np.arange(dataset.train_size, len(labels))
    rest = _choose(rest, labels, round(config.fraction * len(rest)), rng)
    shares = counts.in_proportion(table, np.bincount(labels[rest], minlength=classes))
    return train, _deal(rest, labels, shares, rng)


def _deal(pool: Indices, labels: Indices, table: Indices, rng: np.random.Generator) -> Lists:
    """Hands out the samples of `pool`, shuffled per class, as the table of counts `[K, C]` says."""
    hands: list[list[Indices]] = [[] for _ in table]
    for c in range(table.shape[1]):
        ends = np.cumsum(table[:, c])
        shuffled = rng.permutation(pool[labels[pool] == c])
        for hand, dealt in zip(hands, np.split(shuffled[: ends[-1]], ends[:-1]), strict=True):
            hand.append(dealt)
    return tuple(np.concatenate(hand) for hand in hands)


def _choose(pool: Indices, labels: Indices, number: int, rng: np.random.Generator) -> Indices:
    """`number` samples of the pool, the classes in the pool's own proportions as well as whole numbers allow."""
    if number >= len(pool):
        return pool
    stock = np.bincount(labels[pool])
    return _deal(pool, labels, counts.round_to(stock * (number / len(pool)), number, rng)[None], rng)[0]


def _take_off(lists: Lists, labels: Indices, part: float, rng: np.random.Generator) -> tuple[Lists, Lists]:
    """Takes `part` of each client's samples off, stratified: what is left, what was taken.

    Of two or more samples at least one is taken and at least one is left; a single sample is left.
    """
    sizes = [min(max(1, round(part * len(indices))), len(indices) - 1) for indices in lists]
    taken = tuple(_choose(indices, labels, max(0, size), rng) for indices, size in zip(lists, sizes, strict=True))
    return tuple(np.setdiff1d(a, b) for a, b in zip(lists, taken, strict=True)), taken


def _cut_scarce(train: Lists, labels: Indices, config: PartitionConfig, rng: np.random.Generator) -> Lists:
    """Leaves the clients named `scarce` a fraction of their training samples (stratified; at least one)."""
    left = list(train)
    for client in sorted(set(config.scarce)):
        number = max(1, round(config.scarce_fraction * len(left[client])))
        left[client] = _choose(left[client], labels, number, rng)
    return tuple(left)


def _check_filled(kind: str, train: Lists, test: Lists) -> None:
    """Raises ConfigError about the first client without training or test samples."""
    for part, lists in (("training", train), ("test", test)):
        empty = [client for client, indices in enumerate(lists) if len(indices) == 0]
        if empty:
            left = f"{kind!r} leaves client {empty[0]} of {len(lists)} without {part} samples"
            raise ConfigError(f"partition.kind: {left}; take fewer clients or larger parts")


def _generator(seed: int, kind: str) -> np.random.Generator:
    """Random numbers keyed by (seed, "partition", kind)."""
    digest = hashlib.sha256(f"partition/{kind}".encode()).digest()[:16]
    return np.random.default_rng(np.random.SeedSequence([seed, *np.frombuffer(digest, dtype="<u4").tolist()]))


def _check_indices(path: str, key: str, array: npt.NDArray[Any], images: int) -> Indices:
    """One list of indices of a file, checked."""
    if array.ndim != 1 or (array.dtype.kind not in "iu" and array.size):
        raise ConfigError(
            f"partition.path: {key} of {path!r} is no list of whole numbers ({array.dtype} {array.shape})"
        )
    if array.size and not (int(array.min()) >= 0 and int(array.max()) < images):
        raise ConfigError(f"partition.path: {key} of {path!r} has indices outside 0 to {images - 1}")
    return array.astype(np.int64)
