"""The partitions: which client owns which images, drawn from the run's seed.

Every kind but `owner` and `file` first draws a table of counts `[K, C]`, how many samples of each class a client gets,
and then deals each class's shuffled samples accordingly: no sample goes to two clients. Legend: K clients, C classes, N
samples, n_c of them of class c; m classes per client (ways), q samples of each (shots).
"""

from __future__ import annotations

import dataclasses
import hashlib
from abc import abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal

import numpy as np

from semcom.channels.options import COUNT, MEASURE, NOT_NEGATIVE, SHARE, Rule, require
from semcom.channels.scene import read_scene
from semcom.config import ConfigError, PartitionConfig
from semcom.config.options import Needs, build_options, check_options
from semcom.data import counts
from semcom.data.counts import Table
from semcom.data.dataset import Dataset, Indices
from semcom.data.registry import PARTITIONS
from semcom.data.split import Lists, Partition, Split, choose_samples, deal_samples, keep_samples, split_samples_off

INSIDE = Rule(lambda v: 0 < v < 1, "a number in (0, 1)")


class Shots(Partition):
    """Each client owns m random classes and q training images of each.

    Test images are those of its own classes, or of all, at most `test_per_class` of each, drawn from the dataset's test
    images. Clients that are tested on the same class may share test images (20 clients share CIFAR-10's 1,000 per
    class), never training images.
    """

    @dataclass(frozen=True)
    class Options(Partition.Options):
        """Options of `shots`: classes per client, and images of each."""

        ways: int = 3
        """m: classes per client."""
        shots: int | None = None
        """q: training samples per class and client (None: 100; 15 on digits)."""
        ways_spread: int = 0
        """Client k owns m_k classes, uniform in [ways - spread, ways + spread]."""
        shots_spread: int = 0
        """Client k owns q_k samples of each, uniform in [shots - spread, shots + spread]."""
        test_per_class: int = 200
        """Largest number of test images per class and client."""
        test_classes: Literal["own", "all"] = "own"
        """Classes of a client's test images: those of its training images, or all."""

        def check(self) -> None:
            """Raise ValueError for counts below 1 and spreads below 0."""
            for name in ("ways", "shots", "test_per_class"):
                require(name, getattr(self, name), COUNT)
            for name in ("ways_spread", "shots_spread"):
                require(name, getattr(self, name), NOT_NEGATIVE)

    @classmethod
    def settle(cls, options: Shots.Options, data: str) -> Shots.Options:
        """Fill in the number of shots."""
        return options if options.shots is not None else dataclasses.replace(options, shots=default_shots(data))

    def divide(self, dataset: Dataset, clients: int, rng: np.random.Generator) -> Split:
        """Draw each client's classes and training images, then its test images.

        Those of classes that it does not own have a generator of their own: without them all else is the same.
        """
        o, labels, cut = self.options, dataset.labels, dataset.train_size
        each, classes = default_shots(dataset.name) if o.shots is None else o.shots, len(dataset.classes)
        ways = counts.draw_spread_counts("partition.ways", o.ways, o.ways_spread, clients, rng, top=classes)
        shots = counts.draw_spread_counts("partition.shots", each, o.shots_spread, clients, rng)
        table = counts.draw_shot_counts(np.bincount(labels[:cut], minlength=classes), ways, shots, rng)
        of_class = [cut + np.flatnonzero(labels[cut:] == c) for c in range(classes)]

        def some(wanted: Indices, rng: np.random.Generator) -> list[Indices]:
            return [rng.permutation(of_class[c])[: o.test_per_class] for c in wanted]

        test = [some(np.flatnonzero(row), rng) for row in table]
        if o.test_classes == "all":
            (apart,) = rng.spawn(1)  # own tests, and later draws, stay those of `test_classes` "own"
            test = [own + some(np.flatnonzero(row == 0), apart) for own, row in zip(test, table, strict=True)]
        return Split(deal_samples(np.arange(cut), labels, table, rng), tuple(np.concatenate(drawn) for drawn in test))


def default_shots(dataset: str) -> int:
    """Choose q of `shots` for a dataset if the user leaves it open."""
    return 15 if dataset == "digits" else 100


class Divided(Partition):
    """Base of the partitions that divide all the data. A subclass draws the table of samples by client and class."""

    @dataclass(frozen=True)
    class Options(Partition.Options):
        """Options of all these partitions: the part that is divided, and where its tests come from."""

        needs: ClassVar[Needs] = {"test_fraction": {"test": ("merged",)}}

        fraction: float = 1.0
        """Part of its images that each client keeps, in its own proportions of classes; for a seed, a smaller part is
        part of a larger one."""
        fraction_tests: float | None = None
        """Part of its test images that each client keeps (None: `fraction`)."""
        test: Literal["merged", "own"] = "merged"
        """Tests: `merged` with the training images and split per client, or the dataset's `own`, in proportion."""
        test_fraction: float = 0.25
        """Test part of each client's samples where `test` is `merged`."""

        def check(self) -> None:
            """Raise ValueError for parts that are not between 0 and 1."""
            require("fraction", self.fraction, SHARE)
            if self.fraction_tests is not None:
                require("fraction_tests", self.fraction_tests, SHARE)
            require("test_fraction", self.test_fraction, INSIDE)

    @abstractmethod
    def table(self, stock: Table, clients: int, rng: np.random.Generator) -> Table:
        """Draw the samples of each class for each client, `[K, C]`, from the `stock`, `[C]`."""

    def divide(self, dataset: Dataset, clients: int, rng: np.random.Generator) -> Split:
        """Deal by the table, and take the tests off, or deal the dataset's own in the same proportions."""
        o, labels, classes = self.options, dataset.labels, len(dataset.classes)
        merged = o.test == "merged"
        pool = np.arange(len(labels) if merged else dataset.train_size)
        table = self.table(np.bincount(labels[pool], minlength=classes), clients, rng)
        train = deal_samples(pool, labels, table, rng)
        if merged:
            return Split(*split_samples_off(train, labels, o.test_fraction, rng))
        rest = np.arange(dataset.train_size, len(labels))
        shares = counts.divide_stock_in_proportion(table, np.bincount(labels[rest], minlength=classes))
        return Split(train, deal_samples(rest, labels, shares, rng))

    def reduce(self, split: Split, labels: Indices, rng: np.random.Generator) -> Split:
        """Keep `fraction` of each client's training and validation samples, and `fraction_tests` of its tests."""
        part = self.options.fraction
        tests = part if self.options.fraction_tests is None else self.options.fraction_tests
        if part == tests == 1:
            return split
        wanted = ((split.train, part), (split.test, tests), (split.validation, part))
        return Split(*(keep_samples(lists, labels, each, rng) for lists, each in wanted))


class IID(Divided):
    """Equal random parts of all samples, one per client."""

    def table(self, stock: Table, clients: int, rng: np.random.Generator) -> Table:
        """Draw the table by `counts.draw_iid_counts`."""
        return counts.draw_iid_counts(stock, clients, rng)


class DirichletClient(Divided):
    """Clients of equal size, each with its own class probabilities ~ Dir(beta)."""

    @dataclass(frozen=True)
    class Options(Divided.Options):
        """Options of `dirichlet-client`, with the skew of the classes."""

        beta: float = 0.1
        """Concentration: the smaller, the fewer classes a client has."""

        def check(self) -> None:
            """Raise ValueError for a concentration that is not positive, or so large that its shares are no numbers."""
            super().check()
            require("beta", self.beta, MEASURE)

    def table(self, stock: Table, clients: int, rng: np.random.Generator) -> Table:
        """Draw the table by `counts.draw_client_dirichlet_counts`."""
        return counts.draw_client_dirichlet_counts(stock, clients, self.options.beta, rng)


class Place(Divided):
    """Clients of equal size at the places of a scene: neighbours have similar classes, each client's ~ Dir(beta)."""

    @dataclass(frozen=True)
    class Options(DirichletClient.Options):
        """Options of `place`, with the scene, the distance over which classes change, and the size of a client."""

        scene: Path | None = None
        """Scene in which the clients stand at first: one that ships (munich-20), or a file; it has to be given."""
        length_m: float = 50.0
        """Fields over the map, one for each class, have the correlation exp(-distance / length_m): with 0 classes do
        not depend on places, with inf all clients have the same shares."""
        size: int | None = None
        """Samples of each client before `fraction` (None: as many as the class of which the most is wanted allows)."""

        def check(self) -> None:
            """Raise ValueError without a scene, or for a length or a size out of range."""
            super().check()
            read_scene(self.scene)
            if not self.length_m >= 0:
                raise ValueError(f"length_m: {self.length_m} is not a number of at least 0")
            require("size", self.size, COUNT)

    def table(self, stock: Table, clients: int, rng: np.random.Generator) -> Table:
        """Draw a field for each class with images, and count by the shares that it gives at the clients' places."""
        o, scene = self.options, read_scene(self.options.scene)
        if clients > scene.clients:
            raise ConfigError(f"partition.scene: {scene.clients} clients are in it, {clients} in the run")
        table, there = np.zeros((clients, len(stock)), dtype=np.int64), np.flatnonzero(stock)
        fields = counts.draw_fields(scene.places_m[:clients, 0, :2], o.length_m, len(there), rng)
        table[:, there] = counts.count_by_shares(stock[there], counts.convert_to_shares(fields, o.beta), o.size, rng)
        return table


class Dirichlet(Divided):
    """Each class divided over the clients in proportions ~ Dir(beta)."""

    @dataclass(frozen=True)
    class Options(DirichletClient.Options):
        """Options of `dirichlet`, with the skew of the classes and the size of the smallest client."""

        min_size: int = 10
        """Smallest number of samples of a client before `fraction`, redrawn until met (0: the plain form)."""

        def check(self) -> None:
            """Raise ValueError for a size below 0."""
            super().check()
            require("min_size", self.min_size, NOT_NEGATIVE)

    def table(self, stock: Table, clients: int, rng: np.random.Generator) -> Table:
        """Draw the table by `counts.draw_dirichlet_counts`."""
        return counts.draw_dirichlet_counts(stock, clients, self.options.beta, self.options.min_size, rng)


class Pathological(Divided):
    """Some random classes per client, a class in equal shares among its owners."""

    @dataclass(frozen=True)
    class Options(Divided.Options):
        """Options of `pathological`, with the number of classes of a client."""

        classes: int = 2
        """Number of classes per client."""

        def check(self) -> None:
            """Raise ValueError for less than one class."""
            super().check()
            require("classes", self.classes, COUNT)

    def table(self, stock: Table, clients: int, rng: np.random.Generator) -> Table:
        """Draw the table by `counts.draw_pathological_counts`."""
        return counts.draw_pathological_counts(stock, clients, self.options.classes, rng)


class Owner(Partition):
    """Each client is one of the owners that the data name, such as a writer or a domain, with its samples.

    Of more owners than clients some are drawn. Samples have owners in an `.npz` with `owners_train` and `owners_test`,
    in the dataset `huggingface` with `owner`, and in a `Dataset` with `owners`.
    """

    Options = Divided.Options

    def divide(self, dataset: Dataset, clients: int, rng: np.random.Generator) -> Split:
        """Draw the owners, and take the tests of each off, or those that are its in the dataset's test part."""
        if dataset.owners is None:
            raise ConfigError(f"partition.kind: 'owner' needs data with owners, which {dataset.name!r} has not")
        merged, (names, owners) = self.options.test == "merged", np.unique(dataset.owners, return_inverse=True)
        cut = len(dataset.labels) if merged else dataset.train_size
        train, test = (
            np.split(start + np.argsort(own, kind="stable"), np.cumsum(np.bincount(own, minlength=len(names)))[:-1])
            for start, own in ((0, owners[:cut]), (cut, owners[cut:]))
        )
        fit = [k for k in range(len(names)) if len(train[k]) > merged and (merged or len(test[k]))]
        if clients > len(fit):
            known = f"the {len(fit)} owners with training and test samples in {dataset.name!r}"
            raise ConfigError(f"clients: {clients} is more than {known}; give fewer")
        chosen = np.sort(rng.permutation(fit)[:clients])
        own = tuple(train[k] for k in chosen)
        if merged:
            return Split(*split_samples_off(own, dataset.labels, self.options.test_fraction, rng))
        return Split(own, tuple(test[k] for k in chosen))

    reduce = Divided.reduce


def partition_dataset(dataset: Dataset, config: PartitionConfig, clients: int, seed: int) -> Split:
    """Divide a dataset over clients; the same arguments give the same split, sorted per client.

    Raises ConfigError for a request that the data cannot meet, naming the field, or the client left without samples.
    """
    kind = PARTITIONS.get(config.kind)
    options = build_options(kind.Options, config.options, "partition", config.kind)
    check_options("partition", options)
    if clients > len(dataset.images):
        raise ConfigError(f"clients: {clients} is more than the {len(dataset.images)} images of {dataset.name!r}")
    rng = _seed_generator(seed, config.kind)
    divider = kind(options)
    split = divider.divide(dataset, clients, rng)
    if not isinstance(split, Split) or not len(split.train) == len(split.test) == clients:
        raise ConfigError(f"partition.kind: {config.kind!r} gives no Split with lists for {clients} clients")
    train, validation = split.train, split.validation or tuple(np.empty(0, dtype=np.int64) for _ in range(clients))
    _check_filled(config.kind, train, split.test)
    if np.isin(np.concatenate(split.test), np.concatenate([*train, *validation])).any():
        raise ConfigError(f"partition.kind: {config.kind!r} tests a client on what some client learns from")
    train = _cut_scarce_clients(train, dataset.labels, config, rng)
    if config.validation:
        if any(len(indices) for indices in validation):
            raise ConfigError(
                f"partition.validation: {config.validation} has no effect: {config.kind!r} has set a part aside itself"
            )
        train, validation = split_samples_off(train, dataset.labels, config.validation, rng)
        if not any(len(indices) for indices in validation):
            none = f"{config.validation} sets nothing aside, as each client has one training image"
            raise ConfigError(f"partition.validation: {none}; give clients more")
        if np.isin(np.concatenate(validation), np.concatenate(train)).any():  # a file's clients may share images
            shared = f"{config.validation} sets images aside that other clients of {config.kind!r} train on"
            raise ConfigError(f"partition.validation: {shared}; leave it out; a file may list validation_0, ... itself")
    split = divider.reduce(Split(train, split.test, validation), dataset.labels, rng)
    return Split(*(tuple(np.sort(a) for a in lists) for lists in (split.train, split.test, split.validation)))


def _cut_scarce_clients(train: Lists, labels: Indices, config: PartitionConfig, rng: np.random.Generator) -> Lists:
    """Leave the clients named `scarce` a fraction of their training samples, stratified, at least one."""
    left = list(train)
    for client in sorted(set(config.scarce)):
        number = max(1, round(config.scarce_fraction * len(left[client])))
        left[client] = choose_samples(left[client], labels, number, rng)
    return tuple(left)


def _check_filled(kind: str, train: Lists, test: Lists) -> None:
    for part, lists in (("training", train), ("test", test)):
        empty = [client for client, indices in enumerate(lists) if len(indices) == 0]
        if empty:
            left = f"{kind!r} leaves client {empty[0]} of {len(lists)} without {part} samples"
            raise ConfigError(f"partition.kind: {left}; take fewer clients or larger parts")


def _seed_generator(seed: int, kind: str) -> np.random.Generator:
    """Seed a generator by (seed, "partition", kind)."""
    digest = hashlib.sha256(f"partition/{kind}".encode()).digest()[:16]
    return np.random.default_rng(np.random.SeedSequence([seed, *np.frombuffer(digest, dtype="<u4").tolist()]))
