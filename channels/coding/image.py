"""The classical chain: an image is compressed to the rate that the channel uses allow, coded, sent, and decoded.

    chain = ImageChain(uses=512, modulation=16, code_rate=1/2, codec="webp")
    received = chain.send(images, snr_db=9.0, generator=torch.Generator().manual_seed(0))
    received.images, received.lost, received.payload, received.headers

An image is lost where it does not fit at the lowest quality, where its checksum fails, or where its file cannot be
decoded. The checksum is a CRC of 16 bits.
"""

from __future__ import annotations

import binascii
import math
from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np
import torch
from torch import Tensor

from channels.coding import codec as files
from channels.coding.digital import CODE_RATES, make_digital_carrier
from channels.coding.mcs import choose_mcs
from channels.coding.modem import make_modem
from channels.coding.qam import check_qam_size
from channels.options import COUNT, one_of, require
from channels.theory import noise_power

CHECKSUM = 2
"""Bytes of the checksum."""
BLOCK = 2**18
"""Symbols that are sent at once: it bounds memory."""


@dataclass(frozen=True)
class Received:
    """Images as they arrive.

    Attributes:
        images: n images, uint8, of the shape that was sent; black if lost.
        lost: bool `[n]`.
        payload: bytes of each image proper that were sent, int64 `[n]`; 0 if none fitted.
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
        code_rate: information bits per coded bit; `channels.coding.mcs.choose` gives both for an SNR.
        codec: "webp", "jpeg" or "avif".
        headers: "sent", within the uses, or "free": known to the receiver.
        fading: "awgn", "rayleigh" or "rician".
        coherence: that of `Rayleigh.Options` (None: "sample", here an image); not for "awgn".
        k_factor_db: that of `Rician.Options`; for "rician" only.

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
        self.bits = math.floor(code_rate * check_qam_size(modulation) * uses)
        self.room = self.bits // 8 - CHECKSUM
        """Bytes that an image may have."""
        if self.room < 1:
            raise ValueError(f"uses: {uses} carry {self.bits} bits, which do not hold a checksum of 16 and a byte")
        self.codec, self.headers = codec, headers
        self.carrier = make_digital_carrier(fading, coherence, k_factor_db)
        """The link whose channel the symbols cross."""

    def send(self, images: Tensor, snr_db: float, generator: torch.Generator, gain: Tensor | None = None) -> Received:
        """Send images, and return them as they arrive.

        Args:
            images: uint8 `[n, channels, height, width]`, with 1 or 3 channels.
            snr_db: in dB.
            generator: the only source of randomness; symbols are sent and decoded on its device.
            gain: h of each image, complex `[n, 1]` (None: what the fading draws).

        Raises:
            ValueError: for other images.
        """
        if images.dtype != torch.uint8 or images.ndim != 4 or images.shape[1] not in (1, 3):
            raise ValueError(f"images: {images.dtype} {list(images.shape)} is not uint8 [n, 1 or 3, height, width]")
        pixels = np.ascontiguousarray(images.permute(0, 2, 3, 1).cpu().numpy())
        sent = [self._fit(image) for image in _flat(pixels)]
        arrived = self._carry([data for data, _ in sent], snr_db, generator, gain)
        read, lost = np.zeros_like(pixels), torch.ones(len(pixels), dtype=torch.bool)
        for i, data in enumerate(arrived):
            image = files.decode_image(data, _flat(pixels).shape[1:], self.codec, self.headers) if data else None
            if image is not None:
                _flat(read)[i], lost[i] = image, False
        headers = torch.tensor([count for _, count in sent], dtype=torch.int64)
        length = torch.tensor([len(data) for data, _ in sent], dtype=torch.int64)
        payload = length - headers if self.headers == "sent" else length
        back = torch.from_numpy(read).permute(0, 3, 1, 2).contiguous()
        return Received(back.to(images.device), lost, payload, headers)

    def _fit(self, image: np.ndarray) -> tuple[bytes, int]:
        """Return the bytes of the best quality that has room (none: no bytes), and the size of the file's header."""
        each = files.encode_payloads(image.tobytes(), image.shape, self.codec, self.headers)
        return next((sent for sent in reversed(each) if len(sent[0]) <= self.room), (b"", 0))

    def _carry(self, data: list[bytes], snr_db: float, generator: torch.Generator, gain: Tensor | None) -> list[bytes]:
        """Return each file as it arrives, padded with zeros; empty if it was empty, or its checksum fails."""
        arrived = [b""] * len(data)
        sent = [i for i, file in enumerate(data) if file]
        size = max(1, BLOCK // self.uses)
        for start in range(0, len(sent), size):
            block = sent[start : start + size]
            met = None if gain is None else gain[block].to(generator.device, torch.complex64)
            for i, got in zip(block, self._block([data[i] for i in block], snr_db, generator, met), strict=True):
                arrived[i] = got
        return arrived

    def _block(self, data: list[bytes], snr_db: float, generator: torch.Generator, gain: Tensor | None) -> list[bytes]:
        """Do as `_carry` does, for files that go at once and of which none is empty."""
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
        return [_checked(block.tobytes()) for block in packed]


def send_images(
    images: Tensor,
    uses: int,
    snr_db: float,
    generator: torch.Generator,
    *,
    codec: str,
    headers: str,
    scheme_db: Sequence[float] | None = None,
    gain: Tensor | None = None,
) -> Received:
    """Send images over AWGN, each by the fastest scheme for an SNR; it is lost where there is none that holds a byte.

    Args:
        images: as of `ImageChain.send`.
        uses, codec, headers: as of `ImageChain`.
        snr_db: at which they are sent, in dB.
        generator: as of `ImageChain.send`.
        scheme_db: SNR in dB for which `choose_mcs` takes each image's scheme (None: that at which it is sent).
        gain: h of each image, complex `[n, 1]`, known to the receiver (None: 1).
    """
    nothing = torch.zeros(len(images), dtype=torch.int64)
    whole = Received(torch.zeros_like(images), torch.ones(len(images), dtype=torch.bool), nothing, nothing.clone())
    schemes = [choose_mcs(db, uses) for db in ([snr_db] * len(images) if scheme_db is None else scheme_db)]
    for scheme in dict.fromkeys(schemes):
        if scheme is None or scheme.efficiency * uses < 8 * (CHECKSUM + 1):
            continue
        at = torch.tensor([i for i, chosen in enumerate(schemes) if chosen == scheme])
        chain = ImageChain(uses, scheme.modulation, scheme.code_rate, codec, headers=headers)
        part = chain.send(images[at], snr_db, generator, None if gain is None else gain[at])
        for field in fields(Received):
            getattr(whole, field.name)[at] = getattr(part, field.name)
    return whole


def _flat(pixels: np.ndarray) -> np.ndarray:
    """Return a view of grey images as Pillow has them, `[n, height, width]`; others as they are."""
    return pixels[..., 0] if pixels.shape[-1] == 1 else pixels


def _checksum(file: bytes) -> bytes:
    """Return the CRC with 5G's polynomial D^16 + D^12 + D^5 + 1, begun with ones so that all zeros do not pass."""
    return binascii.crc_hqx(file, 0xFFFF).to_bytes(CHECKSUM, "big")


def _checked(data: bytes) -> bytes:
    """Return a file that arrived with its checksum; empty if that does not fit."""
    file = data[:-CHECKSUM]
    return file if _checksum(file) == data[-CHECKSUM:] else b""
