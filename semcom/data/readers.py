"""Datasets in the user's own files: an .npz in Keras's layout, or an image folder.

Legend: N images, C channels, H x W pixels.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from semcom.config import ConfigError
from semcom.data.archive import one_line, read_archive
from semcom.data.dataset import SIDE, Bytes, Dataset, Indices, require


def read_npz(path: str | Path, name: str | None = None) -> Dataset:
    """Reads x_train, y_train, x_test, y_test and, if it is there, classes (names) from an .npz archive.

    Images are uint8 `[N, H, W]` or `[N, H, W, C]` with C 1 to 4; a side longer than 32 is resized to 32 with
    antialiasing. Labels are whole numbers `[N]` or `[N, 1]`.

    Raises ConfigError if the file is missing, damaged, or not of that layout.
    """
    path, name = Path(path), name or str(path)
    arrays = _read_arrays(path, name)
    parts = [_check_part(name, part, arrays[f"x_{part}"], arrays[f"y_{part}"]) for part in ("train", "test")]
    (x_train, y_train), (x_test, y_test) = parts
    agree = x_train.shape[1:] == x_test.shape[1:]
    require(agree, name, f"x_train has images of {x_train.shape[1:]}, x_test of {x_test.shape[1:]}")
    labels = np.concatenate([y_train, y_test])
    images = shrink(np.concatenate([x_train, x_test]))
    top = int(labels.max()) + 1
    require(top <= len(labels), name, f"label {top - 1} with only {len(labels)} images; labels are 0 to classes - 1")
    names = arrays.get("classes", np.arange(top)).ravel().tolist()
    return Dataset(name, images, labels, len(y_train), tuple(str(c) for c in names))


def read_folder(path: str | Path) -> Dataset:
    """Reads an image folder: `train/CLASS/*` and `test/CLASS/*`, as torchvision's ImageFolder; RGB, resized to 32x32.

    Raises ConfigError if a folder or file is missing or damaged, or if train and test have different classes.
    """
    from torchvision.datasets import ImageFolder

    path = Path(path)
    for part in ("train", "test"):
        require((path / part).is_dir(), str(path), f"an image folder has train/ and test/, but {part}/ is missing")
    try:
        train, test = (ImageFolder(str(path / part)) for part in ("train", "test"))
        require(train.classes == test.classes, str(path), "train/ and test/ hold different classes")
        images = np.stack([_pixels(file) for file, _ in [*train.samples, *test.samples]])
    except (OSError, SyntaxError) as error:
        raise ConfigError(f"data.name: {str(path)!r}: {one_line(error)}") from None
    labels = np.array([*train.targets, *test.targets], dtype=np.int64)
    return Dataset(str(path), images, labels, len(train.targets), tuple(train.classes))


def shrink(images: Bytes) -> Bytes:
    """Turns images `[N, H, W, C]` into `[N, C, H, W]`; sides longer than 32 are resized to 32, antialiased."""
    import torch

    images = np.moveaxis(images, -1, 1)
    size = [min(side, SIDE) for side in images.shape[2:]]
    if size == list(images.shape[2:]):
        return np.ascontiguousarray(images)
    small = np.empty((*images.shape[:2], *size), dtype=np.uint8)
    for start in range(0, len(images), 1000):
        part = torch.from_numpy(images[start : start + 1000].astype(np.float32))
        part = torch.nn.functional.interpolate(part, size=size, mode="bilinear", antialias=True)
        small[start : start + 1000] = part.round().clamp(0, 255).to(torch.uint8).numpy()
    return small


def _read_arrays(path: Path, name: str) -> dict[str, npt.NDArray[Any]]:
    """The arrays of an .npz archive that make a dataset."""
    needed = ("x_train", "y_train", "x_test", "y_test")
    arrays = read_archive(path, f"data.name: {name!r}", (*needed, "classes"))
    missing = [key for key in needed if key not in arrays]
    require(not missing, name, f"it has no {', '.join(missing)}; needed are {', '.join(needed)}")
    return arrays


def _check_part(name: str, part: str, x: npt.NDArray[Any], y: npt.NDArray[Any]) -> tuple[Bytes, Indices]:
    """Images `[N, H, W, C]` and labels `[N]` of one part, checked."""
    require(x.dtype == np.uint8, name, f"x_{part} is {x.dtype}; images are uint8, 0 to 255")
    shape = f"x_{part} has the shape {x.shape}; wanted is [N, H, W] or [N, H, W, C] with C 1 to 4"
    require(x.ndim == 3 or (x.ndim == 4 and 1 <= x.shape[3] <= 4), name, shape)
    require(min(x.shape) > 0, name, f"x_{part} of shape {x.shape} is empty")
    y = y[:, 0] if y.ndim == 2 and y.shape[1] == 1 else y
    require(
        y.ndim == 1 and y.dtype.kind in "iu", name, f"y_{part} is {y.dtype} {y.shape}; labels are whole numbers [N]"
    )
    require(len(x) == len(y), name, f"x_{part} has {len(x)} images, y_{part} {len(y)} labels")
    require(int(y.min()) >= 0, name, f"y_{part} holds the label {int(y.min())}; labels start at 0")
    return (x if x.ndim == 4 else x[..., None]), y.astype(np.int64)


def _pixels(file: str) -> Bytes:
    """One image file as RGB `[3, 32, 32]`."""
    from PIL import Image

    with Image.open(file) as image:
        resized = image.convert("RGB").resize((SIDE, SIDE), Image.Resampling.BILINEAR)
    return np.moveaxis(np.asarray(resized, dtype=np.uint8), -1, 0)
