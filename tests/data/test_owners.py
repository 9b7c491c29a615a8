"""Data with an owner for each sample, and the partition `owner`."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np

from semcom import DataConfig, PartitionConfig
from semcom.data.load import load_dataset
from semcom.data.partitions import partition_dataset
from semcom.data.readers import read_npz
from tests.refusals import refuses

WRITERS = ("ann", "bob", "cid", "dee")


def store(path: Path, **more: Any) -> Path:
    """Write twelve rows of each of four writers. The last writer is missing in the test part."""
    rng = np.random.default_rng(0)
    owners = np.repeat(WRITERS, 12)
    x, y = rng.normal(size=(48, 5)), np.tile([0, 1, 2], 16)
    tested = (np.arange(48) % 12 >= 9) & (owners != "dee")
    arrays = {"x": x, "y": y, "owners": owners}
    parts = {f"{k}_{n}": v[m] for k, v in arrays.items() for n, m in (("train", ~tested), ("test", tested))}
    np.savez(path, **{**parts, **more})
    return path


def test_each_client_is_an_owner(tmp_path: Path) -> None:
    data = read_npz(store(tmp_path / "written.npz"))
    assert data.owners is not None
    assert data.owners.tolist() == [*np.repeat(range(4), (9, 9, 9, 12)), *np.repeat(range(3), 3)]
    split = partition_dataset(data, PartitionConfig("owner", options={"test_fraction": 0.25}), 4, 0)
    for client in range(4):
        own = np.concatenate([split.train[client], split.test[client]])
        assert sorted(own) == np.flatnonzero(data.owners == client).tolist() and len(split.test[client]) == 3
    own = partition_dataset(data, PartitionConfig("owner", options={"test": "own"}), 3, 0)
    assert [len(part) for part in own.train] == [9] * 3 and all((part >= data.train_size).all() for part in own.test)
    two = [partition_dataset(data, PartitionConfig("owner"), 2, seed).train for seed in range(20)]
    drawn = {tuple(data.owners[part[0]] for part in train) for train in two}
    assert len(drawn) == 6, "any two of the four, in their order"
    some = partition_dataset(data, PartitionConfig("owner", options={"fraction": 0.5}), 4, 0)
    assert [len(part) for part in some.train] == [4] * 4  # of nine, rounded to even


def test_owners_may_have_any_numbers(tmp_path: Path) -> None:
    """Those of the data's own book-keeping, which begins and ends where it likes."""
    data = read_npz(store(tmp_path / "written.npz"))
    assert data.owners is not None
    for options in ({}, {"test": "own"}):
        wanted = PartitionConfig("owner", options=options)
        same = dataclasses.replace(data, owners=10**12 * (data.owners - 1))
        one, other = (partition_dataset(each, wanted, 3, 0) for each in (data, same))
        for part, found in zip((*one.train, *one.test), (*other.train, *other.test), strict=True):
            assert part.tolist() == found.tolist()


def test_what_has_no_owners_is_refused(tmp_path: Path) -> None:
    data = read_npz(store(tmp_path / "written.npz"))
    with refuses("clients", "4 owners"):
        partition_dataset(data, PartitionConfig("owner"), 5, 0)
    with refuses("clients", "3 owners"):
        partition_dataset(data, PartitionConfig("owner", options={"test": "own"}), 4, 0)
    with refuses("partition.kind", "owners"):
        partition_dataset(load_dataset(DataConfig("digits")), PartitionConfig("owner"), 2, 0)
    for more, said in (
        ({"owners_test": np.array(["ann"])}, "as many owners"),
        ({"owners_test": np.zeros((9, 2), dtype=int)}, "whole numbers or texts"),
    ):
        with refuses("data.name", said):
            read_npz(store(tmp_path / "bad.npz", **more))
    with np.load(tmp_path / "written.npz") as arrays:
        np.savez(tmp_path / "half.npz", **{name: t for name, t in arrays.items() if name != "owners_test"})
    with refuses("data.name", "owners_train alone"):
        read_npz(tmp_path / "half.npz")
