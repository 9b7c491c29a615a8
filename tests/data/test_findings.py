"""Surprising data: samples left out, renumbered, turned or refused, each with one line."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from semcom.config import DataConfig, RunConfig
from semcom.data.dataset import note_on_dataset
from semcom.data.load import load_dataset
from semcom.data.readers import list_image_files, read_folder, read_npz
from semcom.runs.request.resolve import resolve
from tests.refusals import refuses


@pytest.fixture
def said(caplog: pytest.LogCaptureFixture) -> Callable[[], list[str]]:
    """Collect the messages about data from here on, one per line."""
    note_on_dataset.cache_clear()
    caplog.set_level(logging.INFO, "semcom.data")
    return lambda: [record.getMessage() for record in caplog.records]


def image(level: int) -> Image.Image:
    """One of the images that all differ in one of their corners."""
    pixels = np.full((8, 8, 3), 90, dtype=np.uint8)
    pixels[0, 0] = level
    return Image.fromarray(pixels)


def folder(root: Path) -> Path:
    """Write an image folder of two classes with two images of each in train/ and in test/, all different."""
    for i, name in enumerate(f"{part}/{label}/{n}.png" for part in ("train", "test") for label in "ab" for n in "xy"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        image(20 * i).save(root / name)
    return root


# What is no data -----------------------------------------------------------------------------------------------------

FOLDERS = [
    ".ipynb_checkpoints",
    "__MACOSX",
    ".Trash-1000",
    "@eaDir",
    "$RECYCLE.BIN",
    "Thumbnails",
    "lost+found",
    ".git",
]
FILES = ["._x.png", ".DS_Store", "Thumbs.db", "desktop.ini", "~$x.png", "x.png~", "notes.txt", ".x.png.swp", "x.gif"]


@pytest.mark.parametrize("stray", FOLDERS)
def test_a_stray_folder_is_no_class_and_holds_no_images(
    stray: str, tmp_path: Path, said: Callable[[], list[str]]
) -> None:
    root = folder(tmp_path / "set")
    before = read_folder(root), resolve(RunConfig("fedavg", data=DataConfig(str(root)))).contents
    for place in ("train", "test", "train/a"):
        (root / place / stray).mkdir()
        image(7).save(root / place / stray / "x.png")
    dataset = read_folder(root)
    assert dataset.classes == ("a", "b") and np.array_equal(dataset.images, before[0].images)
    assert resolve(RunConfig("fedavg", data=DataConfig(str(root)))).contents == before[1], "nor part of the run"
    places = f"train/{stray}, test/{stray}, train/a/{stray}"
    assert said() == [f"data.name: {str(root)!r}: {places}: no images, left out"]
    read_folder(root)
    assert len(said()) == 1


@pytest.mark.parametrize("stray", FILES)
def test_a_stray_file_is_no_image(stray: str, tmp_path: Path, said: Callable[[], list[str]]) -> None:
    root = folder(tmp_path / "set")
    for place in ("train", "train/b", "test/a", "test/b"):
        (root / place / stray).write_bytes(b"not an image")
    assert len(read_folder(root).images) == len(list_image_files(root)) == 8
    places = f"train/{stray}, train/b/{stray}, test/a/{stray} and 1 more"
    assert said() == [f"data.name: {str(root)!r}: {places}: no images, left out"]


def test_a_clean_folder_has_nothing_said_of_it(tmp_path: Path, said: Callable[[], list[str]]) -> None:
    read_folder(folder(tmp_path))
    assert not said()


# Labels --------------------------------------------------------------------------------------------------------------


def archive(path: Path, train: list[int], test: list[int], **more: np.ndarray) -> str:
    """Write an .npz with these labels and images that all differ."""
    x = np.arange(len(train) + len(test), dtype=np.uint8)[:, None, None] + np.zeros((4, 4), np.uint8)
    cut = len(train)
    np.savez(path, x_train=x[:cut], y_train=np.array(train), x_test=x[cut:], y_test=np.array(test), **more)
    return str(path)


@pytest.mark.parametrize("used", [[1, 2, 3], [0, 2, 4], [3, 5, 6], [0, 1, 7]])
def test_labels_are_numbered_from_zero_without_gaps(
    used: list[int], tmp_path: Path, said: Callable[[], list[str]]
) -> None:
    path = archive(tmp_path / "set.npz", [*used, *used], used[::-1])
    dataset = load_dataset(DataConfig(path))
    assert dataset.labels.tolist() == [0, 1, 2, 0, 1, 2, 2, 1, 0] and dataset.classes == tuple(map(str, used))
    told = f"its labels, from {used[0]} to {used[-1]}, are numbered 0 to 2 in their order"
    assert said() == [f"data.name: {path!r}: {told}"]


def test_names_of_classes_say_which_there_are(tmp_path: Path, said: Callable[[], list[str]]) -> None:
    path = archive(tmp_path / "set.npz", [1, 2, 1], [2, 1], classes=np.array(["ant", "bee", "cat"]))
    dataset = load_dataset(DataConfig(path))
    assert dataset.labels.tolist() == [1, 2, 1, 2, 1] and dataset.classes == ("ant", "bee", "cat")
    assert said() == [f"data.name: {path!r}: 'ant': no {part} images of these classes" for part in ("training", "test")]


@pytest.mark.parametrize(("train", "test"), [([0, 1, 2], [1, 2, 3]), ([1, 2, 3], [0, 1, 2]), ([0, 1, 2, 3], [3, 3])])
def test_parts_of_different_classes_are_told(
    train: list[int], test: list[int], tmp_path: Path, said: Callable[[], list[str]]
) -> None:
    assert load_dataset(DataConfig(archive(tmp_path / "set.npz", train, test))).classes == ("0", "1", "2", "3")
    assert said() and all(line.endswith("images of these classes") for line in said())


@pytest.mark.parametrize("label", [0, 1, 4])
def test_a_single_class_is_refused(label: int, tmp_path: Path) -> None:
    path = archive(tmp_path / "set.npz", [label] * 4, [label] * 2)
    with refuses("data.name", f"one class, {label};"):
        load_dataset(DataConfig(path))


def test_a_folder_of_a_single_class_is_refused(tmp_path: Path) -> None:
    for part in ("train", "test"):
        (tmp_path / part / "ant").mkdir(parents=True)
        image(len(part)).save(tmp_path / part / "ant" / "x.png")
    with refuses("data.name", "one class, ant;"):
        load_dataset(DataConfig(str(tmp_path)))


# Parts that are the same ---------------------------------------------------------------------------------------------


def linked_classes(root: Path) -> None:
    for label in "ab":
        for name in "xy":
            (root / "test" / label / f"{name}.png").unlink()
        (root / "test" / label).rmdir()
        (root / "test" / label).symlink_to(root / "train" / label)


def hard_links(root: Path) -> None:
    for file in list_image_files(root)[:4]:  # of test/
        file.unlink()
        os.link(root / "train" / file.relative_to(root / "test"), file)


def copies_under_other_names(root: Path) -> None:
    for file in list_image_files(root)[:4]:
        file.with_name(f"copy-{file.name}").write_bytes((root / "train" / file.relative_to(root / "test")).read_bytes())
        file.unlink()


@pytest.mark.parametrize("same", [linked_classes, hard_links, copies_under_other_names])
def test_test_images_that_are_trained_on_are_told(
    same: Callable[[Path], None], tmp_path: Path, said: Callable[[], list[str]]
) -> None:
    same(folder(tmp_path))
    assert read_folder(tmp_path).train_size == 4
    again = "4 of its 4 test images are training images too, pixel by pixel"
    assert said() == [f"data.name: {str(tmp_path)!r}: {again}"]


def test_the_same_images_in_an_archive_are_told(tmp_path: Path, said: Callable[[], list[str]]) -> None:
    x, y = np.arange(32, dtype=np.uint8).reshape(2, 4, 4), np.array([0, 1])
    np.savez(tmp_path / "set.npz", x_train=x, y_train=y, x_test=x[1:], y_test=y[1:])
    read_npz(tmp_path / "set.npz")
    assert "1 of its 1 test images are training images too" in said()[0]


@pytest.mark.parametrize("other", ["train", "test"])
def test_a_part_that_is_the_other_one_is_refused(other: str, tmp_path: Path) -> None:
    root = folder(tmp_path / "set")
    (root / other).rename(tmp_path / "away")
    (root / other).symlink_to(root / ("test" if other == "train" else "train"))
    with refuses("data.name", "test/ is train/ itself"):
        read_folder(root)


# Names that are not UTF-8 --------------------------------------------------------------------------------------------


def test_names_that_are_not_utf8(tmp_path: Path) -> None:
    root = folder(tmp_path / "set")
    odd = [os.fsdecode(name) for name in (b"caf\xe9.png", b"\xff\xfe.png", b"na\xefve.png")]
    for level, name in enumerate(odd):
        image(level + 3).save(root / "train" / "a" / name)
    for part in ("train", "test"):
        (root / part / "b").rename(root / part / os.fsdecode(b"b\xe9te"))
    dataset = read_folder(root)
    assert dataset.classes == ("a", r"b\xe9te") and len(dataset.images) == 11
    contents = resolve(RunConfig("fedavg", data=DataConfig(str(root)))).contents
    (root / "train" / "a" / odd[0]).rename(root / "train" / "a" / os.fsdecode(b"caf\xe8.png"))
    assert contents != resolve(RunConfig("fedavg", data=DataConfig(str(root)))).contents, "names count as bytes"
    (root / "train" / "a" / odd[1]).write_bytes(b"broken")
    with refuses("data.name", r"train/a/\xff\xfe.png cannot be read"):
        read_folder(root)


# Pixels --------------------------------------------------------------------------------------------------------------

CORNERS = np.zeros((32, 32, 3), dtype=np.uint8)
CORNERS[:16, :16], CORNERS[:16, 16:], CORNERS[16:, :16] = 250, 160, 80  # and 0


@pytest.mark.parametrize(
    ("orientation", "upright"),
    [(1, [250, 160, 80, 0]), (3, [0, 80, 160, 250]), (6, [80, 250, 0, 160]), (8, [160, 0, 250, 80])],
)
@pytest.mark.parametrize("kind", ["jpg", "png", "webp", "tiff"])
def test_images_are_turned_as_their_tag_says(orientation: int, upright: list[int], kind: str, tmp_path: Path) -> None:
    """The levels of the corners: top left, top right, bottom left, bottom right."""
    root, exif = folder(tmp_path), Image.Exif()
    exif[0x0112] = orientation
    (root / "train" / "a" / "x.png").unlink()
    Image.fromarray(CORNERS).save(root / "train" / "a" / f"x.{kind}", exif=exif, quality=95)
    pixels = read_folder(root).images[0, 0].astype(int)
    assert np.abs(pixels[[4, 4, 27, 27], [4, 27, 4, 27]] - upright).max() <= 6


@pytest.mark.parametrize("kind", ["png", "webp", "tiff"])
def test_several_images_in_a_file_are_refused(kind: str, tmp_path: Path) -> None:
    root = folder(tmp_path)
    image(0).save(root / "test" / "b" / f"z.{kind}", save_all=True, append_images=[image(130), image(250)])
    with refuses("data.name", f"test/b/z.{kind} cannot be read (it holds "):
        read_folder(root)


def test_the_photograph_of_a_camera_s_file_is_read(tmp_path: Path) -> None:
    root = folder(tmp_path)
    file = root / "train" / "a" / "w.jpg"
    image(90).save(file, format="MPO", save_all=True, append_images=[image(0)])
    assert abs(int(read_folder(root).images[0].mean()) - 90) <= 1


def test_inks_and_wide_and_transparent_pixels(tmp_path: Path) -> None:
    root, place = folder(tmp_path), tmp_path / "train" / "a"
    inks = Image.new("CMYK", (8, 8), (0, 255, 255, 0))  # red
    for kind in ("jpg", "tiff"):
        inks.save(place / f"a-{kind}.{kind}", quality=95)
    palette = Image.new("P", (8, 8), 1)
    palette.putpalette([200, 10, 10, 10, 200, 10])
    palette.save(place / "b-half.png", transparency=bytes([255, 128]))
    palette.save(place / "c-none.png", transparency=bytes([255, 0]))
    Image.fromarray(np.full((8, 8), 0x8080, np.uint16)).save(place / "d-wide.png")
    found = read_folder(root).images[:5, :, 16, 16].astype(int)
    expected = [[255, 0, 0], [255, 0, 0], [5, 100, 5], [0, 0, 0], [128, 128, 128]]
    assert np.abs(found - expected).max() <= 6
