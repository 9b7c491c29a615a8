"""Random views of images for contrastive learning, as pure functions of images and uniform numbers.

SimCLR's recipe for small images (Chen, Kornblith, Norouzi, Hinton, ICML 2020, appendix B.9) with the crops of Khosla et
al., NeurIPS 2020: a random crop enlarged to full size, a mirror image for half of them, colour jitter for 0.8 of them,
grey for 0.2 of them, no blur. Two things differ from torchvision's random transforms, so that all images go at once: a
crop that does not fit is cut to the image (there it is drawn again), and jitter keeps one order (there it is random).

Legend: n images, h x w pixels. Uniform numbers are in [0, 1).
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

UNIFORMS = 11
"""The number of uniform numbers that `augment` uses up per image."""
SMALLEST = 0.2
"""Smallest part of an image's area that a crop takes."""
ASPECT = 4 / 3
"""A crop's width over its height is between 1 / ASPECT and ASPECT, uniform in its logarithm."""
MIRRORED, JITTERED, GREYED = 0.5, 0.8, 0.2
"""Parts of the images that are mirrored, jittered and made grey."""
STRENGTH, HUE = 0.4, 0.1
"""Brightness, contrast and saturation are multiplied by 1 - STRENGTH to 1 + STRENGTH. Hue moves by up to HUE turns."""
RED, GREEN, BLUE = 0.2989, 0.587, 0.114
"""Weights of a grey value (ITU-R 601-2, as torchvision rounds them)."""


def augment(images: Tensor, uniforms: Tensor, smallest: float = SMALLEST) -> Tensor:
    """Draw a random view of every image, with jitter and grey only for three channels.

    Args:
        images: `[..., channels, h, w]` in [-1, 1].
        uniforms: `[..., UNIFORMS]`, with the same leading axes.
        smallest: smallest part of an image's area that a crop takes (1: the whole image).
    """
    u = uniforms.flatten(0, -2)
    views = _random_crop(images.flatten(0, -4), u[:, :5], smallest)
    if images.shape[-3] == 3:
        views = 2 * _random_colours((views + 1) / 2, u[:, 5:]) - 1
    return views.reshape(images.shape)


def _random_crop(images: Tensor, u: Tensor, smallest: float) -> Tensor:
    """Crop each image to a random area, shape and place, or its mirror image, all from `u` `[n, 5]`."""
    area = smallest + (1 - smallest) * u[:, 0]
    half = math.log(ASPECT) * (u[:, 1] - 0.5)  # of the logarithm of the aspect ratio
    width, height = ((area.sqrt() * torch.exp(sign * half)).clamp(max=1) for sign in (1, -1))
    left, top = (1 - width) * u[:, 2], (1 - height) * u[:, 3]
    return resized_crop(images, left, top, width, height, u[:, 4] < MIRRORED)


def resized_crop(
    images: Tensor, left: Tensor, top: Tensor, width: Tensor, height: Tensor, mirrored: Tensor | None = None
) -> Tensor:
    """Enlarge a box of each image to its full size, bilinearly, from pixels inside the box only.

    Args:
        images: `[n, channels, h, w]`.
        left, top, width, height: of the box, in parts of the image's width or height, `[n]` each.
        mirrored: whether left and right change places, bool `[n]`.
    """
    h, w = images.shape[-2:]
    x, y = _compute_pixel_positions(left, width, w), _compute_pixel_positions(top, height, h)
    if mirrored is not None:
        x = torch.where(mirrored[:, None], x.flip(1), x)
    grid = torch.stack([x[:, None, :].expand(-1, h, -1), y[:, :, None].expand(-1, -1, w)], -1)
    return torch.nn.functional.grid_sample(images, grid, padding_mode="border", align_corners=False)


def _compute_pixel_positions(start: Tensor, size: Tensor, pixels: int) -> Tensor:
    """Compute the result's pixel positions along one axis, `[n, pixels]`, from -1 to 1 between the image's edges."""
    start, size = start[:, None], size[:, None]
    steps = (torch.arange(pixels, dtype=size.dtype, device=size.device) + 0.5) / pixels
    edge = (size / 2).clamp(max=0.5 / pixels)  # to the centre of the box's outermost pixel
    return 2 * torch.minimum(torch.maximum(start + size * steps, start + edge), start + size - edge) - 1


def _random_colours(images: Tensor, u: Tensor) -> Tensor:
    """Jitter and grey images in [0, 1], from `u` `[n, 6]`."""
    factor = 1 + STRENGTH * (2 * u[:, 1:4] - 1)
    turned = brightness(images, factor[:, 0])
    turned = saturation(contrast(turned, factor[:, 1]), factor[:, 2])
    turned = hue(turned, HUE * (2 * u[:, 4] - 1))
    views = torch.where(_align_with_images(u[:, 0] < JITTERED), turned, images)
    return torch.where(_align_with_images(u[:, 5] < GREYED), grey(views), views)


def brightness(images: Tensor, factor: Tensor) -> Tensor:
    """Multiply images, `[n, channels, h, w]` in [0, 1], by `factor` `[n]`."""
    return (images * _align_with_images(factor)).clamp(0, 1)


def contrast(images: Tensor, factor: Tensor) -> Tensor:
    """Multiply distances from the image's mean grey by `factor` `[n]`: `[n, 3, h, w]` in [0, 1]."""
    return _scale_distances(images, grey(images).mean((1, 2, 3), keepdim=True), factor)


def saturation(images: Tensor, factor: Tensor) -> Tensor:
    """Multiply distances from each pixel's grey by `factor` `[n]`: `[n, 3, h, w]` in [0, 1]."""
    return _scale_distances(images, grey(images), factor)


def grey(images: Tensor) -> Tensor:
    """Compute the grey values of images: `[n, 3, h, w] -> [n, 1, h, w]`."""
    return RED * images[:, :1] + GREEN * images[:, 1:2] + BLUE * images[:, 2:]


def hue(images: Tensor, turn: Tensor) -> Tensor:
    """Turn colours by `turn` `[n]` of the whole circle, keeping value and saturation: `[n, 3, h, w]` in [0, 1].

    In the hexagon of colours the channel at angle a (in sixths: 0, 2 and 4 for red, green and blue) is value - chroma *
    clamp(|angle - a| - 1, 0, 1), with the distance taken around the circle.
    """
    red, green, blue = images.unbind(1)
    value, chroma = images.amax(1), images.amax(1) - images.amin(1)
    length = torch.where(chroma == 0, 1, chroma)  # grey has no hue, and any angle gives it back
    angle = torch.where(
        value == red,
        (green - blue) / length,
        torch.where(value == green, 2 + (blue - red) / length, 4 + (red - green) / length),
    )
    angle = angle + 6 * turn[:, None, None]
    distance = [3 - ((angle - channel) % 6 - 3).abs() for channel in (0, 2, 4)]
    return torch.stack([value - chroma * (d - 1).clamp(0, 1) for d in distance], 1)


def _scale_distances(images: Tensor, middle: Tensor, factor: Tensor) -> Tensor:
    """Multiply distances from `middle` by `factor` `[n]`, cut to [0, 1]."""
    return (middle + _align_with_images(factor) * (images - middle)).clamp(0, 1)


def _align_with_images(values: Tensor) -> Tensor:
    """Give each image's value the axes of images: `[n] -> [n, 1, 1, 1]`."""
    return values[:, None, None, None]
