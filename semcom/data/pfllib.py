"""The division of a dataset that PFLlib has written, as indices into that dataset.

PFLlib (Zhang et al., "PFLlib: A Beginner-Friendly and Comprehensive Personalized Federated Learning Library and
Benchmark", JMLR 26, 2025) writes the images of each client to `train/K.npz` and `test/K.npz`: under the name `data` a
pickled dictionary of `x`, float `[n, C, H, W]` in [-1, 1] (x / 127.5 - 1 of the bytes), and `y`, classes `[n]`, and
beside them `config.json` with `num_clients`. Its images are those of the dataset's training and test part together.
"""

from __future__ import annotations

import hashlib
import os
from collections import defaultdict, deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from semcom.config import ConfigError
from semcom.data.archive import read_pickled
from semcom.data.dataset import Bytes, Dataset, Indices
from semcom.data.split import Split
from semcom.files import read_json, resolve_file

NAME = "data"
"""Name of the dictionary in a file."""
CLOSE = 0.01
"""Largest distance of a pixel from a whole number of 0 to 255."""


LAYOUT = "as PFLlib divides a dataset: train/0.npz, train/1.npz, ..., test/0.npz, test/1.npz, ... and config.json"
"""Expected layout of a folder."""


def list_pfllib_files(folder: str) -> dict[str, list[Path]]:
    """List the files of each part, `train` and `test`, in the order of the clients.

    Raises ConfigError if the folder, a part, or a client's file is missing.
    """
    path = resolve_file(folder)
    if not os.path.isdir(path):
        what = "is a file" if os.path.exists(path) else "is not there"
        raise ConfigError(f"from-pfllib: {folder!r} {what}; give a folder {LAYOUT}")
    clients = _count_clients(folder, path)
    files = {part: [path / part / f"{client}.npz" for client in range(clients)] for part in ("train", "test")}
    missing = [file for part in files.values() for file in part if not file.is_file()]
    if missing:
        wanted = f"{missing[0].relative_to(path)}; give a folder {LAYOUT}"
        raise ConfigError(f"from-pfllib: {folder!r} divides the data over {clients} clients, but has no {wanted}")
    return files


def measure_pfllib_side(folder: str) -> int:
    """Measure the longer side of the images in a PFLlib folder, in pixels. Raises ConfigError as `read_pfllib` does."""
    images, _ = _read_images(list_pfllib_files(folder)["train"][0])
    return max(images.shape[2:])


def read_pfllib(folder: str, dataset: Dataset) -> Split:
    """Find the images of a dataset that each client of a PFLlib folder has, by their bytes and their classes.

    The dataset's images must have their stored size. Each copy of a repeated image is given out once.

    Raises ConfigError if the folder is damaged or of another layout, or has an image that the dataset does not have.
    """
    search = _Search(dataset)
    lists = {
        part: tuple(search.indices(file, *_read_images(file)) for file in files)
        for part, files in list_pfllib_files(folder).items()
    }
    nothing = tuple(np.empty(0, dtype=np.int64) for _ in lists["train"])
    return Split(lists["train"], lists["test"], nothing)


class _Search:
    """Index of the images in a dataset by their bytes and classes, which gives out each image once."""

    def __init__(self, dataset: Dataset) -> None:
        self.name, self.shape = dataset.name, dataset.images.shape[1:]
        self.left: dict[tuple[bytes, int], deque[int]] = defaultdict(deque)
        for index, key in enumerate(_digest_images(dataset.images, dataset.labels)):
            self.left[key].append(index)

    def indices(self, file: Path, images: Bytes, labels: Indices) -> Indices:
        """Find the places of a file's images, sorted. Raises ConfigError for an image without a free place."""
        if images.shape[1:] != self.shape:
            here, there = ("x".join(map(str, shape)) for shape in (images.shape[1:], self.shape))
            raise ConfigError(f"from-pfllib: {file} has images of {here}, {self.name!r} of {there}")
        found = []
        for number, key in enumerate(_digest_images(images, labels)):
            if not self.left.get(key):
                wanted = f"image {number} of {file} (class {key[1]}) is not in {self.name!r}, or not as often"
                raise ConfigError(f"from-pfllib: {wanted}; give the dataset that it was made of as data.name")
            found.append(self.left[key].popleft())  # an image that occurs twice has two indices
        return np.sort(np.array(found, dtype=np.int64))


def _digest_images(images: Bytes, labels: Indices) -> Iterator[tuple[bytes, int]]:
    """Yield a key of each image: the digest of its bytes, and its class."""
    for image, label in zip(images, labels.tolist(), strict=True):
        yield hashlib.blake2b(image.tobytes(), digest_size=16).digest(), label


def _count_clients(folder: str, path: Path) -> int:
    """Count the clients by the files in `train`, which config.json must confirm if it exists."""
    here = sum(name.endswith(".npz") for name in os.listdir(path / "train")) if (path / "train").is_dir() else 0
    if not here:
        raise ConfigError(f"from-pfllib: {folder!r} has no train/0.npz; give a folder {LAYOUT}")
    try:
        told = read_json(path / "config.json").get("num_clients", here)
    except FileNotFoundError:
        return here
    except (OSError, ValueError, AttributeError):
        raise ConfigError(f"from-pfllib: {path / 'config.json'} cannot be read") from None
    if told != here:
        raise ConfigError(f"from-pfllib: {folder!r} has files of {here} clients, and {told} in its config.json")
    return here


def _read_images(file: Path) -> tuple[Bytes, Indices]:
    """Read images `[n, C, H, W]` and classes `[n]` from a file."""
    blame = f"from-pfllib: {file}"
    arrays = read_pickled(file, blame, NAME)
    if not {"x", "y"} <= arrays.keys():
        raise ConfigError(f"{blame} has no x and y, but {', '.join(arrays) or 'nothing'}")
    x, y = arrays["x"], arrays["y"]
    if x.ndim != 4 or y.dtype.kind not in "iu" or y.shape != (len(x),) or not len(x):
        raise ConfigError(f"{blame} has x {x.shape} and y {y.dtype} {y.shape}, not images [n, C, H, W] and classes [n]")
    return _convert_to_bytes(blame, x), y.astype(np.int64)


def _convert_to_bytes(blame: str, x: npt.NDArray[Any]) -> Bytes:
    """Convert images in [-1, 1] back to the original bytes. Raises ConfigError for other numbers."""
    pixels = (x.astype(np.float64) + 1) * 127.5
    whole = np.rint(pixels)
    if not (np.abs(pixels - whole) < CLOSE).all() or whole.min() < 0 or whole.max() > 255:
        raise ConfigError(f"{blame} has images that are no bytes scaled to [-1, 1], as PFLlib scales them")
    return whole.astype(np.uint8)
