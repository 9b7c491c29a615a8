"""Pictures as pixels: one rule for the files of an image folder and for the pictures of Hugging Face's `datasets`.

Legend: N pictures, C channels, H x W pixels.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from PIL.Image import Image

GREY = ("1", "L", "LA")
"""Pillow's modes of grey pictures of 8 bits or less."""
WIDE = ("PNG", "PPM")
"""Formats whose grey pictures of more than 8 bits Pillow reads as 0 to 65,535."""


def convert_picture(opened: Image) -> Image:
    """Convert any picture to an upright one of 8 bits, in Pillow's mode `L` if it is grey, else in `RGB`.

    It is turned by its EXIF tag, transparency is laid on black, and grey of 16 bits is scaled to 8 (0x8000 to 128). A
    palette counts as colour.

    Raises ValueError for several pictures in one file, and for numbers of unknown range.
    """
    from PIL import Image, ImageOps

    frames = getattr(opened, "n_frames", 1)
    if frames > 1 and opened.format != "MPO":  # a photograph, with what a camera adds for itself
        raise ValueError(f"it holds {frames} images; save the one that is meant")
    image = ImageOps.exif_transpose(opened)
    if image.mode.startswith("I") and _has_range_of_16_bits(opened):
        values = np.asarray(image).astype(np.int64)
        values[values == image.info.get("transparency", -1)] = 0
        return Image.fromarray(((values * 255 + 32767) // 65535).astype(np.uint8))
    if image.mode.startswith(("I", "F")):
        raise ValueError(f"Pillow's mode {image.mode} has no range of its own; save it with 8 bits, or 16 as PNG")
    mode = "L" if image.mode in GREY else "RGB"
    if not image.has_transparency_data:
        return image.convert(mode)
    black, layer = Image.new("RGB", image.size), image.convert("RGBA")
    black.paste(layer, mask=layer)
    return black.convert(mode)


def _has_range_of_16_bits(opened: Image) -> bool:
    """Check whether 65,535 is white: a TIFF in mode I;16 may have fewer bits, an array of 16 bits (no format) not."""
    return opened.format in WIDE or (opened.format is None and opened.mode.startswith("I;16"))
