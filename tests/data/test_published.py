"""The published datasets, from files in torchvision's own layout and from CINIC-10's folder."""

from __future__ import annotations

import gzip
import hashlib
import pickle
import struct
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from torchvision.datasets import MNIST

from semcom.config import DataConfig
from semcom.data.dataset import Dataset
from semcom.data.load import load_dataset
from semcom.data.registry import DATASETS
from semcom.data.sources import PUBLISHED, is_dataset_cached
from tests.refusals import refuses

RNG = np.random.default_rng(0)
COLOUR = RNG.integers(0, 256, (5, 32, 32, 3), dtype=np.uint8)
GREY = RNG.integers(0, 256, (5, 28, 28), dtype=np.uint8)
"""Three training and two test images, upright, `[N, H, W, C]` and `[N, H, W]`."""


@pytest.fixture(autouse=True)
def no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    """Block downloads, and let torchvision accept the files as the real ones."""

    def unreachable(*args: object, **kwargs: object) -> None:
        raise OSError("no network")

    monkeypatch.setattr("urllib.request.urlopen", unreachable)
    for module in ("cifar", "svhn", "utils"):
        monkeypatch.setattr(
            f"torchvision.datasets.{module}.check_integrity", lambda path, md5=None: Path(path).is_file()
        )


def idx(path: Path, values: np.ndarray) -> None:
    """Write the format of MNIST's files: types and sizes in big-endian order, then the bytes."""
    path.parent.mkdir(parents=True, exist_ok=True)
    header = struct.pack(f">BBBB{values.ndim}I", 0, 0, 8, values.ndim, *values.shape)
    path.write_bytes(header + values.astype(np.uint8).tobytes())


def write_mnist(root: Path, folder: str = "MNIST") -> Path:
    """Write MNIST's four files with three training and two test images, and return their folder."""
    for part, own in (("train", slice(0, 3)), ("t10k", slice(3, 5))):
        idx(root / folder / "raw" / f"{part}-images-idx3-ubyte", GREY[own])
        idx(root / folder / "raw" / f"{part}-labels-idx1-ubyte", np.array([9, 0, 1, 2, 1])[own])
    return root / folder / "raw"


def found(name: str, root: Path) -> Dataset:
    dataset = load_dataset(DataConfig(name, str(root)))
    assert dataset.name == name and dataset.train_size == 3 and dataset.images.flags.c_contiguous
    return dataset


@pytest.mark.parametrize(("name", "folder"), [("mnist", "MNIST"), ("fashion-mnist", "FashionMNIST")])
def test_mnist_and_what_looks_like_it(name: str, folder: str, tmp_path: Path) -> None:
    write_mnist(tmp_path, folder)
    dataset = found(name, tmp_path)
    assert np.array_equal(dataset.images, GREY[:, None]) and dataset.labels.tolist() == [9, 0, 1, 2, 1]
    assert dataset.classes[0] == {"mnist": "0", "fashion-mnist": "T-shirt/top"}[name] and len(dataset.classes) == 10


def test_emnist_comes_upright(tmp_path: Path) -> None:
    """In its files rows are columns."""
    labels = np.array([46, 0, 10, 36, 1])
    for part, own in (("train", slice(0, 3)), ("test", slice(3, 5))):
        idx(tmp_path / "EMNIST" / "raw" / f"emnist-balanced-{part}-images-idx3-ubyte", GREY[own].swapaxes(1, 2))
        idx(tmp_path / "EMNIST" / "raw" / f"emnist-balanced-{part}-labels-idx1-ubyte", labels[own])
    dataset = found("emnist", tmp_path)
    assert np.array_equal(dataset.images, GREY[:, None]) and dataset.labels.tolist() == labels.tolist()
    assert len(dataset.classes) == 47 and [dataset.classes[c] for c in (0, 10, 36, 46)] == ["0", "A", "a", "t"]


def test_cifar100_has_its_fine_labels(tmp_path: Path) -> None:
    folder, fine = tmp_path / "cifar-100-python", [99, 0, 7, 98, 7]
    folder.mkdir()
    for part, own in (("train", slice(0, 3)), ("test", slice(3, 5))):
        rows = np.moveaxis(COLOUR[own], -1, 1).reshape(-1, 3072)
        held = {"data": rows, "fine_labels": fine[own], "coarse_labels": [1, 2, 3][own]}
        (folder / part).write_bytes(pickle.dumps(held))
    names = {"fine_label_names": [f"thing {c}" for c in range(100)], "coarse_label_names": ["things"] * 20}
    (folder / "meta").write_bytes(pickle.dumps(names))
    dataset = found("cifar100", tmp_path)
    assert np.array_equal(dataset.images, np.moveaxis(COLOUR, -1, 1)) and dataset.labels.tolist() == fine
    assert dataset.classes[99] == "thing 99"


def test_a_ten_of_svhn_is_a_zero(tmp_path: Path) -> None:
    from scipy.io import savemat

    labels = np.array([10, 1, 9, 10, 4])
    for part, own in (("train", slice(0, 3)), ("test", slice(3, 5))):
        savemat(tmp_path / f"{part}_32x32.mat", {"X": np.moveaxis(COLOUR[own], 0, -1), "y": labels[own, None]})
    dataset = found("svhn", tmp_path)
    assert np.array_equal(dataset.images, np.moveaxis(COLOUR, -1, 1)) and dataset.labels.tolist() == [0, 1, 9, 0, 4]
    assert dataset.classes == tuple("0123456789")


ELSEWHERE = ("digits", "noisy", "huggingface")
FILES = [name for name in DATASETS.names() if DATASETS.ships(name) and name not in ELSEWHERE]
"""Datasets that are read from files of their own."""


@pytest.mark.parametrize("name", FILES)
def test_an_archive_in_the_root_comes_first(name: str, tmp_path: Path) -> None:
    y = np.arange(5) % 2
    np.savez(tmp_path / f"{name}.npz", x_train=COLOUR[:3], y_train=y[:3], x_test=COLOUR[3:], y_test=y[3:])
    assert np.array_equal(found(name, tmp_path).images, np.moveaxis(COLOUR, -1, 1))


@pytest.mark.parametrize("folder", ["cinic10", "CINIC-10"])
def test_cinic10_trains_on_two_of_its_parts(folder: str, tmp_path: Path) -> None:
    for level, (part, name) in enumerate(
        (part, name) for part in ("train", "valid", "test") for name in ("cat", "dog")
    ):
        (tmp_path / folder / part / name).mkdir(parents=True)
        Image.new("RGB", (32, 32), (level, 0, 0)).save(tmp_path / folder / part / name / "cifar10-train-1.png")
    dataset = load_dataset(DataConfig("cinic10", str(tmp_path)))
    assert (dataset.name, dataset.train_size, dataset.classes) == ("cinic10", 4, ("cat", "dog"))
    assert dataset.images[:, 0, 5, 5].tolist() == [0, 1, 2, 3, 4, 5] and dataset.labels.tolist() == [0, 1] * 3
    (tmp_path / folder / "valid" / "dog" / "cifar10-train-1.png").unlink()
    (tmp_path / folder / "valid" / "dog").rmdir()
    with refuses("data.name", "train/, valid/ and test/"):
        load_dataset(DataConfig("cinic10", str(tmp_path)))


# Files that are cut short ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("left", [0, 3, 9, 15, 500, -1])
@pytest.mark.parametrize("name", ["train-images-idx3-ubyte", "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"])
def test_a_file_of_mnist_that_is_cut_short_is_named(name: str, left: int, tmp_path: Path) -> None:
    for dataset, folder in (("mnist", "MNIST"), ("fashion-mnist", "FashionMNIST")):
        file = write_mnist(tmp_path, folder) / name
        file.write_bytes(file.read_bytes()[:left] if left < file.stat().st_size else b"")
        with refuses("data.name", f"{file} is cut short or damaged; remove it"):
            load_dataset(DataConfig(dataset, str(tmp_path)))


@pytest.mark.parametrize("name", ["train-images-idx3-ubyte", "t10k-labels-idx1-ubyte"])
def test_a_wrong_byte_at_the_head_of_a_file_of_mnist_is_named(name: str, tmp_path: Path) -> None:
    """Of the four that begin it any other is wrong, of the sides any that makes another number of bytes."""
    file = write_mnist(tmp_path) / name
    whole = file.read_bytes()
    for at in range(8):
        for value in {0, 1, 3, 8, 9, 13, 127, 255} - {whole[at]}:
            file.write_bytes(whole[:at] + bytes([value]) + whole[at + 1 :])
            with refuses("data.name", f"{file} is cut short or damaged; remove it"):
                load_dataset(DataConfig("mnist", str(tmp_path)))


def test_a_user_without_a_home_is_told_what_to_give(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A container's user without an account: there is neither HOME nor an entry in the user database."""

    def unknown(uid: int) -> None:
        raise KeyError(uid)

    monkeypatch.delenv("HOME", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr("pwd.getpwuid", unknown)
    for name in ("mnist", "svhn", "cinic10"):
        with refuses("data.root", "no home folder"):
            load_dataset(DataConfig(name))
        assert not is_dataset_cached(name)
    assert is_dataset_cached("digits") and len(load_dataset(DataConfig("digits")).labels) == 1797
    write_mnist(tmp_path / "semcom")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert is_dataset_cached("mnist") and len(load_dataset(DataConfig("mnist")).labels) == 5


ARCHIVES = {
    "cifar10": "cifar-10-python.tar.gz",
    "cifar100": "cifar-100-python/train",
    "svhn": "test_32x32.mat",
    "emnist": "EMNIST/raw/gzip.zip",
    "mnist": "MNIST/raw/t10k-labels-idx1-ubyte.gz",
}


@pytest.mark.parametrize(("name", "file"), ARCHIVES.items())
def test_a_damaged_download_is_named(name: str, file: str, tmp_path: Path) -> None:
    (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / file).write_bytes(b"half of it")
    with refuses("data.name", f"{tmp_path / file} is cut short or damaged; remove it"):
        load_dataset(DataConfig(name, str(tmp_path)))
    (tmp_path / file).unlink()
    with refuses("data.name", f"is not in {tmp_path} and could not be downloaded ("):
        load_dataset(DataConfig(name, str(tmp_path)))
    assert not [path for path in tmp_path.rglob("*.part*")]


# Downloads ------------------------------------------------------------------------------------------------------------


class Site:
    """Stands for the network: hands out MNIST's files slowly, counts the requests, and breaks off `dies` times."""

    def __init__(self, root: Path) -> None:
        self.root, self.asked, self.dies, self.seen = root, 0, 0, list[Path]()

    def download(self, dataset: MNIST) -> None:
        if dataset._check_exists():
            return
        self.asked += 1
        raw = write_mnist(Path(dataset.root))
        whole = (raw / "t10k-images-idx3-ubyte").read_bytes()
        (raw / "t10k-images-idx3-ubyte").write_bytes(whole[:500])
        time.sleep(0.3)
        self.seen += [path for path in self.root.rglob("*-ubyte") if ".part" not in str(path)]
        if self.asked <= self.dies:
            raise OSError("the line went dead")
        (raw / "t10k-images-idx3-ubyte").write_bytes(whole)


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    made = Site(tmp_path)
    monkeypatch.setattr(MNIST, "download", lambda dataset: made.download(dataset))
    return made


def test_those_that_download_at_once_wait_for_one(site: Site, tmp_path: Path) -> None:
    with ThreadPoolExecutor(4) as pool:
        datasets = list(pool.map(lambda _: found("mnist", tmp_path), range(4)))
    assert all(np.array_equal(dataset.images, GREY[:, None]) for dataset in datasets)
    assert site.asked == 1 and not site.seen, "nothing lies there in part"
    assert {path.name for path in tmp_path.iterdir()} == {"MNIST", ".mnist.lock"}


def test_a_download_that_dies_leaves_nothing(site: Site, tmp_path: Path) -> None:
    site.dies = 1
    with refuses("data.name", "could not be downloaded (the line went dead)"):
        load_dataset(DataConfig("mnist", str(tmp_path)))
    assert not list(tmp_path.rglob("*ubyte"))
    (tmp_path / ".mnist.part" / "MNIST").mkdir(parents=True)  # as kill -9 leaves it
    found("mnist", tmp_path)
    assert site.asked == 2 and not (tmp_path / ".mnist.part").exists()


def test_what_is_missing_of_a_folder_is_downloaded(site: Site, tmp_path: Path) -> None:
    (write_mnist(tmp_path) / "t10k-images-idx3-ubyte").unlink()
    found("mnist", tmp_path)
    assert site.asked == 1


def test_archives_that_lie_there_are_unpacked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    raw = write_mnist(tmp_path)
    digests = []
    for file in sorted(raw.iterdir()):
        packed = gzip.compress(file.read_bytes())
        file.with_name(f"{file.name}.gz").write_bytes(packed)
        digests.append((f"{file.name}.gz", hashlib.md5(packed).hexdigest()))
        file.unlink()
    monkeypatch.setattr(MNIST, "resources", digests)
    found("mnist", tmp_path)
    assert len(list(raw.iterdir())) == 8 and not any(path.is_symlink() for path in raw.iterdir())


def test_a_dataset_is_cached_where_one_of_its_files_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    cache = tmp_path / "semcom"
    names = (*PUBLISHED, "cinic10")

    def found() -> list[str]:
        return [name for name in names if is_dataset_cached(name)]

    assert found() == [] and is_dataset_cached("digits") and is_dataset_cached("of/a/user.npz")
    (cache / "CINIC-10").mkdir(parents=True)
    assert found() == ["cinic10"]
    write_mnist(cache)
    assert found() == ["mnist", "cinic10"]
    (cache / "svhn.npz").touch()
    assert found() == ["mnist", "svhn", "cinic10"]


def test_the_pattern_of_a_dataset_finds_its_own_files_alone() -> None:
    files = {name: list(dataset.list_files(Path())) for name, dataset in PUBLISHED.items()}
    for dataset in PUBLISHED.values():
        assert {name for name, own in files.items() if any(path.match(dataset.files) for path in own)} == {dataset.name}
