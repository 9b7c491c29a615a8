"""Images with noise on them: how much, on which, and the same in every run."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import norm

import semcom
from semcom.config import DataConfig, run_hash
from semcom.data.load import load_dataset
from semcom.data.noisy import add_noise
from tests.refusals import refuses


def power_left(deviation: float, grey: int) -> float:
    """The mean square of Gaussian noise on a grey level that is cut at 0 and 255: integrals over three parts."""
    low, high = -grey / deviation, (255 - grey) / deviation
    inside = norm.cdf(high) - norm.cdf(low) + low * norm.pdf(low) - high * norm.pdf(high)
    return deviation**2 * inside + grey**2 * norm.cdf(low) + (255 - grey) ** 2 * norm.sf(high)


@pytest.mark.parametrize("snr_db", [0.0, 9.0, 20.0])
def test_the_noise_has_the_power_that_the_snr_says(snr_db: float) -> None:
    """Training images at +-1/3 have the power 1/9. Brighter test images get noise of the same variance.

    Five standard errors of a mean square, plus a twelfth of a squared grey level for rounding.
    """
    parts = {85: 650, 170: 650, 200: 700}
    images = np.concatenate([np.full((n, 2, 10, 10), grey, np.uint8) for grey, n in parts.items()])
    found = add_noise(images, 1300, snr_db).astype(float)
    for grey, n in parts.items():
        noise = found[images == grey] - grey
        expected = power_left(127.5 / 3 / 10 ** (snr_db / 20), grey) + 1 / 12
        assert np.square(noise).mean() == pytest.approx(expected, rel=5 * math.sqrt(2 / (200 * n))), grey


def test_each_image_has_one_noise_and_no_two_share_theirs() -> None:
    grey = np.full((2100, 1, 8, 8), 128, dtype=np.uint8)  # more than a part at a time
    first, again = add_noise(grey, 2000, -20.0), add_noise(grey, 2000, -20.0)
    assert np.array_equal(first, again)
    assert len(np.unique(first.reshape(len(first), -1), axis=0)) == len(first)


def test_a_noisy_dataset_is_the_other_one_but_for_its_images() -> None:
    clean = load_dataset(DataConfig("digits"))
    noisy = load_dataset(DataConfig("noisy", options={"of": "digits", "snr_db": 3.0}))
    assert (noisy.name, noisy.train_size, noisy.classes) == ("noisy digits", clean.train_size, clean.classes)
    assert np.array_equal(noisy.labels, clean.labels)
    assert np.array_equal(noisy.images, add_noise(clean.images, clean.train_size, 3.0))


def test_a_size_that_would_change_the_noise_is_refused(tmp_path: Path) -> None:
    """Images of 28 x 28 stay as they are at 32, within a border, and at 28."""
    images = np.random.default_rng(0).integers(0, 256, (6, 28, 28), dtype=np.uint8)
    half = {"x": images[:3], "y": np.arange(3)}
    np.savez(tmp_path / "mnist.npz", **{f"{key}_{part}": half[key] for key in half for part in ("train", "test")})
    config = DataConfig("noisy", str(tmp_path), {"of": "mnist"})
    for size in (28, 32):
        assert load_dataset(replace(config, size=size)).images.shape[2:] == (28, 28)
    for size in (16, 64):
        with refuses("data.size", size, "give 32"):
            load_dataset(replace(config, size=size))


def test_its_options_are_in_the_hash() -> None:
    def hashed(**options: object) -> str:
        return run_hash(semcom.resolve(semcom.RunConfig(data=DataConfig("noisy", options={"of": "digits", **options}))))

    assert hashed() == hashed(snr_db=9.0) != hashed(snr_db=10.0)
