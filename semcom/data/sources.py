"""The datasets that semcom knows by name: one of scikit-learn's, those that torchvision downloads, and CINIC-10."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import importlib.util
import io
import logging
import math
import os
import shutil
import socket
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from filelock import FileLock

from semcom.config import ConfigError
from semcom.config.errors import shorten_error
from semcom.data.dataset import SIDE, Dataset
from semcom.data.readers import read_folder, read_npz
from semcom.files import open_file, resolve_file

LOG = logging.getLogger(__name__)
ARCHIVES = (".gz", ".zip", ".mat")
"""Ends of the names of files as torchvision downloads them."""
DIGITS = tuple("0123456789")


def digits(root: str | None = None) -> Dataset:
    """scikit-learn's digits: 1,438 training and 359 test images of handwritten digits, 10 classes, 1x32x32.

    They are enlarged from 8x8 (bilinear). A fixed fifth of each class is for testing, the same for every seed of a run.
    They come with scikit-learn, without a download or a folder.
    """
    del root
    images, labels, train = _enlarge_digits()
    return Dataset("digits", images.copy(), labels.copy(), train, DIGITS)


@functools.cache  # small runs, one after another in a process, would spend a good part of their time on it
def _enlarge_digits() -> tuple[np.ndarray, np.ndarray, int]:
    """Enlarge the digits to images `[1797, 1, 32, 32]`, training images first, with labels and the training size."""
    import torch

    values = _read_digits()
    small = torch.from_numpy(values[:, :-1]).reshape(-1, 1, 8, 8) * (255 / 16)
    large = torch.nn.functional.interpolate(small, size=(SIDE, SIDE), mode="bilinear").round().to(torch.uint8).numpy()
    labels = values[:, -1].astype(np.int64)
    order = np.random.default_rng(0).permutation(len(labels))
    members = [order[labels[order] == c] for c in range(10)]
    test = np.sort(np.concatenate([m[: round(len(m) / 5)] for m in members]))
    train = np.setdiff1d(order, test)
    order = np.concatenate([train, test])
    return large[order], labels[order], len(train)


def _read_digits() -> np.ndarray:
    """Read scikit-learn's digits `[1797, 65]`: 64 pixels from 0 to 16, and the label.

    The file is read without scikit-learn, whose import takes longer than a small run.
    """
    package = importlib.util.find_spec("sklearn")
    assert package is not None and package.origin is not None, "scikit-learn is a dependency"
    return np.loadtxt(Path(package.origin).with_name("datasets") / "data" / "digits.csv.gz", delimiter=",")


_PLACES = """\
Looked for in --data.root, a folder, or else in the user's cache folder, ~/.cache/semcom: {name}.npz (x_train, \
y_train, x_test, y_test), or the files that torchvision downloads. What is not there, torchvision downloads into it."""
"""Text for each dataset that torchvision can download."""


class Published:
    """A dataset that torchvision can download: `NAME.npz` in the root, else torchvision's files there.

    Args:
        name: of the dataset.
        source: torchvision's class.
        files: pattern of torchvision's files in the root, which it takes a second to ask torchvision for.
        text: description in `semcom list datasets`: paper, images, classes, channels and size.
        parts: arguments of torchvision's class for the training and for the test images.
        axes: axes of its images: N images, H rows, W columns, C channels.
        labels: attribute of its labels.
    """

    def __init__(
        self,
        name: str,
        source: str,
        files: str,
        text: str,
        parts: Sequence[Mapping[str, Any]] = ({"train": True}, {"train": False}),
        axes: str = "NHW",
        labels: str = "targets",
    ) -> None:
        self.name, self.source, self.files = name, source, files
        self.parts, self.axes, self.labels = parts, axes, labels
        self.__doc__ = f"{text}\n\n{_PLACES.format(name=name)}"

    def __call__(self, root: str | None = None) -> Dataset:
        """Load it from the root, and download missing files. Raises ConfigError that names both ways."""
        folder = _choose_folder(root)
        return _read_archived(self.name, folder) or self._from_torchvision(folder)

    def _from_torchvision(self, folder: Path) -> Dataset:
        train, test = parts = self._parts(folder)
        images = np.concatenate([np.asarray(part.data) for part in parts])
        images = images.transpose([self.axes.index(axis) for axis in "NCHW" if axis in self.axes])
        images = images if "C" in self.axes else images[:, None]
        labels = np.concatenate([np.asarray(getattr(part, self.labels)) for part in parts]).astype(np.int64)
        names = getattr(train, "classes", DIGITS)
        classes = tuple(name.split(" - ")[0] for name in names)
        return Dataset(self.name, np.ascontiguousarray(images), labels, len(labels) - len(test.data), classes)

    def _parts(self, folder: Path) -> list[Any]:
        """Load torchvision's train and test set, from the folder or after a download."""
        with _quieten_download():
            try:
                return self._read(folder)
            except MemoryError:  # says nothing about the files
                raise
            except Exception:  # it is not there, or damaged, where torchvision's readers raise anything
                damaged = [
                    path for path, md5 in self.list_files(folder).items() if path.is_file() and not _is_whole(path, md5)
                ]
            if damaged:
                others = f", and {len(damaged) - 1} more beside it" if damaged[1:] else ""
                remedy = "remove it, and what is missing is downloaded"
                raise ConfigError(f"data.name: {self.name!r}: {damaged[0]}{others} is cut short or damaged; {remedy}")
            try:
                return self._downloaded(folder)
            except Exception as error:
                raise ConfigError(
                    f"data.name: {self.name!r} is not in {folder} and could not be downloaded "
                    f"({shorten_error(error)}); put {self.name}.npz (x_train, y_train, x_test, y_test) there, or name "
                    f"a folder that holds {self.name}.npz or torchvision's files with data.root"
                ) from None

    def _read(self, folder: Path, download: bool = False) -> list[Any]:
        return [self._class(folder, download=download, **part) for part in self.parts]

    def _downloaded(self, folder: Path) -> list[Any]:
        """Download it beside the folder's files, and rename these into place, so that no file is ever incomplete.

        One process at a time downloads, and the others find its files.
        """
        LOG.info("%s is downloaded to %s, unless another process does so just now", self.name, folder)
        folder.mkdir(parents=True, exist_ok=True)
        place = folder / f".{self.name}.part"
        with FileLock(folder / f".{self.name}.lock"):
            with contextlib.suppress(Exception):  # another process has had the lock, and may have downloaded them
                return self._read(folder)
            shutil.rmtree(place, ignore_errors=True)  # of a process that was killed
            try:
                for path in self.list_files(folder):
                    if path.is_file() and path.suffix in ARCHIVES:  # it is whole, and is unpacked
                        link = place / path.relative_to(folder)
                        link.parent.mkdir(parents=True, exist_ok=True)
                        link.symlink_to(path.absolute())
                self._read(place, download=True)
                for path in place.rglob("*"):
                    if path.is_file() and not path.is_symlink():
                        target = folder / path.relative_to(place)
                        target.parent.mkdir(parents=True, exist_ok=True)
                        os.replace(path, target)
            finally:
                shutil.rmtree(place, ignore_errors=True)
        return self._read(folder)

    @property
    def _class(self) -> Any:
        import torchvision.datasets

        return getattr(torchvision.datasets, self.source)

    def list_files(self, folder: Path) -> dict[Path, str | None]:
        """List its files in a folder with their MD5 digests, None for an unknown digest."""
        source = self._class
        if hasattr(source, "split_list"):
            return {folder / name: md5 for _, name, md5 in (source.split_list[part["split"]] for part in self.parts)}
        if hasattr(source, "base_folder"):
            inner = [*source.train_list, *source.test_list, (source.meta["filename"], source.meta["md5"])]
            archive = {folder / source.filename: source.tgz_md5}
            return archive | {folder / source.base_folder / name: md5 for name, md5 in inner}
        raw = folder / self.source / "raw"
        archives = [("gzip.zip", source.md5)] if hasattr(source, "md5") else source.resources
        return {raw / name: md5 for name, md5 in archives} | dict.fromkeys(sorted(raw.glob("*-ubyte")))


def _is_whole(path: Path, md5: str | None) -> bool:
    """Check a file against its digest, or one in MNIST's format against the sizes in its header.

    Such a file begins with two zeros, the type (8: bytes), and the number of its sides: 3 of images, 1 of labels.
    """
    if md5 is not None:
        with open_file(path) as file:
            return hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False)).hexdigest() == md5
    with open_file(path) as file:
        head = file.read(4)
        sides = file.read(4 * head[3]) if len(head) == 4 else b""
    if head != bytes((0, 0, 8, 1 if "-idx1-" in path.name else 3)) or len(sides) < 4 * head[3]:
        return False
    return path.stat().st_size == len(head) + len(sides) + math.prod(np.frombuffer(sides, ">u4").tolist())


cifar10 = Published(
    "cifar10",
    "CIFAR10",
    "cifar-10-*",
    "CIFAR-10 (Krizhevsky, 2009): 50,000 training and 10,000 test photographs, 10 classes, 3x32x32.",
    axes="NHWC",
)
cifar100 = Published(
    "cifar100",
    "CIFAR100",
    "cifar-100-*",
    "CIFAR-100 (Krizhevsky, 2009): 50,000 training and 10,000 test photographs, 100 classes (fine), 3x32x32.",
    axes="NHWC",
)
mnist = Published(
    "mnist",
    "MNIST",
    "MNIST/raw/*",
    "MNIST (LeCun et al., 1998): 60,000 training and 10,000 test digits, 10 classes, 1x28x28.",
)
fashion_mnist = Published(
    "fashion-mnist",
    "FashionMNIST",
    "FashionMNIST/raw/*",
    "Fashion-MNIST (Xiao et al., 2017): 60,000 training and 10,000 test clothes, 10 classes, 1x28x28.",
)
emnist = Published(
    "emnist",
    "EMNIST",
    "EMNIST/raw/*",
    "EMNIST, balanced (Cohen et al., 2017): 112,800 training and 18,800 test characters, 47 classes, 1x28x28.",
    parts=({"split": "balanced", "train": True}, {"split": "balanced", "train": False}),
    axes="NWH",  # torchvision leaves them lying on their side, as they are stored
)
svhn = Published(
    "svhn",
    "SVHN",
    "*_32x32.mat",
    "SVHN, cropped (Netzer et al., 2011): 73,257 training and 26,032 test house digits, 10 classes, 3x32x32.",
    parts=({"split": "train"}, {"split": "test"}),
    axes="NCHW",
    labels="labels",
)


PUBLISHED = {each.name: each for each in (cifar10, cifar100, mnist, fashion_mnist, emnist, svhn)}
"""Those that torchvision can download, by name."""


def cinic10(root: str | None = None) -> Dataset:
    """CINIC-10 (Darlow et al., 2018): 180,000 training and 90,000 test photographs, 10 classes, 3x32x32.

    Its classes are CIFAR-10's. It is not downloaded, but read from `cinic10.npz` in the root, or else from the folder
    `cinic10` or `CINIC-10` there, with `train`, `valid` and `test` of 90,000 images each. Those of `train` and `valid`
    together are for training, as in the second of its authors' two configurations (Darlow, Crowley, Antoniou, Storkey,
    "CINIC-10 Is Not ImageNet or CIFAR-10", 2018), which is that of CIFAR-10. `--partition.validation` sets images
    aside.
    """
    folder = _choose_folder(root)
    if (dataset := _read_archived("cinic10", folder)) is not None:
        return dataset
    if (found := _find_cinic10(folder)) is None:
        raise ConfigError(
            f"data.name: 'cinic10' is not in {folder}, and is not downloaded; put the published folder there as "
            "cinic10 (train/, valid/, test/) or cinic10.npz (x_train, y_train, x_test, y_test), or name a folder that "
            "holds one of them with data.root"
        )
    return replace(read_folder(found, training=("train", "valid")), name="cinic10")


def _find_cinic10(folder: Path) -> Path | None:
    return next((folder / name for name in ("cinic10", "CINIC-10") if (folder / name).is_dir()), None)


def is_dataset_cached(name: str) -> bool:
    """Check whether files of a dataset exist in the default folder; True for a dataset that needs no files."""
    if name != "cinic10" and name not in PUBLISHED:
        return True
    try:
        folder = find_dataset_cache()
    except ConfigError:
        return False
    if (folder / f"{name}.npz").is_file():
        return True
    if name == "cinic10":
        return _find_cinic10(folder) is not None
    return any(folder.glob(PUBLISHED[name].files))


def find_dataset_cache() -> Path:
    """Find the folder for datasets if no root is given: `semcom` in the user's cache folder.

    Raises ConfigError for a user without a home folder, such as an unnamed user in a container.
    """
    place = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    if place.startswith("~"):
        raise ConfigError("data.root: none is given, and this user has no home folder; give one, or set XDG_CACHE_HOME")
    return Path(place) / "semcom"


def _choose_folder(root: str | None) -> Path:
    return find_dataset_cache() if root is None else resolve_file(root)


def _read_archived(name: str, folder: Path) -> Dataset | None:
    file = folder / f"{name}.npz"
    return replace(read_npz(file, f"{name} in {file}"), name=name) if file.is_file() else None


@contextlib.contextmanager
def _quieten_download() -> Iterator[None]:
    """Keep torchvision's prints off stdout, and let a dead connection end."""
    before = socket.getdefaulttimeout()
    socket.setdefaulttimeout(30)  # torchvision's download waits for a dead server for ever
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            yield
    finally:
        socket.setdefaulttimeout(before)
