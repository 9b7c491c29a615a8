"""Data that say whose each sample is: as arrays, and as Hugging Face's `datasets` gives them; the partition `owner`.

`datasets` is not installed here: what it is asked for, and what it gives, is that of a stand-in which reads a local
file by pandas.
"""

from __future__ import annotations

import dataclasses
import sys
import types
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from PIL import Image

import semcom
from semcom import DataConfig, PartitionConfig
from semcom.data.load import load_dataset
from semcom.data.partitions import partition_dataset
from semcom.data.readers import read_npz
from tests.refusals import refuses

WRITERS = ("ann", "bob", "cid", "dee")


def store(path: Path, **more: Any) -> Path:
    """Twelve rows of each of four writers, of whom the last one is not tested in the test part."""
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


# -- Hugging Face ----------------------------------------------------------------------------------------------------


class Part:
    """What `load_dataset` gives, as far as it is used."""

    def __init__(self, frame: pd.DataFrame, features: dict[str, Any]) -> None:
        self.frame, self.features, self.column_names = frame, features, list(frame)

    def __getitem__(self, column: str) -> list[Any]:
        return list(self.frame[column])


@pytest.fixture
def package(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The stand-in of `datasets`; `frames` has what it finds under other paths than `parquet`."""
    module: Any = types.ModuleType("datasets")
    module.__spec__ = ModuleSpec("datasets", None)
    module.frames, module.features, module.asked = {}, {}, []

    def load_dataset(path: str, name: str | None, *, split: str, data_files: str | None = None, **more: Any) -> Part:
        module.asked.append((path, name, split, data_files, more))
        frame = pd.read_parquet(data_files) if path == "parquet" else module.frames[path, split]
        return Part(frame, module.features)

    module.load_dataset = load_dataset
    monkeypatch.setitem(sys.modules, "datasets", module)
    return module


def test_a_run_on_a_local_file(package: Any, tmp_path: Path) -> None:
    """Three writers of 40 rows, told apart by a text; a fifth of each class is for testing."""
    rng = np.random.default_rng(0)
    label = rng.integers(0, 3, 120)
    rows = [row.tolist() for row in 4.0 * np.eye(3)[label] + rng.normal(size=(120, 3))]
    frame = pd.DataFrame({"x": rows, "kind": np.array(["a", "b", "c"])[label], "who": np.repeat(WRITERS[:3], 40)})
    path = tmp_path / "mine.parquet"
    frame.to_parquet(path)
    options = {"path": "parquet", "files": path, "input": "x", "label": "kind", "owner": "who"}
    data = DataConfig("huggingface", options=options)
    fields: dict[str, Any] = {"model": {"encoder": "mlp", "features": 4}, "train": {"rounds": 2, "lr": 0.01}}
    request = semcom.RunConfig("fedavg", data=data, partition=PartitionConfig("owner"), clients=3, **fields)
    result = semcom.run(request)
    assert package.asked[0][:4] == ("parquet", None, "train", str(path))
    assert result.federation.classes == ("a", "b", "c") and tuple(result.federation.images.shape) == (120, 3)
    assert [n + m for n, m in zip(result.federation.train.sizes, result.federation.test.sizes, strict=True)] == [40] * 3
    assert set(result.config.contents) == {str(path)}, "what the file holds is part of the run"
    found = load_dataset(result.config.data)
    counts = np.bincount(label)
    tests = np.bincount(found.labels[found.train_size :])
    assert (tests == counts // 5).all() and found.owners is not None and np.bincount(found.owners).tolist() == [40] * 3


def test_images_with_names_of_classes_and_a_test_split(package: Any) -> None:
    images = [Image.fromarray(np.full((6, 4, 3), value, dtype=np.uint8)) for value in range(8)]
    frame = pd.DataFrame({"image": images, "label": [0, 1] * 4})
    package.frames = {("me/mine", "train"): frame[:6], ("me/mine", "valid"): frame[6:]}
    package.features = {"label": types.SimpleNamespace(names=["cat", "dog"])}
    options = {"path": "me/mine", "subset": "small", "test": "valid", "revision": "v1"}
    found = load_dataset(DataConfig("huggingface", root=None, options=options))
    assert found.images.shape == (8, 3, 6, 4) and found.images[:, 0, 0, 0].tolist() == list(range(8))
    assert (found.train_size, found.classes, found.owners) == (6, ("cat", "dog"), None)
    assert package.asked[-1] == ("me/mine", "small", "valid", None, {"revision": "v1", "cache_dir": None})
    for options, field, said in (
        ({"path": "me/mine", "input": "img"}, "data.input", "there are image, label"),
        ({"path": "me/none"}, "data.path", "no split 'train'"),
        ({}, "data.path", "needed"),
    ):
        with refuses(field, said):
            semcom.resolve(semcom.RunConfig("local", data=DataConfig("huggingface", options=options)))
            load_dataset(DataConfig("huggingface", options=options))
    package.frames["me/mine", "train"] = frame.assign(image="a text")
    with refuses("data.name", "token ids"):
        load_dataset(DataConfig("huggingface", options={"path": "me/mine", "test": "valid"}))
    for column, values in (("label", [0, None] * 4), ("who", ["ann", None] * 4)):
        holes = frame.assign(who="ann").assign(**{column: pd.Series(values, dtype=object)})
        package.frames |= {("me/mine", "train"): holes[:6], ("me/mine", "valid"): holes[6:]}
        with refuses("data.name", "4 of 8 labels or owners are missing"):
            load_dataset(DataConfig("huggingface", options={"path": "me/mine", "test": "valid", "owner": "who"}))


def test_without_the_package_one_line_names_it() -> None:
    with refuses("data.name", "semcom[huggingface]"):
        load_dataset(DataConfig("huggingface", options={"path": "me/mine"}))
