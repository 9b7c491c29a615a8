"""The datasets that semcom knows by name: one that ships with scikit-learn, and those that torchvision downloads."""

from __future__ import annotations

import contextlib
import io
import os
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from semcom.config import ConfigError
from semcom.data.archive import DAMAGED, one_line
from semcom.data.dataset import SIDE, Dataset
from semcom.data.readers import read_npz, shrink


def digits(root: str | None = None) -> Dataset:
    """Load the 1,797 handwritten 8x8 digits of scikit-learn, enlarged to 32x32 (bilinear); `root` is not used.

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
    """Load CIFAR-10: `cifar10.npz` in the root, else torchvision's (downloaded where it is not there). 3 x 32 x 32."""
    return _published("cifar10", "CIFAR10", root)


def mnist(root: str | None = None) -> Dataset:
    """Load MNIST: `mnist.npz` in the root, else torchvision's (downloaded where it is not there). 1 x 28 x 28."""
    return _published("mnist", "MNIST", root)


def cache_folder() -> Path:
    """Return the folder for datasets where no root is given: `semcom` in the user's cache folder."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "semcom"


def _published(name: str, source: str, root: str | None) -> Dataset:
    """Load a dataset that torchvision can download, or its .npz file in the root."""
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
    """Load torchvision's train and test set, from the folder or else downloaded into it."""
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
    """Keep what torchvision prints off stdout, and let a dead connection end."""
    before = socket.getdefaulttimeout()
    socket.setdefaulttimeout(30)
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            yield
    finally:
        socket.setdefaulttimeout(before)
