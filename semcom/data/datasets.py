"""Datasets: every image of one as a single uint8 array, training images first, then the test images.

A dataset is a name of `semcom.registry.DATASETS`, or the path of an .npz file in Keras's layout or of an
image folder. Legend: N images, C channels, H x W pixels.
"""

from __future__ import annotations

import contextlib
import io
import os
import socket
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from semcom.config import ConfigError, DataConfig
from semcom.data.archive import DAMAGED, one_line, read_archive
from semcom.registry import DATASETS

SIDE = 32
"""Height and width that every model takes."""

Bytes = npt.NDArray[np.uint8]
Indices = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Dataset:
    """Labelled images in memory.

    Raises ConfigError if the arrays do not fit each other.
    """

    name: str
    """What the user called it."""
    images: Bytes
    """uint8 `[N, C, H, W]`, 0..255, H and W at most 32; training images first, then test images."""
    labels: Indices
    """int64 `[N]`, 0 .. len(classes) - 1."""
    train_size: int
    """How many of the images are training images."""
    classes: tuple[str, ...]
    """Names of the classes."""

    def __post_init__(self) -> None:
        count, sides = len(self.images), self.images.shape[2:]
        _require(self.images.dtype == np.uint8, self.name, f"images are {self.images.dtype}, not uint8")
        _require(self.images.ndim == 4, self.name, f"images have the shape {self.images.shape}, not [N, C, H, W]")
        _require(min(sides) > 0 and max(sides) <= SIDE, self.name, f"images are {sides}, not 1 to {SIDE} pixels a side")
        _require(self.labels.shape == (count,), self.name, f"{count} images, but labels of shape {self.labels.shape}")
        _require(self.labels.dtype == np.int64, self.name, f"labels are {self.labels.dtype}, not int64")
        _require(0 < self.train_size < count, self.name, f"{self.train_size} of {count} images are training images")
        low, high = int(self.labels.min()), int(self.labels.max())
        _require(low >= 0, self.name, f"label {low} is negative; labels are 0 to {len(self.classes) - 1}")
        _require(high < len(self.classes), self.name, f"label {high}, but there are {len(self.classes)} classes")


def load(config: DataConfig) -> Dataset:
    """The dataset of a run.

    Raises ConfigError for a name that is neither known nor a path, a root that is missing, and files that are
    missing or damaged.
    """
    if config.root is not None and not Path(config.root).expanduser().is_dir():
        raise ConfigError(f"data.root: {config.root!r} is no folder; name one that exists")
    if config.name in DATASETS:
        dataset = DATASETS.get(config.name)(config.root and str(Path(config.root).expanduser()))
        if not isinstance(dataset, Dataset):
            raise ConfigError(
                f"data.name: the function of {config.name!r} gives a {type(dataset).__name__}, not a Dataset"
            )
        return dataset
    path = Path(config.name).expanduser()
    if path.is_dir():
        return read_folder(path)
    if path.is_file() or path.suffix == ".npz":
        return read_npz(path)
    raise ConfigError(f"data.name: {DATASETS.unknown(config.name)}, or the path of an .npz file or of an image folder")


def digits(root: str | None = None) -> Dataset:
    """The 1,797 handwritten 8x8 digits that ship with scikit-learn, enlarged to 32x32 (bilinear); `root` is not used.

    A fixed fifth of each class is for testing (359 images), the same for every seed of a run.
    """
    del root
    import torch
    from sklearn.datasets import load_digits

    source: Any = load_digits()
    small = torch.from_numpy(source.images).unsqueeze(1) * (255 / 16)
    large = torch.nn.functional.interpolate(small, size=(SIDE, SIDE), mode="bilinear").round().to(torch.uint8).numpy()
    labels = source.target.astype(np.int64)
    order = np.random.default_rng(0).permutation(len(labels))
    members = [order[labels[order] == c] for c in range(10)]
    test = np.sort(np.concatenate([m[: round(len(m) / 5)] for m in members]))
    train = np.setdiff1d(order, test)
    order = np.concatenate([train, test])
    return Dataset("digits", large[order], labels[order], len(train), tuple("0123456789"))


def cifar10(root: str | None = None) -> Dataset:
    """CIFAR-10: `cifar10.npz` in the root, else torchvision's (downloaded where it is not there). 3 x 32 x 32."""
    return _published("cifar10", "CIFAR10", root)


def mnist(root: str | None = None) -> Dataset:
    """MNIST: `mnist.npz` in the root, else torchvision's (downloaded where it is not there). 1 x 28 x 28."""
    return _published("mnist", "MNIST", root)


def cache_folder() -> Path:
    """Where datasets lie if no root is given: `semcom` in the user's cache folder."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "semcom"


def read_npz(path: str | Path, name: str | None = None) -> Dataset:
    """Reads x_train, y_train, x_test, y_test and, if it is there, classes (names) from an .npz archive.

    Images are uint8 `[N, H, W]` or `[N, H, W, C]` with C 1 to 4; a side longer than 32 is resized to 32 with
    antialiasing. Labels are whole numbers `[N]` or `[N, 1]`.

    Raises ConfigError if the file is missing, damaged, or not of that layout.
    """
    path, name = Path(path), name or str(path)
    arrays = _read_arrays(path, name)
    parts = [_check_part(name, part, arrays[f"x_{part}"], arrays[f"y_{part}"]) for part in ("train", "test")]
    (x_train, y_train), (x_test, y_test) = parts
    agree = x_train.shape[1:] == x_test.shape[1:]
    _require(agree, name, f"x_train has images of {x_train.shape[1:]}, x_test of {x_test.shape[1:]}")
    labels = np.concatenate([y_train, y_test])
    images = shrink(np.concatenate([x_train, x_test]))
    top = int(labels.max()) + 1
    _require(top <= len(labels), name, f"label {top - 1} with only {len(labels)} images; labels are 0 to classes - 1")
    names = arrays.get("classes", np.arange(top)).ravel().tolist()
    return Dataset(name, images, labels, len(y_train), tuple(str(c) for c in names))


def read_folder(path: str | Path) -> Dataset:
    """Reads an image folder: `train/CLASS/*` and `test/CLASS/*`, as torchvision's ImageFolder; RGB, resized to 32x32.

    Raises ConfigError if a folder or file is missing or damaged, or if train and test have different classes.
    """
    from torchvision.datasets import ImageFolder

    path = Path(path)
    for part in ("train", "test"):
        _require((path / part).is_dir(), str(path), f"an image folder has train/ and test/, but {part}/ is missing")
    try:
        train, test = (ImageFolder(str(path / part)) for part in ("train", "test"))
        _require(train.classes == test.classes, str(path), "train/ and test/ hold different classes")
        images = np.stack([_pixels(file) for file, _ in [*train.samples, *test.samples]])
    except (OSError, SyntaxError) as error:
        raise ConfigError(f"data.name: {str(path)!r}: {one_line(error)}") from None
    labels = np.array([*train.targets, *test.targets], dtype=np.int64)
    return Dataset(str(path), images, labels, len(train.targets), tuple(train.classes))


def shrink(images: Bytes) -> Bytes:
    """Turns images `[N, H, W, C]` into `[N, C, H, W]`; sides longer than 32 are resized to 32, antialiased."""
    import torch

    images = np.moveaxis(images, -1, 1)
    size = [min(side, SIDE) for side in images.shape[2:]]
    if size == list(images.shape[2:]):
        return np.ascontiguousarray(images)
    small = np.empty((*images.shape[:2], *size), dtype=np.uint8)
    for start in range(0, len(images), 1000):
        part = torch.from_numpy(images[start : start + 1000].astype(np.float32))
        part = torch.nn.functional.interpolate(part, size=size, mode="bilinear", antialias=True)
        small[start : start + 1000] = part.round().clamp(0, 255).to(torch.uint8).numpy()
    return small


def _published(name: str, source: str, root: str | None) -> Dataset:
    """A dataset that torchvision can download, or its .npz file in the root."""
    folder = cache_folder() if root is None else Path(root).expanduser()
    file = folder / f"{name}.npz"
    if file.is_file():
        dataset = read_npz(file, f"{name} in {file}")
        return Dataset(name, dataset.images, dataset.labels, dataset.train_size, dataset.classes)
    train, test = _from_torchvision(name, source, folder)
    images = np.concatenate([np.asarray(train.data), np.asarray(test.data)])
    images = images[..., None] if images.ndim == 3 else images
    labels = np.concatenate([np.asarray(train.targets), np.asarray(test.targets)]).astype(np.int64)
    classes = tuple(c.split(" - ")[0] for c in train.classes)
    return Dataset(name, shrink(images), labels, len(train.targets), classes)


def _from_torchvision(name: str, source: str, folder: Path) -> tuple[Any, Any]:
    """torchvision's train and test set, from the folder or else downloaded into it."""
    import torchvision.datasets

    make: Callable[..., Any] = getattr(torchvision.datasets, source)
    try:
        with _quiet_download():
            return make(folder, train=True, download=True), make(folder, train=False)
    except DAMAGED as error:
        raise ConfigError(
            f"data.name: {name!r} is not in {folder} and could not be downloaded ({one_line(error)}); "
            f"put {name}.npz (x_train, y_train, x_test, y_test) there, or name a folder that holds "
            f"{name}.npz or torchvision's files with data.root"
        ) from None


@contextlib.contextmanager
def _quiet_download() -> Iterator[None]:
    """Keeps what torchvision prints off stdout and lets a dead connection end."""
    before = socket.getdefaulttimeout()
    socket.setdefaulttimeout(30)
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            yield
    finally:
        socket.setdefaulttimeout(before)


def _read_arrays(path: Path, name: str) -> dict[str, npt.NDArray[Any]]:
    """The arrays of an .npz archive that make a dataset."""
    needed = ("x_train", "y_train", "x_test", "y_test")
    arrays = read_archive(path, f"data.name: {name!r}", (*needed, "classes"))
    missing = [key for key in needed if key not in arrays]
    _require(not missing, name, f"it has no {', '.join(missing)}; needed are {', '.join(needed)}")
    return arrays


def _check_part(name: str, part: str, x: npt.NDArray[Any], y: npt.NDArray[Any]) -> tuple[Bytes, Indices]:
    """Images `[N, H, W, C]` and labels `[N]` of one part, checked."""
    _require(x.dtype == np.uint8, name, f"x_{part} is {x.dtype}; images are uint8, 0 to 255")
    shape = f"x_{part} has the shape {x.shape}; wanted is [N, H, W] or [N, H, W, C] with C 1 to 4"
    _require(x.ndim == 3 or (x.ndim == 4 and 1 <= x.shape[3] <= 4), name, shape)
    _require(min(x.shape) > 0, name, f"x_{part} of shape {x.shape} is empty")
    y = y[:, 0] if y.ndim == 2 and y.shape[1] == 1 else y
    _require(
        y.ndim == 1 and y.dtype.kind in "iu", name, f"y_{part} is {y.dtype} {y.shape}; labels are whole numbers [N]"
    )
    _require(len(x) == len(y), name, f"x_{part} has {len(x)} images, y_{part} {len(y)} labels")
    _require(int(y.min()) >= 0, name, f"y_{part} holds the label {int(y.min())}; labels start at 0")
    return (x if x.ndim == 4 else x[..., None]), y.astype(np.int64)


def _pixels(file: str) -> Bytes:
    """One image file as RGB `[3, 32, 32]`."""
    from PIL import Image

    with Image.open(file) as image:
        resized = image.convert("RGB").resize((SIDE, SIDE), Image.Resampling.BILINEAR)
    return np.moveaxis(np.asarray(resized, dtype=np.uint8), -1, 0)


def _require(holds: bool, name: str, problem: str) -> None:
    """Raises ConfigError about dataset `name` unless `holds`."""
    if not holds:
        raise ConfigError(f"data.name: {name!r}: {problem}")
