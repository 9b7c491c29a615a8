"""The pixels of a picture in each of Pillow's modes, by hand: the same in an image folder and from `datasets`."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import PIL
import pytest
from PIL import Image

from semcom.data.pictures import convert_picture
from tests.data.test_images import read


def plain(mode: str, value: Any) -> Image.Image:
    return Image.new(mode, (32, 32), value)


def wide(value: int, kind: type = np.uint16) -> Image.Image:
    return Image.fromarray(np.full((32, 32), value, kind))


def palette(mode: str) -> Image.Image:
    """Build a palette with colour 1 = (40, 80, 120), and an alpha of 128 in the mode PA."""
    made = plain("P", 1)
    made.putpalette([0, 0, 0, 40, 80, 120])
    if mode == "PA":
        made = made.convert("PA")
        made.putalpha(128)
    return made


def stored(picture: Image.Image, form: str, **options: Any) -> Image.Image:
    """Store the picture in a file and read it by Pillow, which then knows the format."""
    file = io.BytesIO()
    picture.save(file, form, **options)
    return Image.open(io.BytesIO(file.getvalue()))


PICTURES = {
    "1": (plain("1", 1), [255]),
    "L": (plain("L", 77), [77]),
    "LA, half of white": (plain("LA", (255, 128)), [128]),
    "LA, clear": (plain("LA", (255, 0)), [0]),
    "RGB": (plain("RGB", (1, 2, 3)), [1, 2, 3]),
    "RGBA, half of white": (plain("RGBA", (255, 255, 255, 128)), [128] * 3),
    "RGBA, a quarter of a colour": (plain("RGBA", (200, 100, 40, 51)), [40, 20, 8]),
    "P": (palette("P"), [40, 80, 120]),
    "PA, half": (palette("PA"), [20, 40, 60]),
    "CMYK, red": (plain("CMYK", (0, 255, 255, 0)), [255, 0, 0]),
    "YCbCr, grey": (plain("YCbCr", (90, 128, 128)), [90] * 3),
    "HSV, green": (plain("HSV", (85, 255, 255)), [0, 255, 0]),
    "I;16, half": (wide(0x8000), [128]),
    "I;16, white": (wide(0xFFFF), [255]),
    "I;16, black": (wide(0x0080), [0]),
    "I;16 of a PNG": (stored(wide(0x8000), "PNG"), [128]),
    "I;16B": (wide(0x8000, np.dtype(">u2")), [128]),  # type: ignore[arg-type]
    "I of a PGM": (stored(wide(0x8000, np.int32), "PPM"), [128]),
    "L of a PNG with a transparent level": (stored(plain("L", 9), "PNG", transparency=9), [0]),
    "RGB of a PNG with a transparent colour": (stored(plain("RGB", (1, 2, 3)), "PNG", transparency=(1, 2, 3)), [0] * 3),
}
"""Picture -> its colour: one channel if grey, otherwise three. alpha 128 / 255 of 255 is 128, and 0x8000 / 0xFFFF of it
is 127.5 and a little."""


@pytest.mark.parametrize("name", PICTURES)
def test_each_mode_has_its_pixels(name: str) -> None:
    picture, colour = PICTURES[name]
    pixels = np.asarray(convert_picture(picture)).reshape(32, 32, -1)
    assert pixels.dtype == np.uint8 and (pixels == colour).all(), pixels[0, 0]


FORMATS = {"CMYK, red": "TIFF", "YCbCr, grey": "TIFF", "I of a PGM": "PPM"}
FORMATS |= dict.fromkeys(("HSV, green", "PA, half", "I;16B"), "")
"""Format of a picture in a folder where PNG does not take it. Empty: no format keeps its mode."""


@pytest.mark.parametrize("name", [name for name in PICTURES if FORMATS.get(name, "PNG")])
def test_a_folder_has_the_same_pixels(name: str, tmp_path: Path) -> None:
    if name == "YCbCr, grey" and int(PIL.__version__.split(".")[0]) < 13:
        pytest.skip("Pillow below 13 does not read what it writes")
    picture, colour = PICTURES[name]
    file, form = io.BytesIO(), FORMATS.get(name, "PNG")
    picture.save(file, form)
    found = read(tmp_path, file.getvalue(), f"one.{form.lower()}")
    assert (found == np.array(colour)[:, None, None]).all(), found[:, 0, 0]


@pytest.mark.parametrize(
    ("picture", "said"),
    [
        (wide(300, np.int32), "mode I has no range of its own"),
        (wide(1, np.float32), "mode F has no range of its own"),
        (stored(wide(4095), "TIFF"), "mode I;16 has no range of its own"),  # of 12 bits, it may be
        (stored(plain("L", 1), "GIF", save_all=True, append_images=[plain("L", 2)]), "it holds 2 images"),
    ],
)
def test_pictures_without_a_range_or_of_several_frames_are_refused(picture: Image.Image, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        convert_picture(picture)
