"""Noise on the images themselves: another meaning of "SNR" in papers that do not describe their channel."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from semcom.config import ConfigError, DataConfig
from semcom.data.dataset import Bytes, Dataset
from semcom.data.load import read_dataset
from semcom.data.registry import DATASETS

PART = 1000
"""Images at a time: as floats, those of a whole dataset would take eight times their bytes and more."""


class Noisy:
    """Images of another dataset with white Gaussian noise on them, training and test images alike.

    Each image has one noise, the same in every run, and is stored as bytes: values are rounded, and those beyond black
    and white are cut off.
    """

    @dataclass(frozen=True)
    class Options:
        """Options of the dataset `noisy`."""

        of: str = "cifar10"
        """Dataset that gives the images (see: semcom list datasets)."""
        snr_db: float = 9.0
        """Mean power of its training images over that of the noise, in dB; images count from -1 to 1, as encoders see
        them."""

    def __init__(self, options: Options) -> None:
        self.options = options

    def __call__(self, root: str | None = None) -> Dataset:
        """Load the other dataset from the root, and put noise on its images.

        Raises ConfigError for an unknown or already noisy dataset, an SNR that is no number, and as the other dataset
        does.
        """
        of, snr_db = self.options.of, self.options.snr_db
        if of not in DATASETS or DATASETS.get(of) is Noisy:
            known = ", ".join(name for name in DATASETS.names() if name != "noisy")
            raise ConfigError(f"data.options.of: {of!r} is no dataset to put noise on; give one of {known}")
        if not math.isfinite(snr_db):
            raise ConfigError(f"data.options.snr_db: {snr_db} is no number of decibels; give one such as 9")
        clean = read_dataset(DataConfig(name=of, root=root))
        if not clean.pictured:
            raise ConfigError(f"data.options.of: {of!r} holds no images to put noise on")
        images = add_noise(clean.images, clean.train_size, snr_db)
        return replace(clean, name=f"noisy {of}", images=images, noisy=True)


def add_noise(images: Bytes, train_size: int, snr_db: float) -> Bytes:
    """Add white Gaussian noise to images, rounded and cut to bytes.

    Args:
        images: uint8 `[N, C, H, W]`, training images first.
        train_size: number of training images, whose mean power in [-1, 1] defines the SNR.
        snr_db: that power over the variance of the noise.
    """
    starts = range(0, len(images), PART)  # float64 images take eight times the memory of bytes
    train = images[:train_size]
    scaled = (train[i : i + PART].astype(np.float64) / 127.5 - 1 for i in starts)  # as encoders see them
    power = sum(np.square(part).sum() for part in scaled) / train.size
    deviation = 127.5 * math.sqrt(power / 10 ** (snr_db / 10))
    noise, found = np.random.default_rng(0), np.empty_like(images)
    for i in starts:
        part = images[i : i + PART]
        grey = part + deviation * noise.standard_normal(part.shape, dtype=np.float32)
        found[i : i + PART] = grey.round().clip(0, 255)
    return found
