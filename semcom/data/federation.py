"""The federation: all images once, as bytes on the run's device, and per client the indices of its own.

Clients own index lists, not images, so a mini-batch of many clients is one indexing operation.
Legend: N images, C channels, K clients, M indices of all clients together.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from semcom.data.dataset import SIDE, require_of_dataset

if TYPE_CHECKING:
    from semcom.data.dataset import Dataset
    from semcom.data.split import Split


@dataclass(frozen=True)
class Ragged:
    """One list of indices per client, of unequal lengths, in one tensor."""

    flat: Tensor
    """int64 `[M]` on the device: the lists back to back."""
    offsets: npt.NDArray[np.int64]
    """`[K + 1]` on the host: client k's list is `flat[offsets[k]:offsets[k + 1]]`."""

    @cached_property
    def sizes(self) -> npt.NDArray[np.int64]:
        """Length of each client's list, `[K]`."""
        return np.diff(self.offsets)

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, client: int) -> Tensor:
        """Return a client's list `[sizes[client]]`, a view. Raises IndexError for an unknown client."""
        if not 0 <= client < len(self):
            raise IndexError(f"client {client} of {len(self)}")
        return self.flat[int(self.offsets[client]) : int(self.offsets[client + 1])]


@dataclass(frozen=True)
class Federation:
    """The images of a run, and which client owns which."""

    images: Tensor
    """uint8 `[N, C, size, size]`, 0..255, channels last in memory, as convolutions on a CPU prefer. Inputs that are no
    images: float32 `[N, ...]`."""
    labels: Tensor
    """Class of each image, int64 `[N]`."""
    train: Ragged
    """Indices of each client's training images."""
    test: Ragged
    """Indices of each client's test images."""
    validation: Ragged
    """Indices of each client's validation images (empty lists unless the partition sets a part aside)."""
    classes: tuple[str, ...]
    """Names of the classes."""
    owned: npt.NDArray[np.bool_]
    """Whether a client has training images of a class, bool `[K, classes]` on the host."""
    sides: Tensor | None = field(default=None, kw_only=True)
    """int64 `[N, 2]` on the host: height and width of each picture centred in its image, with a border around it.
    None: no image has a border."""

    def to(self, device: torch.device | str) -> Federation:
        """Copy the federation to a device."""
        train, test, validation = (
            Ragged(t.flat.to(device), t.offsets) for t in (self.train, self.test, self.validation)
        )
        images, labels = self.images.to(device), self.labels.to(device)
        return replace(self, images=images, labels=labels, train=train, test=test, validation=validation)

    @property
    def pictured(self) -> bool:
        """True if the inputs are images, not arrays of numbers."""
        return not self.images.is_floating_point()

    @property
    def numbers(self) -> int:
        """Numbers of a picture without its border, averaged over pictures of several shapes."""
        return count_numbers(self.images.shape[1:], self.sides)

    @property
    def sources(self) -> Federation:
        """The federation with the original images: itself, unless features replace them."""
        return self

    def gather_sources(self, index: Tensor, dtype: torch.dtype = torch.float32) -> Tensor:
        """Gather the original images of those at `index`, in the form of `gather`."""
        return self.gather(index, dtype)

    def gather(self, index: Tensor, dtype: torch.dtype = torch.float32) -> Tensor:
        """Gather images at `index` (int64, any shape) as `[*index.shape, C, size, size]` in [-1, 1]: x / 127.5 - 1.

        Inputs that are no images are gathered unscaled, `[*index.shape, ...]`.
        """
        if not self.pictured:
            taken = self.images.index_select(0, index.reshape(-1))
            return taken.view(*index.shape, *self.images.shape[1:]).to(dtype)
        rows = self.images.movedim(1, -1)  # images are copied as they lie in memory
        if index.is_cuda:  # which takes an index in any order of memory
            return scale_bytes(rows[index].movedim(-1, -3), dtype)
        picked = rows.index_select(0, index.reshape(-1)).view(*index.shape, *rows.shape[1:]).movedim(-1, -3)
        return scale_bytes(picked, dtype)


def scale_bytes(images: Tensor, dtype: torch.dtype) -> Tensor:
    """Scale images of bytes to numbers in [-1, 1]: x / 127.5 - 1."""
    if images.is_cuda:  # in one launch, with numbers on the host that give the result its type
        return torch.add(torch.tensor(-1.0, dtype=dtype), images, alpha=1 / 127.5)
    return images.to(dtype).div_(127.5).sub_(1)


def to_bytes(images: Tensor) -> Tensor:
    """Round images in [-1, 1] to bytes: the inverse of `scale_bytes`."""
    return ((images.clamp(-1, 1) + 1) * 127.5).round().to(torch.uint8)


def count_numbers(image: Sequence[int], sides: Any) -> int:
    """Count the numbers of an image of some shape; with `sides` `[N, 2]` the mean over its pictures."""
    return math.prod(image) if sides is None else round(image[0] * float((sides[:, 0] * sides[:, 1] * 1.0).mean()))


def federate(dataset: Dataset, split: Split, size: int = SIDE) -> Federation:
    """Join a dataset and its split, on the host.

    Images smaller than size x size get a border of zeros (-1 when gathered). Raises ConfigError for larger images, and
    where two borders that are uneven would not leave a picture in the middle.
    """
    images, framed = torch.from_numpy(dataset.images), None
    if dataset.pictured:
        sides = dataset.images.shape[2:]
        require_of_dataset(max(sides) <= size, dataset.name, f"images are {sides}, more than {size} pixels a side")
        if dataset.sides is not None:  # of two borders around a picture only one may be uneven
            odd = (size - np.array(sides)) % 2 * ((np.array(sides) - dataset.sides) % 2)
            told = f"some pictures in its images of {sides} cannot lie in the middle of {size} pixels a side"
            require_of_dataset(not odd.any(), dataset.name, f"{told}; give them even borders, or another data.size")
        framed = torch.tensor([sides]) if dataset.sides is None else torch.from_numpy(dataset.sides)
        framed = None if bool((framed == size).all()) else framed.expand(len(images), 2)
        images = _pad_images(images, size).contiguous(memory_format=torch.channels_last)
    owned = np.zeros((len(split.train), len(dataset.classes)), dtype=bool)
    for client, indices in enumerate(split.train):
        owned[client, dataset.labels[indices]] = True
    return Federation(
        images=images,
        labels=torch.from_numpy(dataset.labels),
        train=_join_lists(split.train),
        test=_join_lists(split.test),
        validation=_join_lists(split.validation),
        classes=dataset.classes,
        owned=owned,
        sides=framed,
    )


def _join_lists(lists: Sequence[npt.NDArray[np.int64]]) -> Ragged:
    offsets = np.concatenate([[0], np.cumsum([len(part) for part in lists])]).astype(np.int64)
    return Ragged(torch.from_numpy(np.concatenate(lists).astype(np.int64)), offsets)


def _pad_images(images: Tensor, size: int) -> Tensor:
    """Put images `[N, C, H, W]` in the middle of size x size (the odd row or column of the border goes to the end)."""
    height, width = size - images.shape[2], size - images.shape[3]
    border = (width // 2, width - width // 2, height // 2, height - height // 2)
    return torch.nn.functional.pad(images, border) if any(border) else images
