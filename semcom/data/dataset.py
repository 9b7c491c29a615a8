"""A dataset: every image in a single uint8 array, training images first, then the test images.

Other inputs, such as rows of a table, series or token ids, are an array of numbers of any shape in their place. Legend:
N images, C channels, H x W pixels.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from semcom.config import ConfigError

LOG = logging.getLogger(__name__)
SIDE = 32
"""Height and width of a run's images by default."""

Bytes = npt.NDArray[np.uint8]
Indices = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Dataset:
    """Labelled images in memory.

    Raises ConfigError if the arrays do not fit each other.
    """

    name: str
    """Name that the user gave it."""
    images: npt.NDArray[Any]
    """uint8 `[N, C, H, W]`, 0..255, or float32 `[N, ...]`, used unscaled; training images first, then tests."""
    labels: Indices
    """int64 `[N]`, 0 .. len(classes) - 1."""
    train_size: int
    """Number of training images."""
    classes: tuple[str, ...]
    """Names of the classes."""
    owners: Indices | None = None
    """int64 `[N]`, the owner of each sample, such as a writer or a domain (None: unknown)."""
    sides: Indices | None = None
    """int64 `[N, 2]`, height and width of each picture, centred in its image within a border (None: no border)."""
    noisy: bool = False
    """True if noise is on the images, whose power would change with their size."""

    def __post_init__(self) -> None:
        count, shape, kind = len(self.images), self.images.shape, self.images.dtype
        known = f"images are {kind}, not uint8 (or float32, for what is no image)"
        require_of_dataset(kind in (np.uint8, np.float32), self.name, known)
        fits = len(shape) == 4 if self.pictured else len(shape) > 1
        wanted = "[N, C, H, W]" if self.pictured else "[N, ...]"
        require_of_dataset(fits, self.name, f"images have the shape {shape}, not {wanted}")
        require_of_dataset(min(shape[1:]) > 0, self.name, f"images of {shape[-2:]} are empty")
        finite = self.pictured or bool(np.isfinite(self.images).all())
        require_of_dataset(finite, self.name, "some of its numbers are not finite")
        require_of_dataset(
            self.labels.shape == (count,), self.name, f"{count} images, but labels of shape {self.labels.shape}"
        )
        require_of_dataset(self.labels.dtype == np.int64, self.name, f"labels are {self.labels.dtype}, not int64")
        require_of_dataset(
            0 < self.train_size < count, self.name, f"{self.train_size} of {count} images are training images"
        )
        owned = self.owners is None or (self.owners.shape == (count,) and self.owners.dtype == np.int64)
        require_of_dataset(owned, self.name, f"owners are not int64 [{count}]")
        framed = self.sides is None or (self.sides.shape == (count, 2) and self.sides.dtype == np.int64)
        require_of_dataset(framed, self.name, f"sides are not int64 [{count}, 2]")
        low, high = int(self.labels.min()), int(self.labels.max())
        require_of_dataset(low >= 0, self.name, f"label {low} is negative; labels are 0 to {len(self.classes) - 1}")
        require_of_dataset(
            high < len(self.classes), self.name, f"label {high}, but there are {len(self.classes)} classes"
        )

    @property
    def pictured(self) -> bool:
        """True if the inputs are images, not arrays of numbers."""
        return bool(self.images.dtype == np.uint8)


def find_picture(size: int, height: int, width: int) -> tuple[Any, ...]:
    """Find the place of a picture centred in a square with a border, as an index of `[..., size, size]`."""
    top, left = (size - height) // 2, (size - width) // 2
    return (..., slice(top, top + height), slice(left, left + width))


def require_of_dataset(holds: bool, name: str, problem: str) -> None:
    """Raise ConfigError about dataset `name` unless `holds`."""
    if not holds:
        raise ConfigError(f"data.name: {name!r}: {problem}")


@lru_cache(maxsize=256)
def note_on_dataset(name: str, finding: str) -> None:
    """Log a finding about dataset `name`, once in a process."""
    LOG.warning("data.name: %r: %s", name, finding)
