"""The dataset of a run, by name, or by the path of an .npz file or of an image folder."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from semcom.channels.registry import describe_unknown_name
from semcom.config import ConfigError, DataConfig
from semcom.config.options import build_options
from semcom.data.dataset import SIDE, Dataset, Indices, require_of_dataset
from semcom.data.federation import count_numbers
from semcom.data.readers import fit_images, read_folder, read_npz
from semcom.data.registry import DATASETS
from semcom.files import resolve_file


def load_dataset(config: DataConfig) -> Dataset:
    """Load the dataset of a run, with images that fit into a square of `config.size`.

    Errors: `read_dataset` and `resize_dataset`.
    """
    return resize_dataset(read_dataset(config), config.size)


def resize_dataset(dataset: Dataset, size: int) -> Dataset:
    """Resize the images of a dataset for a square of `size` pixels a side; other inputs stay unchanged.

    Raises ConfigError for images with noise on them that would be resized: their SNR would not be what was asked for.
    """
    if not dataset.pictured:
        return dataset
    sides = dataset.images.shape[2:]
    if dataset.noisy and fit_images(dataset.images[:1], size).shape[2:] != sides:
        kept = f"give {max(SIDE, *sides)}, at which images stay as they are"
        raise ConfigError(f"data.size: {size} would resize {dataset.name!r}, and change the SNR of its images; {kept}")
    images = fit_images(dataset.images, size)
    return replace(dataset, images=images, sides=_fit_sides(dataset, images.shape[-1]))


def _fit_sides(dataset: Dataset, width: int) -> Indices | None:
    """Scale the sides of a dataset's pictures for images of a given width."""
    before = dataset.images.shape[-1]
    if dataset.sides is None or before == width:
        return dataset.sides
    return np.maximum(1, (dataset.sides * (width / before)).round()).astype(np.int64)


def count_picture_numbers(dataset: Dataset, size: int) -> int:
    """Count the numbers of a picture in a square of `size` pixels a side, without its border: n of k/n."""
    if not dataset.pictured:
        return count_numbers(dataset.images.shape[1:], None)
    image = fit_images(dataset.images[:1], size).shape[1:]
    return count_numbers(image, _fit_sides(dataset, image[-1]))


def read_dataset(config: DataConfig) -> Dataset:
    """Read the dataset of a run, with images in their stored size, or in the configured size for a folder.

    Raises ConfigError for an unknown name that is no path either, a missing root, missing or damaged files, and a
    dataset of a single class, on which there is nothing to learn.
    """
    dataset = _read_dataset(config)
    few = f"all of its images are of one class, {', '.join(dataset.classes)}; give two or more"
    require_of_dataset(len(dataset.classes) > 1, config.name, few)
    return dataset


def _read_dataset(config: DataConfig) -> Dataset:
    root = config.root and os.path.expanduser(config.root)
    if root is not None and not os.path.isdir(root):
        raise ConfigError(f"data.root: {config.root!r} is no folder; name one that exists")
    if config.name in DATASETS:
        dataset = _find_loader(config)(root)
        if not isinstance(dataset, Dataset):
            raise ConfigError(
                f"data.name: the function of {config.name!r} gives a {type(dataset).__name__}, not a Dataset"
            )
        return dataset
    path = resolve_file(config.name)  # pathlib's raises for a user that is not known
    if os.path.isdir(path):
        return read_folder(path, config.size)
    if os.path.isfile(path) or path.suffix == ".npz":
        return read_npz(path)
    names = describe_unknown_name(config.name, DATASETS.names())
    raise ConfigError(f"data.name: {names}, or the path of an .npz file or of an image folder")


def _find_loader(config: DataConfig) -> Callable[[str | None], Any]:
    """Find the function of the data root behind a name, and pass it its options if it has any."""
    entry = DATASETS.get(config.name)
    if not hasattr(entry, "Options"):
        return entry
    return entry(build_options(entry.Options, config.options, "data", config.name))
