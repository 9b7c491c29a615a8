"""Promises of partitions: disjoint samples, the classes, the sizes, the seed."""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy import stats

from semcom.channels.scene import read_scene
from semcom.config import ConfigError, DataConfig, PartitionConfig, RunConfig
from semcom.data.dataset import Dataset
from semcom.data.partitions import default_shots, partition_dataset
from semcom.data.registry import PARTITIONS
from semcom.data.split import Partition, Split
from semcom.data.split_file import write_split
from semcom.runs.request.resolve import resolve
from tests.refusals import refuses
from tests.worlds import divided

PROPERTY = settings(max_examples=25, deadline=None, derandomize=True)
DIVIDED = ("dirichlet", "dirichlet-client", "pathological", "iid")
SKEW: dict[str, dict[str, Any]] = {
    "dirichlet": {"beta": 1.0},
    "dirichlet-client": {"beta": 1.0},
    "pathological": {},
    "iid": {},
    "shots": {"shots": 4},
}
"""Options of each kind with which the small dataset suffices."""
SEEDS = st.integers(0, 2**40)


def toy(train: list[int], test: list[int]) -> Dataset:
    """A dataset with so many one-pixel images of each class, in shuffled order."""
    rng = np.random.default_rng(len(train))
    parts = [rng.permutation(np.repeat(np.arange(len(n)), n)) for n in (train, test)]
    labels = np.concatenate(parts).astype(np.int64)
    images = np.zeros((len(labels), 1, 1, 1), dtype=np.uint8)
    return Dataset("toy", images, labels, sum(train), tuple(map(str, range(len(train)))))


EVEN = toy([60] * 5, [20] * 5)


def classes_of(dataset: Dataset, indices: np.ndarray) -> set[int]:
    return set(dataset.labels[indices].tolist())


def check_disjoint(split: Split, dataset: Dataset) -> None:
    """No sample is in two training or validation sets, nor in one of them and in any test set."""
    used = np.concatenate([*split.train, *split.validation])
    assert len(np.unique(used)) == len(used)
    assert not np.intersect1d(used, np.concatenate(split.test)).size
    for part in (*split.train, *split.test, *split.validation):
        assert part.dtype == np.int64 and (np.diff(part) > 0).all()
        assert ((part >= 0) & (part < len(dataset.labels))).all()


def same(a: Split, b: Split) -> bool:
    parts = zip(dataclasses.astuple(a), dataclasses.astuple(b), strict=True)
    return all(np.array_equal(x, y) for p, q in parts for x, y in zip(p, q, strict=True))


def test_classes_of_shots_are_uniform() -> None:
    """Each of the 10 pairs of 5 classes is as likely as any other: chi-square with 9 degrees, 0.1% level is 27.9."""
    drawn = [partition_dataset(EVEN, divided(ways=2, shots=1), 4, seed).train for seed in range(250)]
    pairs = [tuple(sorted(classes_of(EVEN, t))) for split in drawn for t in split]
    seen = np.array([pairs.count(p) for p in itertools.combinations(range(5), 2)])
    assert seen.sum() == 1000
    assert ((seen - 100) ** 2 / 100).sum() < 27.9


@PROPERTY
@given(SEEDS, st.integers(1, 6), st.integers(1, 5), st.integers(1, 12), st.integers(1, 25))
def test_shots_keep_their_promise(seed: int, clients: int, ways: int, shots: int, most: int) -> None:
    assume(clients * shots <= 60)
    split = partition_dataset(EVEN, divided(ways=ways, shots=shots, test_per_class=most), clients, seed)
    check_disjoint(split, EVEN)
    for train, test in zip(split.train, split.test, strict=True):
        own = np.bincount(EVEN.labels[train], minlength=5)
        assert sorted(own[own > 0]) == [shots] * ways and (train < EVEN.train_size).all()
        tested = np.bincount(EVEN.labels[test], minlength=5)
        assert (tested == np.where(own > 0, min(most, 20), 0)).all() and (test >= EVEN.train_size).all()


@PROPERTY
@given(SEEDS, st.integers(1, 5), st.integers(1, 25), st.sampled_from([0.0, 0.5]))
def test_tests_of_all_classes_leave_all_else_as_it_is(seed: int, ways: int, most: int, aside: float) -> None:
    """Training, validation and test images of own classes are the same, and the others come beside them."""

    def divide(**options: Any) -> Split:
        config = divided(ways=ways, shots=4, test_per_class=most, **options)
        return partition_dataset(EVEN, dataclasses.replace(config, validation=aside), 3, seed)

    own, all_ = divide(), divide(test_classes="all")
    for part in ("train", "validation"):
        assert all(map(np.array_equal, getattr(own, part), getattr(all_, part)))
    for train, test, whole in zip(own.train, own.test, all_.test, strict=True):
        assert (np.bincount(EVEN.labels[whole], minlength=5) == min(most, 20)).all() and len(set(whole)) == len(whole)
        mine = np.isin(EVEN.labels[whole], np.unique(EVEN.labels[train]))
        assert np.array_equal(whole[mine], test) and (whole >= EVEN.train_size).all()


@PROPERTY
@given(SEEDS)
def test_spreads_cover_their_range(seed: int) -> None:
    config = divided(ways=2, ways_spread=1, shots=4, shots_spread=2)
    split = partition_dataset(EVEN, config, 12, seed)
    check_disjoint(split, EVEN)
    own = np.array([np.bincount(EVEN.labels[t], minlength=5) for t in split.train])
    assert set((own > 0).sum(axis=1)) <= {1, 2, 3}
    assert all(len(set(row[row > 0])) == 1 and 2 <= row.max() <= 6 for row in own)
    many = [partition_dataset(EVEN, config, 12, s) for s in range(5)]
    assert {int(np.bincount(EVEN.labels[t]).max()) for s in many for t in s.train} == {2, 3, 4, 5, 6}
    assert {len(classes_of(EVEN, t)) for s in many for t in s.train} == {1, 2, 3}


@PROPERTY
@given(SEEDS, st.sampled_from(DIVIDED), st.integers(2, 6), st.sampled_from(["merged", "own"]))
def test_every_kind_uses_a_sample_once(seed: int, kind: Any, clients: int, test: Any) -> None:
    config = divided(kind=kind, **SKEW[kind], test=test, validation=0.2)
    split = partition_dataset(EVEN, config, clients, seed)
    check_disjoint(split, EVEN)
    everywhere = np.concatenate([*split.train, *split.validation, *split.test])
    assert len(np.unique(everywhere)) == len(everywhere)
    left_out = 400 % clients if kind == "dirichlet-client" and test == "merged" else 0
    if test == "own":
        tests = np.concatenate(split.test)
        assert (tests >= 300).all() and (np.concatenate(split.train) < 300).all()
        left_out = 300 % clients if kind == "dirichlet-client" else 0
        assert len(tests) == 100
    if kind != "pathological" or clients * 2 >= 5:
        assert len(everywhere) == 400 - left_out
    assert (np.concatenate([[len(a) for a in part] for part in (split.train, split.test)]) > 0).all()


@PROPERTY
@given(
    SEEDS,
    st.sampled_from(DIVIDED),
    st.sampled_from(["merged", "own"]),
    st.lists(st.floats(0.01, 1.0), min_size=2, max_size=3),
)
def test_a_smaller_fraction_is_part_of_a_larger_one(seed: int, kind: Any, test: Any, fractions: list[float]) -> None:
    """Of each client's training, test and validation images, with its own shares of classes, to less than an image."""
    shares = {"scarce": (1,), "scarce_fraction": 0.5, "validation": 0.25}
    config = divided(kind=kind, **SKEW[kind], test=test, **shares)
    larger = partition_dataset(EVEN, config, 4, seed)
    whole = dataclasses.astuple(larger)
    for fraction in sorted(fractions, reverse=True):
        assert config.options is not None
        smaller = partition_dataset(
            EVEN, dataclasses.replace(config, options=config.options | {"fraction": fraction}), 4, seed
        )
        check_disjoint(smaller, EVEN)
        for parts in zip(whole, dataclasses.astuple(larger), dataclasses.astuple(smaller), strict=True):
            for every, more, less in zip(*parts, strict=True):
                number = min(len(every), max(1, round(fraction * len(every))))
                assert np.isin(less, more).all() and len(less) == number
                had, left = (np.bincount(EVEN.labels[indices], minlength=5) for indices in (every, less))
                assert (np.abs(left - had * (len(less) / max(1, len(every)))) < 1).all()
        larger = smaller


@pytest.mark.parametrize("test", ["merged", "own"])
def test_another_fraction_of_the_tests_leaves_the_training_images_alone(test: Any) -> None:
    def divide(**options: float) -> Split:
        return partition_dataset(EVEN, divided(kind="dirichlet", beta=5.0, test=test, **options), 4, 0)

    part, few, whole = divide(fraction=0.5), divide(fraction=0.5, fraction_tests=0.2), divide()
    for own in range(4):
        assert np.array_equal(part.train[own], few.train[own])
        assert len(few.test[own]) == max(1, round(0.2 * len(whole.test[own])))
        assert set(few.test[own]) < set(part.test[own]) < set(whole.test[own])
    assert same(divide(fraction=0.5, fraction_tests=0.5), part)


@PROPERTY
@given(SEEDS, st.sampled_from(["shots", *DIVIDED]))
def test_the_seed_alone_decides(seed: int, kind: Any) -> None:
    config = divided(kind=kind, **SKEW[kind], validation=0.25, scarce=(1,))
    first = partition_dataset(EVEN, config, 4, seed)
    np.random.seed(0)
    assert same(first, partition_dataset(EVEN, config, 4, seed))
    assert not same(first, partition_dataset(EVEN, config, 4, seed + 1))


@PROPERTY
@given(SEEDS, st.floats(0.05, 0.9))
def test_merged_clients_are_split_by_the_test_fraction(seed: int, part: float) -> None:
    split = partition_dataset(EVEN, divided(kind="iid", test_fraction=part), 4, seed)
    for train, test in zip(split.train, split.test, strict=True):
        assert len(train) + len(test) == 100 and len(test) == min(max(1, round(part * 100)), 99)
        both, tested = (np.bincount(EVEN.labels[i], minlength=5) for i in (np.concatenate([train, test]), test))
        assert (np.abs(tested - both * len(test) / 100) < 1).all()  # stratified


@PROPERTY
@given(SEEDS, st.sampled_from(["shots", *DIVIDED]), st.floats(0.01, 1.0))
def test_scarce_clients_keep_a_fraction(seed: int, kind: Any, fraction: float) -> None:
    """In the same class proportions. Other clients keep all samples, and tests stay unchanged."""
    config = divided(kind=kind, **SKEW[kind])
    full = partition_dataset(EVEN, config, 4, seed)
    cut = partition_dataset(EVEN, dataclasses.replace(config, scarce=(1, 3), scarce_fraction=fraction), 4, seed)
    for k in range(4):
        assert np.array_equal(cut.test[k], full.test[k]) and np.isin(cut.train[k], full.train[k]).all()
        before, after = (np.bincount(EVEN.labels[split.train[k]], minlength=5) for split in (full, cut))
        assert after.sum() == (max(1, round(fraction * before.sum())) if k in (1, 3) else before.sum())
        assert (np.abs(after - before * after.sum() / before.sum()) < 1).all()


@PROPERTY
@given(SEEDS, st.floats(0.01, 0.95))
def test_validation_is_taken_off_training(seed: int, part: float) -> None:
    config = divided(ways=2, shots=10)
    full = partition_dataset(EVEN, config, 3, seed)
    split = partition_dataset(EVEN, dataclasses.replace(config, validation=part), 3, seed)
    check_disjoint(split, EVEN)
    for k in range(3):
        assert np.array_equal(np.union1d(split.train[k], split.validation[k]), full.train[k])
        assert len(split.validation[k]) == min(max(1, round(part * 20)), 19)
    assert all(len(v) == 0 for v in full.validation)


def test_a_single_sample_stays_in_training() -> None:
    split = partition_dataset(EVEN, divided(ways=1, shots=2, validation=0.5, scarce=(0,)), 2, 0)
    assert [len(t) for t in split.train] == [1, 1] and [len(v) for v in split.validation] == [0, 1]
    with refuses("partition.validation", "0.5 sets nothing aside"):
        partition_dataset(EVEN, divided(ways=1, shots=1, validation=0.5, scarce=(0,)), 2, 0)


@pytest.mark.parametrize("validation", [0.0, 0.25])
def test_a_split_survives_its_file(tmp_path: Path, validation: float) -> None:
    split = partition_dataset(EVEN, divided(kind="dirichlet", beta=1.0, validation=validation), 4, 7)
    write_split(tmp_path / "split.npz", split, EVEN)
    assert [f.name for f in tmp_path.iterdir()] == ["split.npz"]
    again = partition_dataset(EVEN, divided(kind="file", path=str(tmp_path / "split.npz")), 4, 99)
    assert same(split, again)


def renamed(dataset: Dataset, name: str) -> Dataset:
    return dataclasses.replace(dataset, name=name)


def test_a_file_of_another_dataset_is_refused(tmp_path: Path) -> None:
    """Fewer images, or other labels for as many. The same images under another name are accepted."""
    path = str(tmp_path / "split.npz")
    write_split(path, partition_dataset(EVEN, divided(kind="iid"), 2, 0), renamed(EVEN, "/far/away/even.npz"))
    config = divided(kind="file", path=path)
    assert same(partition_dataset(renamed(EVEN, "other"), config, 2, 0), partition_dataset(EVEN, config, 2, 0))
    fewer = renamed(toy([60] * 5, [8] * 5), "fewer")
    turned = dataclasses.replace(EVEN, name="turned", labels=EVEN.labels[::-1].copy())
    digests = [hashlib.sha256(d.labels.tobytes()).hexdigest()[:8] for d in (EVEN, fewer, turned)]
    assert len(set(digests)) == 3
    for dataset, size, digest in zip((fewer, turned), (340, 400), digests[1:], strict=True):
        there, given = f"400 images, labels {digests[0]}", f"{dataset.name} ({size} images, labels {digest})"
        with refuses("partition.path", path, f"even.npz ({there})", given):
            partition_dataset(dataset, config, 2, 0)


@pytest.mark.parametrize("told", [{}, {"data_name": "set"}, {"data_images": np.int64(400)}, {"labels": [1, 2]}])
def test_a_file_need_not_say_what_it_divides(tmp_path: Path, told: dict[str, Any]) -> None:
    path, lists = tmp_path / "split.npz", {"train_0": [0, 1], "test_0": [300]}
    np.savez(path, **{name: np.array(value) for name, value in {**lists, **told}.items()})
    assert partition_dataset(EVEN, divided(kind="file", path=str(path)), 1, 0).train[0].tolist() == [0, 1]
    np.savez(path, **lists, data_images=np.array(399))  # but what it says has to hold
    with refuses("partition.path", "399 images, labels ?"):
        partition_dataset(EVEN, divided(kind="file", path=str(path)), 1, 0)


def test_what_one_client_learns_from_is_no_test_of_another(tmp_path: Path) -> None:
    lists = {"train_0": [0], "validation_0": [2], "test_0": [300], "train_1": [4], "validation_1": [5], "test_1": [301]}
    path = str(tmp_path / "split.npz")
    np.savez(path, **lists)
    assert len(partition_dataset(EVEN, divided(kind="file", path=path), 2, 0).train) == 2
    for name, at, word in (("test_1", 0, "training"), ("validation_1", 0, "training"), ("test_1", 2, "validation")):
        np.savez(path, **{**lists, name: [at]})
        with refuses("partition.path", f"has a {word} image of some client in {name}"):
            partition_dataset(EVEN, divided(kind="file", path=path), 2, 0)


def test_what_clients_share_is_not_set_aside_for_validation(tmp_path: Path) -> None:
    path, lists = str(tmp_path / "split.npz"), {"train_0": [0, 1, 2, 3], "test_0": [300], "test_1": [301]}
    config = divided(kind="file", path=path, validation=0.5)
    np.savez(path, **lists, train_1=[4, 5, 6, 7])
    check_disjoint(partition_dataset(EVEN, config, 2, 0), EVEN)
    np.savez(path, **lists, train_1=[0, 1, 2, 3, 4])
    with refuses("partition.validation", 0.5, "train on"):
        partition_dataset(EVEN, config, 2, 0)


def test_a_partition_of_ones_own_that_tests_on_training_images_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    class Leaky(Partition):
        def divide(self, dataset: Dataset, clients: int, rng: np.random.Generator) -> Split:
            return Split((np.array([0]), np.array([1])), (np.array([300]), np.array([0])))

    monkeypatch.setattr(PARTITIONS, "_added", {**PARTITIONS._added, "leaky": Leaky})
    with refuses("partition.kind", "leaky"):
        partition_dataset(EVEN, PartitionConfig("leaky"), 2, 0)


def test_what_is_no_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "split.npz").write_text("hello")
    for name in ("split.npz", "other.npz"):
        with refuses("partition.path", tmp_path / name):
            partition_dataset(EVEN, divided(kind="file", path=str(tmp_path / name)), 2, 0)


def test_default_shots() -> None:
    assert [default_shots(name) for name in ("digits", "cifar10", "my/set.npz")] == [15, 100, 100]
    assert {len(t) for t in partition_dataset(toy([200] * 3, [1] * 3), divided(ways=1), 3, 0).train} == {100}
    noisy = RunConfig(data=DataConfig("noisy", options={"of": "digits"}), clients=2)
    assert resolve(noisy).partition.options.shots == 15


# The same splits as ever ---------------------------------------------------------------------------------------------


def digest(split: Split) -> str:
    """Of all indices and the lengths of their lists."""
    found = hashlib.sha256()
    for indices in (*split.train, *split.test, *split.validation):
        found.update(len(indices).to_bytes(8, "little") + indices.astype("<i8").tobytes())
    return found.hexdigest()[:16]


@pytest.mark.parametrize(
    ("fields", "digests"),
    [
        ({"ways": 2, "shots": 4}, ["aca3b5019499ec83", "ba7db448e68aee4b"]),
        (
            {"ways": 2, "ways_spread": 1, "shots": 4, "shots_spread": 2, "test_per_class": 7}
            | {"validation": 0.25, "scarce": (1,)},
            ["2fa20a3306e0b75d", "8a2f3efa821af31d"],
        ),
        ({"kind": "dirichlet"}, ["647aacf00b6e55c8", "159fb9973b67252b"]),
        (
            {"kind": "dirichlet", "beta": 1.0, "min_size": 0, "fraction": 0.5, "test": "own", "validation": 0.2},
            ["ec034550b62cf24f", "b9becde5abede965"],
        ),
        (
            {"kind": "dirichlet-client", "beta": 0.5, "scarce": (0, 2), "scarce_fraction": 0.5},
            ["50c0998e9cd7c056", "117912ef84e6e4be"],
        ),
        (
            {"kind": "dirichlet-client", "beta": 1.0, "fraction": 0.7, "test": "own"},
            ["5d6fe5df15a2db65", "3c3b53df3a21c5e1"],
        ),
        ({"kind": "pathological"}, ["bfaddd7d1dc7bce0", "679553f858b96902"]),
        (
            {"kind": "pathological", "classes": 3, "test_fraction": 0.4, "fraction": 0.8},
            ["11dba766ca3fd1b2", "4f6bf0565111869e"],
        ),
        ({"kind": "iid", "test_fraction": 0.1}, ["0c80a618a4e1c6c5", "d2dd053072b9b76d"]),
        ({"kind": "iid", "test": "own", "fraction": 0.9, "validation": 0.1}, ["15323d8d5523ba9d", "2613bfc36c0c54f0"]),
    ],
)
def test_a_seed_gives_the_split_that_it_always_gave(fields: dict[str, Any], digests: list[str]) -> None:
    """For seeds 0 and 7, digests of the code with one table of fields for all kinds.

    Those with a fraction below 1 come from the code that made smaller fractions subsets of larger ones.
    """
    assert [digest(partition_dataset(EVEN, divided(**fields), 4, seed)) for seed in (0, 7)] == digests


def test_a_file_gives_the_split_that_it_always_gave(tmp_path: Path) -> None:
    path = str(tmp_path / "split.npz")
    write_split(path, partition_dataset(EVEN, divided(kind="dirichlet", beta=1.0, validation=0.25), 4, 7), EVEN)
    assert digest(partition_dataset(EVEN, divided(kind="file", path=path, scarce=(2,)), 4, 3)) == "fab6ca35ee050848"


def test_a_validation_part_is_not_taken_off_twice(tmp_path: Path) -> None:
    """A validation part from a file stays unchanged. An earlier version ignored the setting silently."""
    path = str(tmp_path / "split.npz")
    write_split(path, partition_dataset(EVEN, divided(kind="iid", validation=0.25), 4, 7), EVEN)
    with refuses("partition.validation", 0.5):
        partition_dataset(EVEN, divided(kind="file", path=path, validation=0.5), 4, 0)


def test_neighbours_of_a_scene_see_the_same_classes() -> None:
    """Shares of two clients of munich-20 are the more alike, the nearer they stand; with inf all have the same."""
    places = read_scene("munich-20").places_m[:, 0, :2]
    apart = np.linalg.norm(places[:, None] - places, axis=2)[np.triu_indices(20, 1)]
    unlike = np.zeros(len(apart))
    for seed in range(40):
        split = divided(kind="place", scene="munich-20", length_m=60.0, beta=0.3)
        shares = shares_of(split, seed)
        unlike += np.abs(shares[:, None] - shares).sum(2)[np.triu_indices(20, 1)] / 40
    assert unlike[apart < 20].mean() < 0.6 * unlike[apart > 150].mean()
    assert stats.spearmanr(apart, unlike).statistic > 0.5
    same = shares_of(divided(kind="place", scene="munich-20", length_m=np.inf, beta=0.3), 0)
    assert (same == same[0]).all()


def test_places_deal_the_classes_that_have_images() -> None:
    config = divided(kind="place", scene="munich-20", length_m=60.0, beta=10.0)
    gaps, plain = toy([200, 0, 200], [10, 0, 10]), toy([200, 200], [10, 10])
    found, alone = ([len(own) for own in partition_dataset(data, config, 4, 0).train] for data in (gaps, plain))
    assert found == alone and min(found) > 0


def shares_of(config: PartitionConfig, seed: int) -> np.ndarray:
    """The shares of ten classes of 400 images each that 20 clients have."""
    labels = np.repeat(np.arange(10), 400)
    images = np.zeros((len(labels) + 100, 1, 1, 1), dtype=np.uint8)
    names = tuple(map(str, range(10)))
    dataset = Dataset("ten", images, np.concatenate([labels, np.arange(100) % 10]), len(labels), names)
    split = partition_dataset(dataset, config, 20, seed)
    owned = [np.concatenate(both) for both in zip(split.train, split.test, strict=True)]
    table = np.array([np.bincount(dataset.labels[own], minlength=10) for own in owned])
    return table / table.sum(1, keepdims=True)


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({}, "partition.scene: none is given; those that ship are munich-20"),
        ({"scene": "munich-20", "length_m": -1.0}, "partition.length-m: -1.0 is not a number of at least 0"),
        ({"scene": "munich-20", "size": 0}, "partition.size: 0 is not a whole number of at least 1"),
        (
            {"scene": "munich-20", "size": 500},
            "partition.size: 500 images of each client are more than ",
        ),
    ],
)
def test_a_division_by_places_that_is_wrong(options: dict[str, Any], why: str) -> None:
    with pytest.raises(ConfigError, match=f"^{re.escape(why)}"):
        shares_of(divided(kind="place", **options), 0)
