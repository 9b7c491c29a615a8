"""Datasets in the user's own files: an .npz in Keras's layout, or an image folder.

Legend: N images, C channels, H x W pixels.
"""

from __future__ import annotations

import errno
import os
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from semcom.config import ConfigError
from semcom.config.errors import shorten_error
from semcom.data.archive import read_archive
from semcom.data.dataset import SIDE, Bytes, Dataset, Indices, note_on_dataset, require_of_dataset
from semcom.data.pictures import convert_picture

NEEDED = ("x_train", "y_train", "x_test", "y_test")
"""Arrays of an .npz."""
ARRAYS = (*NEEDED, "classes", "owners_train", "owners_test")
"""All of them, with those that may be missing."""
IMAGES = (".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp")
"""Ends of the names of image files."""
PARTS = ("train", "test")
"""Folders of an image folder."""

STRAY = (
    "__macosx", "__pycache__", "thumbs", "thumbnails", "thumbs.db", "ehthumbs.db", "desktop.ini", "icon\r",
    "lost+found", "system volume information", "$recycle.bin", "recycler", "@eadir", "#recycle", "#snapshot", "cvs",
)  # fmt: skip
"""Names, in small letters, that systems, editors and notebooks leave beside the data, except hidden files."""


def read_npz(path: str | Path, name: str | None = None) -> Dataset:
    """Read x_train, y_train, x_test, y_test and optionally classes (names), owners_train and owners_test.

    Images are uint8 `[N, H, W]` or `[N, H, W, C]` with C 1 to 4, and keep their size. An array does not mark a channel
    as alpha, so all are inputs. Other numbers, of any shape `[N, ...]`, are no images, and become float32. Labels are
    whole numbers `[N]` or `[N, 1]`, or false and true as 0 and 1. Without `classes`, the labels that occur are the
    classes, numbered from 0 in their order; names may be bytes in UTF-8. Owners, numbers or texts `[N]`, name the owner
    of each sample.

    Raises ConfigError if the file is missing, damaged, or of another layout, or has whole numbers that float32 rounds.
    """
    path, name = Path(path), name or str(path)
    arrays = _read_arrays(path, name)
    parts = [_convert_part(name, part, arrays[f"x_{part}"], arrays[f"y_{part}"]) for part in ("train", "test")]
    (x_train, y_train), (x_test, y_test) = parts
    alike = x_train.dtype == x_test.dtype
    require_of_dataset(alike, name, f"x_train is {arrays['x_train'].dtype}, x_test {arrays['x_test'].dtype}")
    agree = x_train.shape[1:] == x_test.shape[1:]
    require_of_dataset(agree, name, f"x_train has images of {x_train.shape[1:]}, x_test of {x_test.shape[1:]}")
    labels = np.concatenate([y_train, y_test])
    images = np.concatenate([x_train, x_test])
    images = put_channels_first(images) if images.dtype == np.uint8 else images
    classes = _read_class_names(arrays.get("classes", np.empty(0)), name)
    if "classes" not in arrays:
        top = int(labels.max())
        require_of_dataset(
            top < len(labels), name, f"label {top} with only {len(labels)} images; labels are 0 to classes - 1"
        )
        used, labels = np.unique(labels, return_inverse=True)
        classes, labels = [str(c) for c in used], labels.astype(np.int64)
        if used[-1] >= len(used):
            note_on_dataset(
                name, f"its labels, from {used[0]} to {used[-1]}, are numbered 0 to {len(used) - 1} in their order"
            )
    dataset = Dataset(name, images, labels, len(y_train), tuple(classes), _read_owners(arrays, name))
    warn_of_weak_tests(dataset)
    return dataset


def _read_class_names(stored: npt.NDArray[Any], name: str) -> list[str]:
    try:
        return [c.decode() if isinstance(c, bytes) else str(c) for c in stored.ravel().tolist()]
    except UnicodeDecodeError:
        raise ConfigError(f"data.name: {name!r}: its classes have names that are not UTF-8") from None


def _read_owners(arrays: Mapping[str, npt.NDArray[Any]], name: str) -> Indices | None:
    """Number the owners of an archive from 0, `[N]`, or return None if it names no owners."""
    there = [key for key in ("owners_train", "owners_test") if key in arrays]
    if not there:
        return None
    require_of_dataset(len(there) == 2, name, f"it has {there[0]} alone; give owners_train and owners_test")
    parts = [arrays[key] for key in there]
    plain = all(part.ndim == 1 and part.dtype.kind in "iuU" for part in parts)
    require_of_dataset(plain, name, "owners are not whole numbers or texts [N]")
    alike = len(arrays["y_train"]) == len(parts[0]) and len(arrays["y_test"]) == len(parts[1])
    require_of_dataset(alike, name, "there are not as many owners as labels")
    return np.unique(np.concatenate(parts), return_inverse=True)[1].astype(np.int64)


def read_folder(path: str | Path, size: int = SIDE, training: Sequence[str] = PARTS[:1]) -> Dataset:
    """Read an image folder: `train/CLASS/*` and `test/CLASS/*`, as torchvision's ImageFolder, as RGB of size x size.

    The longer side of an image is resized to `size`, enlarged if it is shorter. The other side keeps its proportion,
    and the image is centred in a black square. Its pixels are those of `convert_picture`. `training` names the folders
    with training images. Files that are no images, or left there by a system or an editor, are left out with a warning.

    Raises ConfigError if a folder or file is missing, damaged or of an unsupported kind, or if its parts have different
    classes.
    """
    from PIL.Image import DecompressionBombWarning

    path, parts = Path(path), (*training, "test")
    listed = f"{'/, '.join(training)}/ and test/"
    for part in parts:
        require_of_dataset((path / part).is_dir(), str(path), f"an image folder has {listed}, but {part}/ is missing")
    alike = [part for part in training if os.path.samefile(path / part, path / "test")]
    require_of_dataset(not alike, str(path), f"test/ is {'/, '.join(alike)}/ itself; tests need images of their own")
    strays = list[str]()
    try:
        classes, *others = (_list_class_folders(path / part, strays) for part in parts)
        require_of_dataset(bool(classes), str(path), f"{parts[0]}/ holds no class, a folder with images")
        require_of_dataset(all(names == classes for names in others), str(path), f"{listed} hold different classes")
        files = [[_list_images(path / part / name, strays) for name in classes] for part in parts]
    except OSError as error:
        there = _spell_name(error.filename)
        raise ConfigError(f"data.name: {str(path)!r}: {there} cannot be read: {error.strerror}") from None
    for part, found in zip(parts, files, strict=True):
        empty = [_spell_name(name) for name, images in zip(classes, found, strict=True) if not images]
        require_of_dataset(not empty, str(path), f"{part}/{'/, '.join(empty)}/ holds no image")
    if strays:
        some = ", ".join(_spell_name(os.path.relpath(stray, path)) for stray in strays[:3])
        note_on_dataset(str(path), f"{some}{f' and {len(strays) - 3} more' if strays[3:] else ''}: no images, left out")
    with warnings.catch_warnings():
        warnings.simplefilter("error", DecompressionBombWarning)  # Pillow only warns, then decodes
        read = [_read_pixels(str(path), file, size) for part in files for own in part for file in own]
    images, sides = (np.stack(each) for each in zip(*read, strict=True))
    labels = [np.repeat(np.arange(len(classes)), [len(own) for own in part]) for part in files]
    names = tuple(_spell_name(name) for name in classes)
    dataset = Dataset(str(path), images, np.concatenate(labels), len(images) - len(labels[-1]), names, sides=sides)
    warn_of_weak_tests(dataset)
    return dataset


def list_image_files(path: Path) -> list[Path]:
    """List the files that `read_folder` would read, sorted. Raises OSError as `read_folder` does."""
    parts = [path / part for part in PARTS if (path / part).is_dir()]
    return sorted(
        Path(file) for part in parts for name in _list_class_folders(part, []) for file in _list_images(part / name, [])
    )


def _list_class_folders(part: Path, strays: list[str]) -> list[str]:
    """List the names of the folders in a part, sorted. Other entries are added to `strays`."""
    entries = list(_list_folder_entries(str(part), strays))
    strays += [entry.path for entry in entries if not entry.is_dir()]
    return sorted(entry.name for entry in entries if entry.is_dir())


def _list_images(folder: Path, strays: list[str]) -> list[str]:
    """List the images in a folder and those below it, folder by folder, in ImageFolder's order.

    Other files are added to `strays`.

    Raises OSError for a folder that links reach twice, or in a circle, and for an image that is no file.
    """
    found, left, seen = list[tuple[str, str]](), [str(folder)], set[tuple[int, int]]()
    while left:
        place = left.pop()
        there = os.stat(place)
        if (there.st_dev, there.st_ino) in seen:
            raise OSError(errno.ELOOP, "a link leads to it a second time", place)
        seen.add((there.st_dev, there.st_ino))
        for entry in _list_folder_entries(place, strays):
            if entry.is_dir():
                left.append(entry.path)
            elif not entry.name.lower().endswith(IMAGES):
                strays.append(entry.path)
            else:
                if not entry.is_file() and os.path.exists(entry.path):
                    raise OSError(errno.EINVAL, "it is no file", entry.path)
                found.append((place, entry.name))
    return [os.path.join(*names) for names in sorted(found)]


def _list_folder_entries(folder: str, strays: list[str]) -> Iterator[os.DirEntry[str]]:
    """Yield the entries of a folder. Leftovers of a system, an editor or a notebook are added to `strays`."""
    for entry in sorted(os.scandir(folder), key=lambda entry: entry.name):
        name = entry.name.casefold()
        if name.startswith((".", "~$")) or name.endswith("~") or name in STRAY:
            strays.append(entry.path)
        else:
            yield entry


def _spell_name(name: str) -> str:
    """Make a name printable as UTF-8, with invalid bytes spelled out."""
    return os.fsencode(name).decode("utf-8", "backslashreplace")


def warn_of_weak_tests(dataset: Dataset) -> None:
    """Warn of weak tests: test images among the training images, and classes without images in a part."""
    cut, digests = dataset.train_size, [hash(image.tobytes()) for image in dataset.images]
    trained = set(digests[:cut])
    again = sum(digest in trained for digest in digests[cut:])
    if again >= (len(digests) - cut) / 10:
        note_on_dataset(
            dataset.name, f"{again} of its {len(digests) - cut} test images are training images too, pixel by pixel"
        )
    for part, labels in (("training", dataset.labels[:cut]), ("test", dataset.labels[cut:])):
        without = np.setdiff1d(np.arange(len(dataset.classes)), labels)
        if len(without):
            some = ", ".join(repr(dataset.classes[c]) for c in without[:3])
            note_on_dataset(
                dataset.name, f"{some}{' and others' if len(without) > 3 else ''}: no {part} images of these classes"
            )


def put_channels_first(images: Bytes) -> Bytes:
    """Turn images `[N, H, W, C]` into `[N, C, H, W]`."""
    return np.ascontiguousarray(np.moveaxis(images, -1, 1))


def fit_images(images: Bytes, size: int) -> Bytes:
    """Resize images `[N, C, H, W]` for a square of `size` pixels a side, bilinearly and antialiased.

    In a square of 32 a longer side over 32 becomes 32, and smaller images stay unchanged. In any other square they fill
    the same part of it, unless their longer side is `size` already. The other side keeps its proportion, and the rest
    of the square is border (`federate`).
    """
    import torch

    longer = max(images.shape[2:])
    wanted = max(1, round(min(longer, SIDE) * size / SIDE))
    if longer in (wanted, size):
        return images
    sides = _scale_sides(images.shape[2], images.shape[3], wanted)
    resized = np.empty((*images.shape[:2], *sides), dtype=np.uint8)
    for start in range(0, len(images), 1000):
        part = torch.from_numpy(images[start : start + 1000].astype(np.float32))
        part = torch.nn.functional.interpolate(part, size=sides, mode="bilinear", antialias=True)
        resized[start : start + 1000] = part.round().clamp(0, 255).to(torch.uint8).numpy()
    return resized


def _scale_sides(height: int, width: int, wanted: int) -> tuple[int, int]:
    """Scale sides in proportion, each at least 1, to a wanted longer side."""
    longer = max(height, width)
    return max(1, round(height * wanted / longer)), max(1, round(width * wanted / longer))


def _read_arrays(path: Path, name: str) -> dict[str, npt.NDArray[Any]]:
    arrays = read_archive(path, f"data.name: {name!r}", ARRAYS.__contains__)
    missing = [key for key in NEEDED if key not in arrays]
    require_of_dataset(not missing, name, f"it has no {', '.join(missing)}; needed are {', '.join(NEEDED)}")
    return arrays


def _convert_part(name: str, part: str, x: npt.NDArray[Any], y: npt.NDArray[Any]) -> tuple[npt.NDArray[Any], Indices]:
    """Convert a part to images `[N, H, W, C]`, or float32 `[N, ...]`, and labels `[N]`, and check it."""
    require_of_dataset(x.dtype.kind in "uif", name, f"x_{part} is {x.dtype}; wanted are numbers, images as uint8")
    if x.dtype == np.uint8:
        shape = f"x_{part} has the shape {x.shape}; wanted is [N, H, W] or [N, H, W, C] with C 1 to 4"
        require_of_dataset(x.ndim == 3 or (x.ndim == 4 and 1 <= x.shape[3] <= 4), name, shape)
        x = x if x.ndim == 4 else x[..., None]
    else:
        whole, x = x, x.astype(np.float32)
        exact = whole.dtype.kind == "f" or not whole.size or max(int(whole.max()), -int(whole.min())) <= 2**24
        require_of_dataset(
            exact, name, f"x_{part} has whole numbers above 2^24, which float32 would round; give smaller ones"
        )
        require_of_dataset(x.ndim > 1, name, f"x_{part} has the shape {x.shape}; wanted is [N, ...]")
    require_of_dataset(min(x.shape) > 0, name, f"x_{part} of shape {x.shape} is empty")
    y = y[:, 0] if y.ndim == 2 and y.shape[1] == 1 else y
    require_of_dataset(
        y.ndim == 1 and y.dtype.kind in "iub", name, f"y_{part} is {y.dtype} {y.shape}; labels are whole numbers [N]"
    )
    require_of_dataset(len(x) == len(y), name, f"x_{part} has {len(x)} images, y_{part} {len(y)} labels")
    require_of_dataset(int(y.min()) >= 0, name, f"y_{part} holds the label {int(y.min())}; labels start at 0")
    return x, y.astype(np.int64)


def _read_pixels(folder: str, file: str, size: int) -> tuple[Bytes, Indices]:
    """Read one image file as RGB `[3, size, size]`, and height and width of the picture in it, `[2]`.

    Raises ConfigError that names it.
    """
    from PIL import Image

    try:
        with Image.open(file) as opened:
            image = convert_picture(opened).convert("RGB")
    except Exception as error:  # a decoder of Pillow's may raise anything on a damaged file
        raise ConfigError(
            f"data.name: {folder!r}: {_spell_name(file)} cannot be read ({shorten_error(error)})"
        ) from None
    height, width = _scale_sides(image.height, image.width, size)
    square = Image.new("RGB", (size, size))
    corner = (size - width) // 2, (size - height) // 2  # where `federate` puts small images
    square.paste(image.resize((width, height), Image.Resampling.BILINEAR), corner)
    return np.moveaxis(np.asarray(square, dtype=np.uint8), -1, 0), np.array([height, width], dtype=np.int64)
