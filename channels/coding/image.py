"""The classical chain: an image is compressed to the rate that the channel uses allow, coded, sent, and decoded.

    chain = ImageChain(uses=512, modulation=16, code_rate=1/2, codec="webp")
    received = chain.send(images, snr_db=9.0, generator=torch.Generator().manual_seed(0))
    received.images, received.lost, received.payload, received.headers

An image is lost if it does not fit at the lowest quality, if its checksum fails, or if its file cannot be decoded. The
checksum is a CRC of 16 bits. The receiver shows the mean of each colour for a lost image, which it is assumed to know,
as Bourtsoulatze, Kurka and Gunduz assume for images that have no room ("Deep joint source-channel coding for wireless
image transmission", IEEE Trans. Cogn. Commun. Netw. 5(3), 2019).
"""

from __future__ import annotations

import binascii
import math
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from semcom.channels.coding import codec as files
from semcom.channels.coding.digital import CODE_RATES, make_carrier
from semcom.channels.coding.mcs import Scheme
from semcom.channels.coding.modem import make_modem
from semcom.channels.coding.qam import count_symbol_bits
from semcom.channels.options import COUNT, one_of, require
from semcom.channels.theory import noise_power

CHECKSUM = 2
"""Bytes of the checksum."""
BLOCK = 2**18
"""Symbols that are sent at once: it bounds memory."""


class Choice(NamedTuple):
    """Codec, constellation size and code rate of an image."""

    codec: str
    scheme: Scheme


@dataclass(frozen=True)
class Received:
    """Images as received.

    Attributes:
        images: n images, uint8, of the sent shape. A lost image has its mean colour.
        lost: bool `[n]`.
        payload: sent bytes of each image without its header, int64 `[n]`, or 0 if no file fitted.
        headers: bytes of its file's header, sent or not, int64 `[n]`.
    """

    images: Tensor
    lost: Tensor
    payload: Tensor
    headers: Tensor


class ImageChain:
    """Chain that sends each image in given channel uses, through AWGN or block fading that the receiver knows.

    Args:
        uses: complex channel uses of an image.
        modulation: constellation size, 4, 16, 64 or 256.
        code_rate: information bits per coded bit. `semcom.channels.coding.choice.SampleImages` chooses both for an SNR.
        codec: "webp", "jpeg", "avif", or "jpeg-half": a JPEG of half the height and width.
        headers: "sent", within the uses, or "free": known to the receiver.
        fading: "awgn", "rayleigh" or "rician".
        coherence: that of `Rayleigh.Options` (None: "sample", here an image), not for "awgn".
        k_factor_db: that of `Rician.Options`, for "rician" only.

    Raises:
        ValueError: one line for any other value.
    """

    def __init__(
        self,
        uses: int,
        modulation: int = 16,
        code_rate: float = 1 / 2,
        codec: str = "webp",
        *,
        headers: str = "sent",
        fading: str = "awgn",
        coherence: str | None = None,
        k_factor_db: float | None = None,
    ) -> None:
        require("uses", uses, COUNT)
        require("code_rate", code_rate, CODE_RATES)
        one_of("codec", codec, files.CODECS)
        one_of("headers", headers, files.HEADERS)
        self.uses, self.modulation = uses, modulation
        self.bits = math.floor(code_rate * count_symbol_bits(modulation) * uses)
        self.room = find_room_for_image(uses, code_rate * count_symbol_bits(modulation))
        """Bytes that an image may have."""
        if self.room < 1:
            raise ValueError(f"uses: {uses} carry {self.bits} bits, which do not hold a checksum of 16 and a byte")
        self.codec, self.headers = codec, headers
        self.carrier = make_carrier(fading, coherence, k_factor_db)
        """Link whose channel the symbols cross."""

    def send(self, images: Tensor, snr_db: float, generator: torch.Generator, gain: Tensor | None = None) -> Received:
        """Send images, and return them as received.

        Args:
            images: uint8 `[n, channels, height, width]`, with 1 or 3 channels.
            snr_db: in dB.
            generator: the only source of randomness. Symbols are sent and decoded on its device.
            gain: h of each image, complex `[n, 1]` (None: drawn from the fading).

        Raises:
            ValueError: for images of another type or shape.
        """
        codecs = [self.codec] * len(images)
        sent = _compress(images, codecs, [self.room] * len(images), self.headers)
        arrived = self._carry([data for data, _ in sent], snr_db, generator, gain)
        return _decode_received(images, codecs, sent, arrived, self.headers)

    def _carry(self, data: list[bytes], snr_db: float, generator: torch.Generator, gain: Tensor | None) -> list[bytes]:
        """Send files, and return each as received, padded with zeros, or empty if it was so or its checksum fails."""
        arrived = [b""] * len(data)
        sent = [i for i, file in enumerate(data) if file]
        if gain is None and getattr(self.carrier.options, "coherence", "sample") in ("batch", "round"):  # one for all
            gain = self.carrier.gain(self.carrier.draw([len(data)], 2, generator))
        size = max(1, BLOCK // self.uses)
        for start in range(0, len(sent), size):
            block = sent[start : start + size]
            met = None if gain is None else gain[block].to(generator.device, torch.complex64)
            for i, got in zip(block, self._block([data[i] for i in block], snr_db, generator, met), strict=True):
                arrived[i] = got
        return arrived

    def _block(self, data: list[bytes], snr_db: float, generator: torch.Generator, gain: Tensor | None) -> list[bytes]:
        """Send files at once, as `_carry` does. Every file has content."""
        device = generator.device
        padded = [file.ljust(self.room, b"\0") for file in data]
        bits = np.stack([np.unpackbits(np.frombuffer(file + _checksum(file), np.uint8)) for file in padded])
        spare = self.bits - bits.shape[1]
        coder = make_modem(self.bits, self.uses, self.modulation, device)
        symbols = coder.symbols(torch.nn.functional.pad(torch.from_numpy(bits).to(device), (0, spare)))
        drawn = self.carrier.draw([len(data)], 2 * self.uses, generator)
        gain = self.carrier.gain(drawn) if gain is None else gain
        heard = symbols if gain is None else gain * symbols
        no = noise_power(snr_db)
        got, _ = coder.receive(heard + no**0.5 * drawn["noise"], gain, torch.full((1, 1), no, device=device))
        packed = np.packbits(got[:, : bits.shape[1]].cpu().numpy(), axis=1)
        return [_verify_checksum(block.tobytes()) for block in packed]


def send_images(
    images: Tensor,
    uses: int,
    snr_db: float,
    generator: torch.Generator,
    choices: Sequence[Choice],
    headers: str,
    gain: Tensor | None = None,
) -> Received:
    """Send images, each with its chosen codec and scheme. Without choices all images are lost.

    Args:
        images: as for `ImageChain.send`.
        uses: complex channel uses of an image.
        snr_db: SNR of the transmission, in dB.
        generator: as for `ImageChain.send`.
        choices: for each image, or a single choice for all. Empty if no scheme has room.
        headers: as for `ImageChain`.
        gain: h of each image, complex `[n, 1]`, known to the receiver (None: 1).
    """
    whole = _decode_received(images, [], [(b"", 0)] * len(images), [b""] * len(images), headers)
    each = list(choices) * len(images) if len(choices) == 1 else list(choices)
    for choice in dict.fromkeys(each):
        at = torch.tensor([i for i, chosen in enumerate(each) if chosen == choice])
        chain = ImageChain(uses, *choice.scheme, choice.codec, headers=headers)
        part = chain.send(images[at], snr_db, generator, None if gain is None else gain[at])
        for field in fields(Received):
            getattr(whole, field.name)[at] = getattr(part, field.name)
    return whole


def compress_images(images: Tensor, codecs: Sequence[str], rooms: Sequence[float], headers: str) -> Received:
    """Compress images to files of a given size, which all arrive. An image without a file that small is lost.

    Args:
        images: as for `ImageChain.send`.
        codecs: of each image.
        rooms: bytes of each image.
        headers: as for `ImageChain`.
    """
    sent = _compress(images, codecs, rooms, headers)
    return _decode_received(images, codecs, sent, [data for data, _ in sent], headers)


def find_room_for_image(uses: int, efficiency: float) -> int:
    """Compute the bytes that a file may have beside its checksum, at `efficiency` bits per channel use."""
    return math.floor(efficiency * uses) // 8 - CHECKSUM


def to_pixels(images: Tensor) -> np.ndarray:
    """Convert images to Pillow's layout: `[n, height, width, 3]`, or `[n, height, width]` for grey images.

    Raises ValueError unless they are uint8 `[n, 1 or 3, height, width]`.
    """
    if images.dtype != torch.uint8 or images.ndim != 4 or images.shape[1] not in (1, 3):
        raise ValueError(f"images: {images.dtype} {list(images.shape)} is not uint8 [n, 1 or 3, height, width]")
    pixels = np.ascontiguousarray(images.permute(0, 2, 3, 1).cpu().numpy())
    return pixels[..., 0] if pixels.shape[-1] == 1 else pixels


def show_mean_colours(images: Tensor) -> Tensor:
    """Replace each image `[n, channels, height, width]` by its mean colour."""
    return images.double().mean((2, 3), keepdim=True).round().to(images.dtype).expand_as(images)


def _compress(images: Tensor, codecs: Sequence[str], rooms: Sequence[float], headers: str) -> list[tuple[bytes, int]]:
    """Encode each image at the best quality that has room (otherwise as no bytes), and count its header bytes."""
    each = zip(to_pixels(images), codecs, rooms, strict=True)
    return [files.encode_image(image.tobytes(), image.shape, codec, headers).fit(room) for image, codec, room in each]


def _decode_received(
    images: Tensor, codecs: Sequence[str], sent: Sequence[tuple[bytes, int]], arrived: Sequence[bytes], headers: str
) -> Received:
    """Read the received files. An empty file means a lost image."""
    back, lost = show_mean_colours(images).clone(), torch.ones(len(images), dtype=torch.bool)
    shape = to_pixels(images).shape[1:]
    for i, data in enumerate(arrived):
        read = files.decode_image(data, shape, codecs[i], headers) if data else None
        if read is not None:
            back[i], lost[i] = torch.from_numpy(read).view(*shape[:2], -1).permute(2, 0, 1), False
    header = torch.tensor([count for _, count in sent], dtype=torch.int64)
    length = torch.tensor([len(data) for data, _ in sent], dtype=torch.int64)
    return Received(back, lost, length - header if headers == "sent" else length, header)


def _checksum(file: bytes) -> bytes:
    """Compute the CRC with 5G's polynomial D^16 + D^12 + D^5 + 1, begun with ones so that all zeros do not pass."""
    return binascii.crc_hqx(file, 0xFFFF).to_bytes(CHECKSUM, "big")


def _verify_checksum(data: bytes) -> bytes:
    """Check a received file against its checksum. Return its content, or an empty file if the checksum fails."""
    file = data[:-CHECKSUM]
    return file if _checksum(file) == data[-CHECKSUM:] else b""
