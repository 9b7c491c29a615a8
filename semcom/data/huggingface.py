"""Datasets of Hugging Face's package `datasets`: of its hub, or of files that it reads.

Legend: N samples.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from semcom.config import ConfigError
from semcom.config.errors import shorten_error
from semcom.data.dataset import Bytes, Dataset, Indices, note_on_dataset, require_of_dataset
from semcom.data.pictures import convert_picture
from semcom.data.readers import put_channels_first, warn_of_weak_tests
from semcom.packages import check_extra_package

NAME = "huggingface"
ASIDE = 5
"""One sample of so many of each class is for testing where a dataset has no test part, the same ones for every seed."""


class HuggingFace:
    """A dataset of Hugging Face's `datasets` (the extra `huggingface`), such as `--data.path ylecun/mnist`.

    Inputs are images of one size, or numbers of one shape; labels are whole numbers from 0 on, texts, or false and
    true. A column of owners, such as writers or domains, is what the partition `owner` divides by.
    """

    @dataclass(frozen=True)
    class Options:
        """Options of the dataset `huggingface`: where it is, and which of its columns are what."""

        path: str | None = None
        """Name on the hub, a folder, or a kind of file such as parquet, csv or json with `files`."""
        files: Path | None = None
        """File that is read (None: the path says it all)."""
        subset: str | None = None
        """Name of a configuration of the dataset (None: its only one)."""
        revision: str | None = None
        """Version on the hub, a commit or tag (None: the newest)."""
        train: str = "train"
        """Split with the training samples."""
        test: str | None = None
        """Split with the test samples (None: a fifth of each class of the training split is set aside)."""
        input: str = "image"
        """Column of the inputs."""
        label: str = "label"
        """Column of the classes."""
        owner: str | None = None
        """Column that says whose a sample is (None: nothing does)."""

        @property
        def local_folders(self) -> dict[str, str]:
            """The folder in `path`, which `datasets` takes before the hub, by the option's name; {} for none."""
            path = os.path.expanduser(self.path or "")
            there = self.files is None and (os.path.isabs(path) or os.path.isdir(path))
            return {"path": path} if there else {}

        def check(self) -> None:
            """Raise ValueError without a path."""
            if not self.path:
                raise ValueError("path: it is needed: a name on the hub such as ylecun/mnist, or parquet with files")

    def __init__(self, options: Options) -> None:
        self.options = options

    def __call__(self, root: str | None = None) -> Dataset:
        """Load it by `datasets.load_dataset`, which downloads missing files to the root.

        Raises ConfigError if the package is not installed, or the dataset does not match the options.
        """
        o = self.options
        check_extra_package(f"data.name: {NAME!r}", "datasets", NAME)
        parts = [self._read(o.train, root), *([] if o.test is None else [self._read(o.test, root)])]

        def read(column: str) -> list[Any]:
            return [value for part in parts for value in part[column]]

        inputs = _stack_inputs(read(o.input))
        labels, classes = _number_labels(read(o.label), parts[0].features.get(o.label))
        owned = None if o.owner is None else _read_column(read(o.owner), "owners")
        owners = None if owned is None else np.unique(owned, return_inverse=True)[1]
        first = len(parts[0][o.label])
        if o.test is None:
            order, first = _set_tests_aside(labels)
            inputs, labels, owners = inputs[order], labels[order], None if owners is None else owners[order]
        dataset = Dataset(f"{NAME} {o.path}", inputs, labels, first, classes, owners)
        warn_of_weak_tests(dataset)
        return dataset

    def _read(self, split: str, root: str | None) -> Any:
        """Read a split, which has the columns that the options name."""
        from datasets import load_dataset

        o = self.options
        files = {} if o.files is None else {"data_files": str(o.files)}
        try:
            found = load_dataset(o.path, o.subset, split=split, revision=o.revision, cache_dir=root, **files)
        except Exception as error:  # of a hub and a dozen readers
            raise ConfigError(
                f"data.path: {o.path!r} has no split {split!r} that can be read ({shorten_error(error)})"
            ) from None
        for field in ("input", "label", "owner"):
            if (column := getattr(o, field)) is not None and column not in found.column_names:
                there = ", ".join(found.column_names)
                raise ConfigError(f"data.{field}: {column!r} is no column of {o.path!r}; there are {there}")
        return found


def _stack_inputs(column: Sequence[Any]) -> npt.NDArray[Any]:
    """Stack inputs to images, uint8 `[N, C, H, W]`, or to numbers, float32 `[N, ...]`."""
    pictures = sum(hasattr(value, "convert") for value in column)
    some = f"{pictures} of {len(column)} inputs are images, and the others are not; leave those out"
    require_of_dataset(pictures in (0, len(column)), NAME, some)
    rows = _read_pictures(column) if pictures else [np.asarray(value) for value in column]
    shapes = sorted({row.shape for row in rows}, key=str)
    alike = f"inputs have the shapes {', '.join(map(str, shapes[:3]))}; bring them to one first"
    require_of_dataset(len(shapes) == 1, NAME, alike)
    found = np.stack(rows)
    numbers = f"inputs are {found.dtype}, not images or numbers; a text has to be token ids"
    require_of_dataset(found.dtype.kind in "uif", NAME, numbers)
    if not pictures:
        return found.astype(np.float32).reshape(len(found), -1) if found.ndim == 1 else found.astype(np.float32)
    return put_channels_first(found if found.ndim == 4 else found[..., None])


def _read_pictures(column: Sequence[Any]) -> list[Bytes]:
    """Read the pixels of each picture, `[H, W]` if all are grey, else `[H, W, 3]` with a warning about grey ones."""
    pictures = []
    for row, value in enumerate(column):
        try:
            pictures.append(convert_picture(value))
        except Exception as error:  # a decoder of Pillow's may raise anything on a damaged file
            raise ConfigError(f"data.name: {NAME!r}: image {row} cannot be read ({shorten_error(error)})") from None
    grey = sum(picture.mode == "L" for picture in pictures)
    if 0 < grey < len(pictures):
        note_on_dataset(NAME, f"{grey} of its {len(pictures)} images are grey, and become RGB as the others are")
    return [np.asarray(picture.convert("L" if grey == len(pictures) else "RGB")) for picture in pictures]


def _read_column(values: Sequence[Any], what: str) -> npt.NDArray[Any]:
    """Check labels or owners `[N]`, complete, as whole numbers, texts, or false and true."""
    missing = sum(value is None for value in values)
    require_of_dataset(not missing, NAME, f"{missing} of {len(values)} {what} are missing; leave them out")
    found = np.asarray(values)
    known = f"{what} are {found.dtype}; wanted are whole numbers, texts, or false and true"
    require_of_dataset(found.ndim == 1 and found.dtype.kind in "iubU", NAME, known)
    return found


def _number_labels(values: Sequence[Any], feature: Any) -> tuple[Indices, tuple[str, ...]]:
    """Number labels from 0, `[N]`, and name them: by the names of a `ClassLabel`, or by the labels themselves."""
    found = _read_column(values, "labels")
    least = 0 if found.dtype.kind == "U" else int(found.min())
    require_of_dataset(least >= 0, NAME, f"the column of labels holds {least}; labels start at 0")
    if (names := getattr(feature, "names", None)) is not None:
        return found.astype(np.int64), tuple(names)
    used, numbers = np.unique(found, return_inverse=True)
    return numbers.astype(np.int64), tuple(str(value) for value in used)


def _set_tests_aside(labels: Indices) -> tuple[Indices, int]:
    """Order the samples `[N]`, training samples first, and count the training samples."""
    order = np.random.default_rng(0).permutation(len(labels))
    place = np.zeros(len(labels), dtype=np.int64)
    for c in np.unique(labels):
        own = order[labels[order] == c]
        place[own] = np.arange(len(own))
    tested = place[order] % ASIDE == ASIDE - 1
    return np.concatenate([np.sort(order[~tested]), np.sort(order[tested])]), int((~tested).sum())
