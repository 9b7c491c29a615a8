"""The dataset `huggingface`: columns of pictures, numbers, labels and owners.

`datasets` is not installed here. A stand-in records the requests and reads a local file with pandas.
"""

from __future__ import annotations

import logging
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
from semcom.config import run_hash
from semcom.data.dataset import Dataset, note_on_dataset
from semcom.data.load import load_dataset
from tests.refusals import refuses

WRITERS = ("ann", "bob", "cid")


class Part:
    """The part of `load_dataset`'s result that is used."""

    def __init__(self, frame: pd.DataFrame, features: dict[str, Any]) -> None:
        self.frame, self.features, self.column_names = frame, features, list(frame)

    def __getitem__(self, column: str) -> list[Any]:
        return list(self.frame[column])


@pytest.fixture
def package(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Install the stand-in of `datasets`. `frames` holds tables for paths other than `parquet`."""
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
    """Three writers of 40 rows with a text as their name. A fifth of each class is for testing."""
    rng = np.random.default_rng(0)
    label = rng.integers(0, 3, 120)
    rows = [row.tolist() for row in 4.0 * np.eye(3)[label] + rng.normal(size=(120, 3))]
    frame = pd.DataFrame({"x": rows, "kind": np.array(["a", "b", "c"])[label], "who": np.repeat(WRITERS, 40)})
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


def test_a_folder_counts_by_all_that_it_holds(here: Path) -> None:
    """From whatever folder it is named, its table of labels too. With `files` the name is that of a kind."""
    (here / "mine" / "train" / "images").mkdir(parents=True)
    Image.new("L", (4, 4)).save(here / "mine" / "train" / "images" / "0.png")
    (here / "csv").mkdir()

    def ask(**options: Any) -> semcom.RunConfig:
        return semcom.resolve(semcom.RunConfig("local", data=DataConfig("huggingface", options=options)))

    hashes: list[set[str]] = []
    for label in ("cat", "dog"):
        (here / "mine" / "train" / "metadata.csv").write_text(label)
        configs = [ask(path=path) for path in ("mine", "./mine", str(here / "mine"))]
        assert {config.data.options.path for config in configs} == {str(here / "mine")}
        assert {*configs[0].contents} == {str(here / "mine")}
        hashes.append({run_hash(config) for config in configs})
    assert hashes[0] != hashes[1] and {len(of) for of in hashes} == {1}
    assert ask(path="csv", files="mine/train/metadata.csv").data.options.path == "csv"
    assert ask(path="me/other").contents == {}


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
    package.frames = dict.fromkeys(package.frames, frame.assign(image="a text"))
    with refuses("data.name", "token ids"):
        load_dataset(DataConfig("huggingface", options={"path": "me/mine", "test": "valid"}))
    for column, values in (("label", [0, None] * 4), ("who", ["ann", None] * 4)):
        holes = frame.assign(who="ann").assign(**{column: pd.Series(values, dtype=object)})
        package.frames |= {("me/mine", "train"): holes[:6], ("me/mine", "valid"): holes[6:]}
        with refuses("data.name", f"4 of 8 {'owners' if column == 'who' else 'labels'} are missing"):
            load_dataset(DataConfig("huggingface", options={"path": "me/mine", "test": "valid", "owner": "who"}))


def test_weak_tests_are_told_of(package: Any, caplog: pytest.LogCaptureFixture) -> None:
    """The test split repeats its training split, and has no dog."""
    images = [Image.fromarray(np.full((4, 4, 3), value, dtype=np.uint8)) for value in range(4)]
    frame = pd.DataFrame({"image": images, "label": [0, 0, 0, 1]})
    package.frames = {("me/mine", "train"): frame, ("me/mine", "test"): frame[:3]}
    load_dataset(DataConfig("huggingface", options={"path": "me/mine", "test": "test"}))
    assert "3 of its 3 test images are training images too" in caplog.text and "no test images" in caplog.text


def test_without_the_package_one_line_names_it() -> None:
    with refuses("data.name", "semcom[huggingface]"):
        load_dataset(DataConfig("huggingface", options={"path": "me/mine"}))


# -- Pictures --------------------------------------------------------------------------------------------------------


def load(package: Any, images: list[Any], labels: Any = None) -> Dataset:
    """Load a dataset of some pictures. One of each of two classes is for testing."""
    frame = pd.DataFrame({"image": pd.Series(images, dtype=object)})
    frame["label"] = labels if labels is not None else [0, 1] * (len(images) // 2)
    package.frames = {("me/mine", "train"): frame[:-2], ("me/mine", "valid"): frame[-2:]}
    return load_dataset(DataConfig("huggingface", options={"path": "me/mine", "test": "valid"}))


@pytest.mark.parametrize("place", [0, 3, 59])
@pytest.mark.parametrize("mode", ["1", "L", "LA"])
def test_a_grey_image_does_not_make_the_others_grey(
    mode: str, place: int, package: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """At any position, in training or in tests, all images become RGB, and a line reports it."""
    note_on_dataset.cache_clear()
    images = [Image.new("RGB", (16, 16), (10, 20, 30))] * 60
    images[place] = Image.new(mode, (16, 16), 255 if mode == "1" else "white")
    with caplog.at_level(logging.WARNING, "semcom.data"):
        found = load(package, images)
    assert found.images.shape == (60, 3, 16, 16)
    assert found.images[place].min() == 255 and found.images[1, :, 0, 0].tolist() == [10, 20, 30]
    assert "1 of its 60 images are grey, and become RGB as the others are" in caplog.text


def test_grey_images_alone_have_one_channel(package: Any, caplog: pytest.LogCaptureFixture) -> None:
    """Eight bits, one bit, sixteen bits and transparent ones: 0x8000 is 128, and white at half opacity as well."""
    wide = Image.fromarray(np.full((4, 4), 0x8000, np.uint16))
    half = Image.fromarray(np.dstack([np.full((4, 4), 255, np.uint8), np.full((4, 4), 128, np.uint8)]), "LA")
    found = load(package, [Image.new("L", (4, 4), 7), Image.new("1", (4, 4), 1), wide, half])
    assert found.images.shape == (4, 1, 4, 4) and found.images[:, 0, 0, 0].tolist() == [7, 255, 128, 128]
    assert not caplog.records


@pytest.mark.parametrize(
    ("images", "said"),
    [
        ([Image.new("RGB", (4, 4)), Image.fromarray(np.zeros((4, 4), np.float32))] * 2, "image 1 cannot be read"),
        ([Image.new("L", (4, 4)), None] * 2, "2 of 4 inputs are images"),
        ([None, Image.new("L", (4, 4))] * 2, "2 of 4 inputs are images"),
        ([None] * 4, "inputs are object"),
        ([Image.new("L", (4, 4)), Image.new("L", (4, 5))] * 2, "(4, 4), (5, 4)"),
    ],
)
def test_pictures_that_cannot_be_stacked_are_refused(images: list[Any], said: str, package: Any) -> None:
    with refuses("data.name", said):
        load(package, images)


@pytest.mark.parametrize(
    ("labels", "classes", "numbers"),
    [
        ([3, 7, 3, 7], ("3", "7"), [0, 1, 0, 1]),
        ([True, False] * 2, ("False", "True"), [1, 0, 1, 0]),
        (["b", "a", "c", "a"], ("a", "b", "c"), [1, 0, 2, 0]),
        ([0.0, 1.0] * 2, "labels are float64", None),
        ([0.0, float("nan")] * 2, "labels are float64", None),
        ([-1, 1] * 2, "the column of labels holds -1; labels start at 0", None),
        ([0, None] * 2, "2 of 4 labels are missing", None),
        ([[0, 1], [1, 0]] * 2, "labels are int64", None),
    ],
)
def test_labels_are_whole_numbers_or_texts(labels: list[Any], classes: Any, numbers: Any, package: Any) -> None:
    column = pd.Series(labels, dtype=object if None in labels or isinstance(labels[0], list) else None)
    images = [Image.new("L", (4, 4))] * 4
    if numbers is None:
        with refuses("data.name", classes):
            load(package, images, column)
        return
    found = load(package, images, column)
    assert found.classes == classes and found.labels.tolist() == numbers
