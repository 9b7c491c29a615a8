"""Augmentation of training images, as a function of the images of a mini-batch and of uniform draws.

It works on all clients of a stack at once, on the device of the images. The draws are the run's, keyed by seed, batch
order, round and client: images at the same position of an order look alike, whatever the method, the chunk or the
number of processes. Tests, validation and passes that do not train see unchanged images.
"""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor


class Augmentation:
    """Base class of the augmentations. Decorate a subclass with `@AUGMENTATIONS.register("name")` to add it.

    Attributes:
        numbers: p, the uniform numbers that an image takes. With 0 of them images stay unchanged.
        pictures: whether it takes only images, and no other arrays.
    """

    numbers: ClassVar[int] = 0
    pictures: ClassVar[bool] = False

    def __call__(self, images: Tensor, uniforms: Tensor) -> Tensor:
        """Augment images.

        Args:
            images: `[..., channels, size, size]` in [-1, 1].
            uniforms: in [0, 1), `[..., p]`, with the same leading axes.

        Returns:
            as `images`, not changed in place.
        """
        return images


class Unchanged(Augmentation):
    """Leave the images as they are."""


class CropFlip(Augmentation):
    """Crop at random out of a border of 4 black pixels, and mirror half of the images, as usual on CIFAR.

    A border of 4, 81 places, and left and right exchanged: torchvision's `RandomCrop(size, padding=4)` and
    `RandomHorizontalFlip()`.
    """

    numbers, pictures = 3, True
    border: ClassVar[int] = 4
    """Pixels by which a crop moves at most."""

    def __call__(self, images: Tensor, uniforms: Tensor) -> Tensor:
        """Move each image down or up by the first number, right or left by the second, and mirror it by the third."""
        size, places = images.shape[-1], 2 * self.border + 1
        rows = images.movedim(-3, -1).flatten(0, -4)  # as images lie in memory
        padded = torch.nn.functional.pad(rows, (0, 0, *[self.border] * 4), value=-1.0)
        top, left, mirror = uniforms.flatten(0, -2).unbind(-1)
        pixel = torch.arange(size, device=images.device)
        x = torch.where(mirror[:, None] < 0.5, size - 1 - pixel, pixel) + (left * places).long()[:, None]
        y = pixel + (top * places).long()[:, None]
        picked = padded[torch.arange(len(rows), device=images.device)[:, None, None], y[:, :, None], x[:, None, :]]
        return picked.view(*images.shape[:-3], *picked.shape[1:]).movedim(-1, -3)
