"""PSNR of the digital chain against SNR, with the chosen scheme, the lost images, and the bound."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from semcom.channels.coding.choice import SampleImages, measure_image_psnr
from semcom.channels.coding.image import Received, send_images, to_pixels
from semcom.channels.law import Law
from semcom.channels.link import Link
from semcom.channels.statistics import Statistics

GAINS = 1000
"""Gains that stand for all of a fading channel."""


class CurvePoint(NamedTuple):
    """Result for images at one SNR in one number of channel uses."""

    snr_db: float
    uses: int
    codec: str
    """Chosen codec, constellation and code rate, or empty, 0 and 0 if no scheme has room."""
    modulation: int
    code_rate: float
    psnr_db: float
    """Mean over the images, lost images shown as their mean colour."""
    lost: float
    """Fraction of the images."""
    bound_db: float
    """Mean PSNR of the best codec at the capacity of each image's block."""


def measure_image_curve(
    images: Tensor, sample: SampleImages, uses: Sequence[int], snrs: Sequence[float], link: Link, seed: int = 0
) -> Iterator[CurvePoint]:
    """Send images at each SNR in each number of channel uses, and yield the results.

    Args:
        images: uint8 `[n, channels, height, width]`.
        sample: similar images, by which codec and scheme are chosen: for the SNR only, not for the gain.
        uses: complex channel uses of an image.
        snrs: mean SNRs in dB.
        link: "awgn", or block fading with one gain per image.
        seed: of gains and noise, which are the same at every point.
    """
    reckoned = find_gains(Statistics(link).law)
    gain = link.gain(link.draw([len(images)], 2, torch.Generator().manual_seed(seed)))
    for n in uses:
        for snr_db in snrs:
            choices = sample.choose_schemes(n, add_gain_db(snr_db, reckoned).view(1, -1))
            noise = torch.Generator().manual_seed(seed + 1)
            received = send_images(images, n, snr_db, noise, choices, sample.headers, gain)
            each = add_gain_db(snr_db, gain).expand(len(images), 1).flatten().tolist()
            bound = _mean_psnr(images, sample.compress_to_capacity(images, n, each))
            codec, scheme = choices[0] if choices else ("", (0, 0.0))
            lost = float(received.lost.double().mean())
            yield CurvePoint(snr_db, n, codec, *scheme, _mean_psnr(images, received), lost, bound)


def find_gains(law: Law) -> Tensor:
    """List |h| that a block may have with the same chance, by the law of |h|^2: the middles of `GAINS` equal parts."""
    return torch.tensor([law.quantile((i + 0.5) / GAINS) for i in range(GAINS)]).sqrt()


def add_gain_db(snr_db: float, gain: Tensor | None) -> Tensor:
    """Compute the SNRs in dB of blocks with gains h, float64 `[n, 1]` on the host, or `[1, 1]` without fading."""
    gains = torch.ones(1, 1) if gain is None else gain.reshape(-1, 1).cpu()
    return snr_db + 20 * gains.abs().double().clamp_min(1e-15).log10()


def _mean_psnr(images: Tensor, received: Received) -> float:
    return float(np.mean([*map(measure_image_psnr, to_pixels(images), to_pixels(received.images))]))
