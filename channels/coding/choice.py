"""The choice of codec, constellation and code rate for images, by the quality expected on sample images.

A file that arrives shows the codec's approximation of the image, whose quality sample images give for every number of
bytes. A lost file leaves the image's mean colour. The probability of losing a block is measured for each scheme
(`waterfall.py`). The sender takes the choice with the highest mean PSNR over the SNRs that a block may have.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from semcom.channels.coding import codec as files
from semcom.channels.coding.image import (
    Choice,
    Received,
    compress_images,
    find_room_for_image,
    show_mean_colours,
    to_pixels,
)
from semcom.channels.coding.mcs import SCHEMES, capacity
from semcom.channels.coding.waterfall import find_block_error, has_codewords
from semcom.channels.options import one_of

MOST_DB = 100.0
"""PSNR of an image that comes back unchanged."""


class SampleImages:
    """Sample images, coded at every size of file, by which a sender chooses for similar images.

    Args:
        images: uint8 `[n, channels, height, width]`, with 1 or 3 channels.
        codec: codec to use, or "best" for any.
        headers: "sent", within the bytes, or "free": known to the receiver.
    """

    def __init__(self, images: Tensor, codec: str = "best", headers: str = "free") -> None:
        one_of("codec", codec, ("best", *files.CODECS))
        pixels, self.headers = to_pixels(images), headers
        self.lost = np.array([*map(measure_image_psnr, pixels, to_pixels(show_mean_colours(images)))])
        """PSNR of each lost image in dB, `[n]`."""
        names = files.CODECS if codec == "best" else (codec,)
        self._curves = {name: _measure_codec(pixels.tobytes(), pixels.shape, name, headers) for name in names}

    def measure(self, codec: str, room: float) -> float:
        """Measure the mean PSNR in dB of files of at most `room` bytes. Without a file that small an image is lost."""
        sizes, arrived = self._curves[codec]
        fits = sizes <= room
        best = fits.shape[1] - 1 - fits[:, ::-1].argmax(1)  # the last quality that fits
        return float(np.where(fits.any(1), arrived[np.arange(len(sizes)), best], self.lost).mean())

    def choose_codec(self, room: float) -> str:
        """Find the best codec for files of at most `room` bytes."""
        return max(self._curves, key=lambda codec: self.measure(codec, room))

    def choose_schemes(self, uses: int, snr_db: Tensor) -> list[Choice]:
        """Find the best codec, constellation and code rate for blocks of `uses` symbols; empty if no scheme has room.

        Args:
            uses: complex channel uses of an image.
            snr_db: SNRs in dB `[blocks, m]`: a block has each of m with equal probability.
        """
        rooms = {
            scheme: find_room_for_image(uses, scheme.efficiency) for scheme in SCHEMES if has_codewords(scheme, uses)
        }
        choices = [Choice(self.choose_codec(room), scheme) for scheme, room in rooms.items() if room > 0]
        if not choices:
            return []
        arrived = torch.tensor([self.measure(c.codec, rooms[c.scheme]) for c in choices], dtype=torch.float64)
        risk = torch.stack([find_block_error(c.scheme, uses, snr_db).mean(1) for c in choices], 1)
        expected = (1 - risk) * arrived + risk * float(self.lost.mean())
        return [choices[i] for i in expected.argmax(1).tolist()]  # of equals the slowest, which comes first

    def compress_to_capacity(self, images: Tensor, uses: int, snr_db: Sequence[float]) -> Received:
        """Compress images to the bytes that their channel uses carry at Shannon's limit: a bound with these codecs.

        Args:
            images: of the kind of the samples.
            uses: complex channel uses of an image.
            snr_db: of each image, in dB.
        """
        rooms = [uses * capacity(db) / 8 for db in snr_db]
        codec = {room: self.choose_codec(room) for room in dict.fromkeys(rooms)}
        return compress_images(images, [codec[room] for room in rooms], rooms, self.headers)


def measure_image_psnr(image: np.ndarray, other: np.ndarray) -> float:
    """Compute the PSNR between two images of bytes, in dB."""
    error = float(np.square(image.astype(float) - other).mean())
    return min(10 * math.log10(255**2 / error), MOST_DB) if error else MOST_DB


@lru_cache(maxsize=16)  # runs of a sweep send the same images
def _measure_codec(content: bytes, shape: tuple[int, ...], codec: str, headers: str) -> tuple[np.ndarray, np.ndarray]:
    """Measure the bytes and the PSNR in dB of images at each quality, the lowest first: `[n, qualities]` both."""
    pixels = np.frombuffer(content, np.uint8).reshape(shape)
    sent = [files.Encoder(image.tobytes(), image.shape, codec, headers).encode_all() for image in pixels]
    read = [[files.decode_image(data, pixels.shape[1:], codec, headers) for data, _ in each] for each in sent]
    psnr = [
        [measure_image_psnr(image, other) for other in each if other is not None]
        for image, each in zip(pixels, read, strict=True)
    ]
    return np.array([[len(data) for data, _ in each] for each in sent]), np.array(psnr)
