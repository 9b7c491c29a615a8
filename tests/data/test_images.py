"""Image files of all kinds: their pixels, and the one line about unreadable files."""

from __future__ import annotations

import os
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torchvision.datasets import ImageFolder

from semcom.config import ConfigError, DataConfig, RunConfig
from semcom.data.federation import _pad_images
from semcom.data.readers import list_image_files, read_folder
from semcom.runs.request.resolve import resolve
from tests.refusals import refuses


def folder(root: Path, first: Image.Image | bytes, name: str = "one.png") -> Path:
    """Write an image folder of two classes with the given first training image and grey squares."""
    for part in ("train", "test"):
        for label in ("ant", "bee"):
            (root / part / label).mkdir(parents=True)
            if (part, label) != ("train", "ant"):
                Image.new("L", (32, 32), 100).save(root / part / label / "other.png")
    path = root / "train" / "ant" / name
    path.write_bytes(first) if isinstance(first, bytes) else first.save(path)
    return root


def read(root: Path, first: Image.Image | bytes, name: str = "one.png") -> np.ndarray:
    """The pixels `[3, 32, 32]` that an image file becomes."""
    return read_folder(folder(root, first, name)).images[0]


def noise(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, shape).astype(np.uint8)


def in_the_middle(inside: np.ndarray) -> np.ndarray:
    """`[3, h, w]` as `federate` puts it into a black square."""
    return _pad_images(torch.from_numpy(np.ascontiguousarray(inside))[None], 32)[0].numpy()


# Shapes --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("side", [8, 32, 100])
def test_square_images_fill_the_square(tmp_path: Path, side: int) -> None:
    image = Image.fromarray(noise(side, side, 3))
    expected = np.moveaxis(np.asarray(image.resize((32, 32), Image.Resampling.BILINEAR)), -1, 0)
    assert np.array_equal(read(tmp_path, image), expected)


@pytest.mark.parametrize(
    ("width", "height", "becomes"),
    [(64, 32, (32, 16)), (32, 64, (16, 32)), (20, 10, (32, 16)), (50, 20, (32, 13)), (500, 2, (32, 1))],
)
def test_other_images_keep_their_proportions(tmp_path: Path, width: int, height: int, becomes: tuple[int, int]) -> None:
    image = Image.fromarray(noise(height, width, 3))
    inside = np.moveaxis(np.asarray(image.resize(becomes, Image.Resampling.BILINEAR)), -1, 0)
    assert np.array_equal(read(tmp_path, image), in_the_middle(inside))


# Kinds of pixels -----------------------------------------------------------------------------------------------------

LEVELS = np.array([0, 1, 257, 2570, 32896, 65535])
"""Levels of 16 bits. The multiples of 257 are 0, 1, 10, 128 and 255 of 8 bits."""


def test_sixteen_bits_are_scaled(tmp_path: Path) -> None:
    values = np.resize(LEVELS, (32, 32)).astype(np.uint16)
    expected = np.resize([0, 0, 1, 10, 128, 255], (32, 32))
    for name in ("one.png", "one.pgm"):
        pixels = read(tmp_path / name, Image.fromarray(values), name)
        assert np.array_equal(pixels, np.broadcast_to(expected, (3, 32, 32)))


@pytest.mark.parametrize("kind", [np.uint16, np.int32, np.float32])
def test_numbers_without_a_range_are_refused(tmp_path: Path, kind: type) -> None:
    with refuses("data.name", "train/ant/one.tiff"):
        read(tmp_path, Image.fromarray(noise(32, 32).astype(kind)), "one.tiff")


def test_grey_palette_and_one_bit(tmp_path: Path) -> None:
    grey = noise(32, 32)
    assert np.array_equal(read(tmp_path / "grey", Image.fromarray(grey)), np.broadcast_to(grey, (3, 32, 32)))
    palette = Image.fromarray((grey % 4).astype(np.uint8), "P")
    colours = np.array([[255, 0, 0], [0, 200, 0], [0, 0, 99], [5, 6, 7]], dtype=np.uint8)
    palette.putpalette(colours.ravel().tolist())
    assert np.array_equal(read(tmp_path / "palette", palette), np.moveaxis(colours[grey % 4], -1, 0))
    bits = read(tmp_path / "bits", Image.fromarray(grey > 127))
    assert np.array_equal(bits, np.broadcast_to(np.where(grey > 127, 255, 0), (3, 32, 32)))


def test_what_is_transparent_is_laid_on_black(tmp_path: Path) -> None:
    colour, alpha = noise(32, 32, 3), np.resize(np.array([0, 128, 255], np.uint8), (32, 32))
    pixels = read(tmp_path / "rgba", Image.fromarray(np.dstack([colour, alpha]), "RGBA"))
    assert np.abs(pixels - np.moveaxis(colour * (alpha[..., None] / 255), -1, 0)).max() <= 1
    assert np.array_equal(pixels[:, alpha == 255], np.moveaxis(colour, -1, 0)[:, alpha == 255])
    assert not pixels[:, alpha == 0].any()
    grey = read(tmp_path / "la", Image.fromarray(np.dstack([colour[..., 0], alpha]), "LA"))
    assert np.array_equal(grey[:, alpha == 0], np.zeros((3, (alpha == 0).sum())))
    root = tmp_path / "key"  # a PNG whose level 7 is said to be transparent
    levels = np.resize(np.array([7, 90], np.uint8), (32, 32))
    folder(root, b"")
    Image.fromarray(levels).save(root / "train" / "ant" / "one.png", transparency=7)
    assert np.array_equal(read_folder(root).images[0, 0], np.where(levels == 7, 0, 90))


# Damage --------------------------------------------------------------------------------------------------------------


def cut(path: Path) -> bytes:
    Image.fromarray(noise(32, 32, 3)).save(path)
    return path.read_bytes()[:500]


def test_an_unreadable_image_names_its_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    damaged = {"text": b"hello", "empty": b"", "cut short": cut(tmp_path / "whole.png")}
    for name, data in damaged.items():
        with refuses("data.name", "train/ant/one.png"):
            read(tmp_path / name, data)
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 10)  # Pillow's own guard, an Exception of its own kind
    with refuses("data.name", "one.png"):
        read(tmp_path / "bomb", Image.new("RGB", (32, 32)))


def test_the_files_of_a_folder_are_those_that_are_read(tmp_path: Path) -> None:
    root = folder(tmp_path / "set", Image.new("RGB", (4, 4)))
    (root / "train" / "notes.txt").write_text("no image")
    (root / "train" / "ant" / ".DS_Store").write_text("no image")
    (root / "train" / "bee" / "deep").mkdir()
    Image.new("RGB", (4, 4)).save(root / "train" / "bee" / "deep" / "more.PNG")
    assert len(list_image_files(root)) == len(read_folder(root).images) == 5


def test_the_order_is_that_of_torchvision(tmp_path: Path) -> None:
    """Images of a class lie in the order of their folders, as texts, then of their names."""
    root = folder(tmp_path, Image.new("L", (32, 32), 1), "b.png")
    for level, name in enumerate(("a/x.png", "a/deep/w.png", "a-b/x.JPG", "a.png", "Z.png"), 2):
        path = root / "train" / "ant" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("L", (32, 32), level).save(path)
    found = ImageFolder(str(root / "train")).samples
    expected = [np.asarray(Image.open(path))[0, 0].max() for path, _ in found]
    assert read_folder(root).images[: len(found), 0, 0, 0].tolist() == expected


# What never ends, or is far too large --------------------------------------------------------------------------------


def refused(root: Path) -> str:
    with pytest.raises(ConfigError) as stop:
        read_folder(root)
    with pytest.raises(ConfigError) as early:
        resolve(RunConfig(method="fedavg", data=DataConfig(str(root))))
    assert str(stop.value) == f"data.name: {str(root)!r}: " + str(early.value).removeprefix("data.name: ").replace(
        "'", ""
    )
    return str(stop.value)


def test_a_pipe_among_the_images_is_refused(tmp_path: Path) -> None:
    root = folder(tmp_path, Image.new("L", (4, 4)))
    os.mkfifo(root / "train" / "bee" / "pipe.png")
    assert refused(root).endswith("train/bee/pipe.png cannot be read: it is no file")


@pytest.mark.parametrize("target", ["train/ant", "train", "."])
def test_links_in_a_circle_are_refused(target: str, tmp_path: Path) -> None:
    root = folder(tmp_path, Image.new("L", (4, 4)))
    for name in ("one", "two", "three"):
        (root / "train" / "ant" / name).symlink_to(root / target)
    assert refused(root).endswith("cannot be read: a link leads to it a second time")


def test_a_link_to_nothing_and_one_to_images(tmp_path: Path) -> None:
    root = folder(tmp_path / "set", Image.new("L", (4, 4)))
    (tmp_path / "more").mkdir()
    Image.new("L", (4, 4)).save(tmp_path / "more" / "x.png")
    (root / "train" / "ant" / "more").symlink_to(tmp_path / "more")
    assert len(read_folder(root).images) == 5
    (root / "train" / "ant" / "gone.png").symlink_to(tmp_path / "gone")
    with refuses("data.name", "gone.png"):
        read_folder(root)


def test_what_pillow_warns_of_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = folder(tmp_path, Image.new("1", (40, 40)))
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 1100)  # the others have 1,024; above twice as many it is an error
    with warnings.catch_warnings(record=True) as said, refuses("data.name", "one.png"):
        read_folder(root)
    assert not said


@pytest.mark.parametrize("missing", ["train", "test"])
def test_a_class_without_images_is_named(missing: str, tmp_path: Path) -> None:
    root = folder(tmp_path, Image.new("L", (4, 4)))
    (root / missing / "bee" / "other.png").unlink()
    with refuses("data.name", f"{missing}/bee/"):
        read_folder(root)
