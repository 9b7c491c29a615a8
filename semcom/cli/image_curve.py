"""`semcom image-curve`: PSNR against SNR of images that are compressed, coded and sent, as a CSV file."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

import pandas as pd
import torch

from semcom.channels import make_link
from semcom.channels.coding.choice import SampleImages
from semcom.channels.coding.curve import measure_image_curve
from semcom.cli import flags
from semcom.config import ConfigError, DataConfig
from semcom.config.snr import parse_snr
from semcom.data.dataset import require_of_dataset
from semcom.data.load import load_dataset
from semcom.escape import format_csv
from semcom.files import resolve_target, write_atomically
from semcom.methods.parts.received import SAMPLE
from semcom.screen import say


@dataclass(frozen=True)
class CurveFlags:
    """Write PSNR against SNR of the digital chain as CSV: what was chosen, the part that was lost, and the bound.

    Test images are compressed, coded with 5G's LDPC codes, and sent. Codec, constellation and code rate are those with
    the highest expected PSNR of training images at the SNR. The bound is that of codecs at Shannon's limit.
    """

    data: DataConfig = field(default_factory=DataConfig, metadata={"hidden": ("augment",)})
    uses: str = "256"
    """Complex channel uses of an image, one number or several (128,256)."""
    snr_db: str = "0,5,10,15,20"
    """SNRs in dB, one or several; over fading the mean, which is all that the sender knows."""
    fading: Literal["awgn", "rayleigh", "rician"] = "awgn"
    """Channel that the symbols cross, with one gain for each image."""
    codec: Literal["best", "jpeg", "webp", "avif", "jpeg-half"] = "best"
    """The compression (best: that of these which suits the uses and the SNR)."""
    headers: Literal["free", "sent"] = "free"
    """Whether the file's header is known to the receiver, or takes its part of the uses."""
    images: int = 200
    """Number of test images, the first ones."""
    seed: int = 0
    """Seed of gains and noise."""
    csv: str | None = None
    """File that is written (None: stdout)."""


def carry_out_image_curve(words: list[str]) -> None:
    """Carry out `semcom image-curve`. Raises ConfigError for flags that make no sense, and data that are no images."""
    wanted = flags.parse_flags(CurveFlags(), "semcom image-curve", words, {})
    target = None if wanted.csv is None else resolve_target(wanted.csv, "csv")
    if wanted.images < 1:
        raise ConfigError(f"images: {wanted.images} is not a whole number of at least 1")
    uses, snrs = _read_counts(wanted.uses), parse_snr(wanted.snr_db, "snr-db")
    if snrs.drawn:
        raise ConfigError(f"snr-db: {wanted.snr_db!r} is a range; give a comma list (0,5,10)")
    dataset = load_dataset(wanted.data)
    require_of_dataset(dataset.pictured, wanted.data.name, "image-curve sends images, and these are arrays of numbers")
    if dataset.sides is not None:
        raise ConfigError(
            f"data.name: {wanted.data.name!r} has pictures with borders; image-curve takes an .npz of one size"
        )
    every = max(1, dataset.train_size // SAMPLE)
    train, test = dataset.images[: dataset.train_size : every][:SAMPLE], dataset.images[dataset.train_size :]
    sample = SampleImages(torch.from_numpy(train), wanted.codec, wanted.headers)
    sent, link = torch.from_numpy(test[: wanted.images]), make_link(wanted.fading)
    rows = measure_image_curve(sent, sample, uses, snrs.values, link, wanted.seed)
    text = format_csv(pd.DataFrame(rows), float_format="%.5g")
    if target is None:
        say(text, end="")
    else:
        say(f"table: {write_atomically(target, text)}")


def _read_counts(text: str) -> list[int]:
    """Parse a comma list of numbers. Raises ConfigError unless they are whole and at least 1."""
    parts = text.split(",")
    if not all(part.strip().isdecimal() and int(part) > 0 for part in parts):
        raise ConfigError(f"uses: {text!r} is not a comma list of whole numbers of at least 1 (128,256)")
    return [int(part) for part in parts]
