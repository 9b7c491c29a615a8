"""Datasets: their folders, their contents, and the messages about damaged files."""

from __future__ import annotations

import io
import os
import struct
import tracemalloc
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from semcom.config import DataConfig
from semcom.data.dataset import Dataset
from semcom.data.load import load_dataset
from semcom.data.readers import fit_images, read_folder
from semcom.data.registry import DATASETS
from semcom.data.sources import digits, find_dataset_cache
from semcom.data.split_file import read_split
from tests.refusals import refuses

ROOT = os.environ.get("SEMCOM_DATA")


def arrays(side: int = 6, channels: int | None = 3, **change: Any) -> dict[str, Any]:
    """A small dataset in Keras's layout: 5 training and 3 test images of 3 classes."""
    rng = np.random.default_rng(0)
    shape = (side, side) if channels is None else (side, side, channels)
    made = {
        "x_train": rng.integers(0, 256, (5, *shape), dtype=np.uint8),
        "y_train": np.array([0, 1, 2, 0, 1], dtype=np.uint8),
        "x_test": rng.integers(0, 256, (3, *shape), dtype=np.uint8),
        "y_test": np.array([2, 1, 0]),
    }
    return {key: value for key, value in (made | change).items() if value is not None}


def written(folder: Path, **change: Any) -> str:
    np.savez(folder / "set.npz", **arrays(**change))
    return str(folder / "set.npz")


def test_digits_are_real_and_split_once_for_all() -> None:
    from sklearn.datasets import load_digits

    dataset = load_dataset(DataConfig())
    assert dataset.images.shape == (1797, 1, 32, 32) and dataset.classes == tuple("0123456789")
    tested = np.bincount(dataset.labels[dataset.train_size :])
    everything = np.bincount(dataset.labels)
    assert len(dataset.labels) - dataset.train_size == 359 and (np.abs(tested - everything / 5) <= 0.5).all()
    assert np.array_equal(dataset.images, digits().images) and np.array_equal(dataset.labels, digits().labels)
    source: Any = load_digits()
    assert np.bincount(source.target).tolist() == everything.tolist()
    # The mean of a 4x4 block is near that of its pixel: sorting images by their mean pairs them with the source.
    means = dataset.images.astype(float).mean(axis=(1, 2, 3))
    assert np.allclose(np.sort(means), np.sort(source.images.mean(axis=(1, 2))) * 255 / 16, atol=3)
    assert dataset.images.min() == 0 and dataset.images.max() == 255


def test_digits_enlarge_bilinearly() -> None:
    """Pixel (i, j) of 32 lies at (i + 0.5) / 4 - 0.5 of 8: four neighbours with weights of eighths."""
    from sklearn.datasets import load_digits

    source: Any = load_digits()
    small = source.images[0]
    weights = np.outer([0.625, 0.375], [0.625, 0.375])  # row 15 lies at 3.375: between rows 3 and 4
    expected = round(float((small[3:5, 3:5] * weights).sum()) * 255 / 16)
    assert any(int(image[0, 15, 15]) == expected for image in digits().images)


@pytest.mark.parametrize("channels", [None, 1, 3])
def test_an_npz_is_read_as_it_is(tmp_path: Path, channels: int | None) -> None:
    made = arrays(channels=channels, classes=np.array(["cat", "dog", "owl"]))
    np.savez_compressed(tmp_path / "set.npz", **made)
    dataset = load_dataset(DataConfig(name=str(tmp_path / "set.npz")))
    assert dataset.name == str(tmp_path / "set.npz") and dataset.classes == ("cat", "dog", "owl")
    assert dataset.images.shape == (8, channels or 1, 6, 6) and dataset.train_size == 5
    assert dataset.labels.tolist() == [0, 1, 2, 0, 1, 2, 1, 0] and dataset.labels.dtype == np.int64
    pixel = made["x_test"][1, 4, 2]
    assert dataset.images[6, :, 4, 2].tolist() == np.atleast_1d(pixel).tolist()


def test_keras_labels_in_a_column_and_no_names(tmp_path: Path) -> None:
    dataset = load_dataset(DataConfig(name=written(tmp_path, y_train=np.array([[0], [1], [2], [0], [1]]))))
    assert dataset.labels[:5].tolist() == [0, 1, 2, 0, 1] and dataset.classes == ("0", "1", "2")


def test_large_images_are_resized_with_antialiasing(tmp_path: Path) -> None:
    """64 to 32: a triangle of weights 1, 3, 3, 1 (eighths) per side, so one bright pixel spreads without aliasing."""
    images = np.zeros((1, 1, 64, 64), dtype=np.uint8)
    images[0, 0, 20, 21] = 240
    small = fit_images(images, 32)[0, 0]
    side = np.array([1, 3]) / 8  # pixel 20 is inner (3/8) of output 10 and outer (1/8) of output 9; 21 of 10 and 11
    assert small.shape == (32, 32)
    assert small[10, 10] == round(240 * side[1] * side[1]) and small[9, 11] == round(240 * side[0] * side[0])
    assert abs(int(small.sum()) - 240 / 4) <= 2
    assert load_dataset(DataConfig(name=written(tmp_path, side=48))).images.shape == (8, 3, 32, 32)


def _text(path: Path) -> None:
    path.write_text("not an archive")


def _nothing(path: Path) -> None:
    path.touch()


def _cut_short(path: Path) -> None:
    np.savez(path, **arrays())
    path.write_bytes(path.read_bytes()[:700])


def _flipped(path: Path) -> None:
    np.savez(path, **arrays())
    raw = bytearray(path.read_bytes())
    raw[300] ^= 255
    path.write_bytes(raw)


def _single(path: Path) -> None:
    with open(path, "wb") as file:
        np.save(file, np.zeros(3))


@pytest.mark.parametrize("damage", [_text, _nothing, _cut_short, _flipped, _single])
def test_what_is_no_archive_is_refused(tmp_path: Path, damage: Callable[[Path], None]) -> None:
    damage(tmp_path / "set.npz")
    with refuses("data.name", tmp_path / "set.npz"):
        load_dataset(DataConfig(str(tmp_path / "set.npz")))


def test_a_known_name_is_taken_from_the_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    np.savez(tmp_path / "mnist.npz", **arrays(28, None))
    monkeypatch.setenv("HOME", str(tmp_path.parent))
    monkeypatch.chdir(tmp_path.parent)
    for root in (str(tmp_path), tmp_path.name, f"~/{tmp_path.name}"):
        dataset = load_dataset(DataConfig(name="mnist", root=root))
        assert dataset.name == "mnist" and dataset.images.shape == (8, 1, 28, 28)
    (tmp_path / "cifar10.npz").write_text("hello")
    with refuses("data.name", "cifar10.npz"):
        load_dataset(DataConfig("cifar10", str(tmp_path)))


def test_without_a_root_the_cache_folder_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert find_dataset_cache() == tmp_path / "semcom"
    (tmp_path / "semcom").mkdir()
    np.savez(tmp_path / "semcom" / "cifar10.npz", **arrays(32))
    assert load_dataset(DataConfig(name="cifar10")).images.shape == (8, 3, 32, 32)
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert find_dataset_cache() == tmp_path / ".cache" / "semcom"


class _Torchvision:
    """Stands for a dataset class of torchvision: prints, and has the data of one part."""

    classes = ["0 - zero", "1 - one"]

    def __init__(self, root: Path, train: bool, download: bool = False) -> None:
        print("Downloading")
        self.data = np.full((4 if train else 2, 28, 28), 9, dtype=np.uint8)
        self.targets = [0, 1, 0, 1] if train else [1, 0]


def test_torchvision_has_what_the_root_has_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("torchvision.datasets.MNIST", _Torchvision)
    dataset = load_dataset(DataConfig(name="mnist", root=str(tmp_path)))
    assert dataset.images.shape == (6, 1, 28, 28) and dataset.labels.tolist() == [0, 1, 0, 1, 1, 0]
    assert dataset.classes == ("0", "1") and dataset.train_size == 4
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("name", ["cifar10", "cifar100", "mnist", "fashion-mnist", "emnist", "svhn"])
def test_no_file_and_no_network_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    def unreachable(*args: Any, **kwargs: Any) -> None:
        raise OSError("no\nnetwork")

    monkeypatch.setattr("urllib.request.urlopen", unreachable)
    with refuses("data.name", name, f"not in {tmp_path}", "no network", f"put {name}.npz", "data.root"):
        load_dataset(DataConfig(name, str(tmp_path)))


def _folder(root: Path) -> Path:
    """An image folder of two classes with one plain-coloured image of 50 x 20 in each."""
    for part, level in (("train", 40), ("test", 200)):
        for label, name in enumerate(("ant", "bee")):
            (root / part / name).mkdir(parents=True)
            Image.new("RGB", (50, 20), (level, label, 7)).save(root / part / name / "one.png")
    return root


def test_an_image_folder_is_read(tmp_path: Path) -> None:
    dataset = load_dataset(DataConfig(name=str(_folder(tmp_path))))
    assert dataset.classes == ("ant", "bee") and dataset.train_size == 2 and dataset.labels.tolist() == [0, 1, 0, 1]
    expected = np.array([[40, 0, 7], [40, 1, 7], [200, 0, 7], [200, 1, 7]], dtype=np.uint8)
    assert np.array_equal(dataset.images[:, :, 9:22], np.broadcast_to(expected[:, :, None, None], (4, 3, 13, 32)))
    assert not dataset.images[:, :, :9].any() and not dataset.images[:, :, 22:].any()


def test_a_damaged_image_folder_is_refused(tmp_path: Path) -> None:
    root = _folder(tmp_path / "set")
    (root / "test" / "bee" / "one.png").write_bytes(b"\x89PNG broken")
    with refuses("data.name", "one.png"):
        load_dataset(DataConfig(str(root)))
    (root / "test" / "bee" / "one.png").unlink()
    with refuses("data.name", "test/bee/"):
        load_dataset(DataConfig(str(root)))
    (root / "test" / "bee").rmdir()
    with refuses("data.name", "different classes"):
        load_dataset(DataConfig(str(root)))
    with refuses("data.name", "test/"):
        (tmp_path / "half" / "train").mkdir(parents=True)
        read_folder(tmp_path / "half")


def test_a_registered_dataset_is_loaded_and_checked(tmp_path: Path, own_names: None) -> None:
    labels = np.array([0, 1, 0], dtype=np.int64)

    @DATASETS.register("three-squares")
    def three_squares(root: str | None) -> Dataset:
        return Dataset("three-squares", np.zeros((3, 1, 8, 8), np.uint8), labels, 2, ("a", "b"))

    DATASETS.register("no-dataset")(lambda root: [1, 2])  # type: ignore[arg-type]
    assert load_dataset(DataConfig(name="three-squares")).train_size == 2
    with refuses("data.name", "no-dataset", "list"):
        load_dataset(DataConfig(name="no-dataset"))
    for change, message in (
        ({"train_size": 3}, "3 of 3"),
        ({"labels": labels[:2]}, "(2,)"),
        ({"images": np.zeros((3, 1, 0, 40), np.uint8)}, "(0, 40)"),
        ({"images": np.zeros((3, 8, 8), np.uint8)}, "[N, C, H, W]"),
        ({"images": np.zeros((3, 1, 8, 8))}, "float64, not uint8"),
    ):
        good: Any = {
            "images": np.zeros((3, 1, 8, 8), np.uint8),
            "labels": labels,
            "train_size": 2,
            "classes": ("a", "b"),
        }
        with refuses("data.name", "mine", message):
            Dataset("mine", **(good | change))


@pytest.mark.skipif(ROOT is None, reason="SEMCOM_DATA names no folder with cifar10.npz and mnist.npz")
def test_real_cifar10() -> None:
    dataset = load_dataset(DataConfig(name="cifar10", root=ROOT))
    assert dataset.images.shape == (60_000, 3, 32, 32) and dataset.train_size == 50_000
    assert np.bincount(dataset.labels[:50_000]).tolist() == [5000] * 10
    assert np.bincount(dataset.labels[50_000:]).tolist() == [1000] * 10
    assert dataset.classes[:3] == ("airplane", "automobile", "bird")
    means = dataset.images[:50_000].mean(axis=(0, 2, 3)) / 255
    assert np.allclose(means, [0.4914, 0.4822, 0.4465], atol=1e-4)  # known of its training images


@pytest.mark.skipif(ROOT is None, reason="SEMCOM_DATA names no folder with cifar10.npz and mnist.npz")
def test_real_mnist() -> None:
    """Both parts together, as copies of MNIST are about that differ in which images are for testing."""
    dataset = load_dataset(DataConfig(name="mnist", root=ROOT))
    assert dataset.images.shape == (70_000, 1, 28, 28) and dataset.train_size == 60_000
    assert dataset.classes == tuple("0123456789")
    assert np.bincount(dataset.labels).tolist() == [6903, 7877, 6990, 7141, 6824, 6313, 6876, 7293, 6825, 6958]
    # 0.13066 of the 60,000 original training images, 0.13251 of the 10,000 test images
    assert dataset.images.mean() / 255 == pytest.approx((6 * 0.13066 + 0.13251) / 7, abs=2e-5)


# Files that promise too much -----------------------------------------------------------------------------------------


def member(array: Any = None, shape: tuple[int, ...] = (), kind: str = "|u1", there: int = 100) -> bytes:
    """An array as an .npz holds it, or a header of a shape and type with so many bytes behind it."""
    file = io.BytesIO()
    if array is not None:
        np.save(file, array)
        return file.getvalue()
    header = {"descr": kind, "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(file, header)
    return file.getvalue() + bytes(there)


def packed(path: Path, **members: bytes) -> str:
    """Write an .npz from hand-made members, and take the other members from `arrays`."""
    whole = members if "train_0" in members else {name: member(array) for name, array in arrays().items()} | members
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in whole.items():
            archive.writestr(f"{name}.npy", content)
    return str(path)


DEEP = b"{'descr': " + b"[" * 5000 + b", }"
PROMISES: list[tuple[dict[str, bytes], str]] = [
    ({"x_train": member(shape=(10**15, 32, 32, 3))}, "x_train.npy promises 3072000000000000000 bytes and has 228"),
    ({"x_train": member(shape=(10**40, 32, 32, 3))}, "x_train.npy promises 3072"),
    ({"x_train": member(shape=(10**6, 32, 32, 3))}, "x_train.npy promises 3072000000 bytes and has 228"),
    ({"y_train": member(shape=(10**15,), kind="<i8")}, "y_train.npy promises 8000000000000000 bytes and has 228"),
    ({"classes": member(shape=(2,), kind="<U500000000")}, "classes.npy promises 4000000000 bytes and has 228"),
    ({"x_train": member(shape=(-5, 8, 8))}, "negative dimensions"),
    ({"x_train": member(shape=(10**40, 0, 3), there=0)}, ""),
    ({"x_train": b"\x93NUMPY\x01\x00" + struct.pack("<H", len(DEEP)) + DEEP}, "its header cannot be read: "),
]


@pytest.mark.parametrize(("members", "message"), PROMISES)
def test_a_header_that_promises_too_much_is_refused(tmp_path: Path, members: dict[str, bytes], message: str) -> None:
    tracemalloc.start()
    with refuses("data.name", message):
        load_dataset(DataConfig(packed(tmp_path / "set.npz", **members)))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 20 << 20, "what is promised was allocated"


def test_a_split_that_promises_too_much_is_refused(tmp_path: Path) -> None:
    one, huge = member(np.array([1])), member(shape=(10**15,), kind="<i8")
    ten = Dataset("ten", np.zeros((10, 1, 4, 4), np.uint8), np.zeros(10, np.int64), 8, ("a",))
    path = packed(tmp_path / "split.npz", train_0=huge, test_0=one)
    with refuses("partition.path", "train_0.npy promises 8000"):
        read_split(path, 1, ten)
    path = packed(tmp_path / "split.npz", train_0=member(np.array([0])), test_0=one, notes=huge)
    assert [len(lists[0]) for lists in read_split(path, 1, ten)] == [1, 1, 0], "what is not needed is not read"


def test_a_flipped_bit_that_makes_an_array_shorter_is_found(tmp_path: Path) -> None:
    """The header says (1000,) where (1200,) was: all read in full, but not the whole member with its checksum."""
    whole = member(np.arange(1200))
    flipped = whole.replace(b"(1200,)", b"(1000,)")
    path = packed(tmp_path / "split.npz", train_0=flipped, test_0=member(np.array([1300])))
    data = Dataset("many", np.zeros((1400, 1, 4, 4), np.uint8), np.zeros(1400, np.int64), 1200, ("a",))
    with refuses("partition.path", "train_0.npy promises 8000"):
        read_split(path, 1, data)


def test_a_pipe_is_no_archive(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "set.npz")
    with refuses("data.name", tmp_path / "set.npz"):
        load_dataset(DataConfig(str(tmp_path / "set.npz")))
