"""JPEG, WebP and AVIF of small images by Pillow, with a file taken apart into its header and the image proper.

A file of a 32 x 32 image is mostly header. Where sender and receiver agree on its shape beforehand, headers need not
travel: a WebP is then its 3 bytes of frame tag and its partitions; a JPEG one byte for the quality, and its scan, coded
with the standard's own tables; an AVIF the size of its frame and the frame.

Of few bytes a JPEG makes more at half the size (`jpeg-half`): shrunk by Lanczos, enlarged by bicubic interpolation.
"""

from __future__ import annotations

import io
from functools import lru_cache

import numpy as np
from PIL import Image

CODECS = ("webp", "jpeg", "avif", "jpeg-half")
HEADERS = ("sent", "free")
JPEG = tuple(range(1, 96))
QUALITIES = {"webp": tuple(range(0, 101, 5)), "jpeg": JPEG, "avif": tuple(range(0, 96, 5)), "jpeg-half": JPEG}
"""Qualities that are tried; Pillow advises against a JPEG's above 95, and an AVIF's 100 is another format, lossless."""
HALF = "-half"
"""End of the name of a codec that codes an image at half its height and width, and enlarges what arrives."""
END_OF_JPEG = b"\xff\xd9"
START_OF_SCAN = b"\xff\xda"
RIFF_HEADER, TAG, START_AND_SIZE = 20, 3, 7
"""Bytes of a WebP: RIFF, WEBP and VP8 chunk; then those of the frame: its tag, its start code with width and height."""
TO_LENGTH = 22
"""Bytes from the name of an AVIF's box iloc to the length of its data."""


@lru_cache(maxsize=4096)
def encode_payloads(pixels: bytes, shape: tuple[int, ...], codec: str, headers: str) -> tuple[tuple[bytes, int], ...]:
    """Return an image at each quality, the lowest first: the bytes that are sent, and the number of the header's.

    Args:
        pixels: uint8, in the order of `shape`.
        shape: (height, width) or (height, width, 3).
        codec: one of `CODECS`.
        headers: "sent", as part of the bytes, or "free".
    """
    image = Image.fromarray(np.frombuffer(pixels, np.uint8).reshape(shape))
    codec, qualities, (height, width) = codec.removesuffix(HALF), QUALITIES[codec], _shrink(shape, codec)[:2]
    if image.size != (width, height):
        image = image.resize((width, height), Image.Resampling.LANCZOS)
    files = [_save_with_codec(image, codec, quality, optimise=headers == "sent") for quality in qualities]
    parts = [_strip_codec_header(file, codec, quality) for file, quality in zip(files, qualities, strict=True)]
    sent = files if headers == "sent" else parts
    return tuple((data, len(file) - len(part)) for data, file, part in zip(sent, files, parts, strict=True))


def decode_image(data: bytes, shape: tuple[int, ...], codec: str, headers: str) -> np.ndarray | None:
    """Return the image of bytes that arrived, uint8 of `shape`, or None where they cannot be decoded.

    Zeros may lie behind them; the other arguments are those of `encode_payloads`.
    """
    codec, coded = codec.removesuffix(HALF), _shrink(shape, codec)
    try:
        file = data if headers == "sent" else _restore_codec_header(data, coded, codec)
        with Image.open(io.BytesIO(file)) as image:
            right, picture = (image.height, image.width) == coded[:2], image.convert("L" if len(shape) == 2 else "RGB")
        if coded != shape:
            picture = picture.resize((shape[1], shape[0]), Image.Resampling.BICUBIC)
    except (OSError, ValueError, SyntaxError, IndexError, RuntimeError):  # what Pillow raises for a broken file
        return None
    return np.array(picture) if right else None


def _shrink(shape: tuple[int, ...], codec: str) -> tuple[int, ...]:
    """Return the shape that an image is coded in: of half its sides where the codec says so."""
    if not codec.endswith(HALF):
        return shape
    return (max(1, shape[0] // 2), max(1, shape[1] // 2), *shape[2:])


def _save_with_codec(image: Image.Image, codec: str, quality: int, optimise: bool) -> bytes:
    """Return a file, as small as the codec can make it; a JPEG with tables of its own only if `optimise`."""
    buffer = io.BytesIO()
    if codec == "webp":
        image.save(buffer, "WEBP", quality=quality, method=6)
    elif codec == "avif":  # twice as fast as by default, for 1.5 % more bytes; one thread gives the same everywhere
        image.save(buffer, "AVIF", quality=quality, speed=8, max_threads=1)
    else:
        image.save(buffer, "JPEG", quality=quality, optimize=optimise)
    return buffer.getvalue()


def _strip_codec_header(file: bytes, codec: str, quality: int) -> bytes:
    if codec == "webp":
        frame = file[RIFF_HEADER:]
        return frame[:TAG] + frame[TAG + START_AND_SIZE :]
    if codec == "avif":
        return file[_avif_frame(file) :]
    return bytes([quality]) + file[_scan(file) : -len(END_OF_JPEG)]


def _restore_codec_header(data: bytes, shape: tuple[int, ...], codec: str) -> bytes:
    """Return the file to which bytes without header belong."""
    if codec == "jpeg":
        return _jpeg_header(shape, data[0]) + data[1:] + END_OF_JPEG
    if codec == "avif":
        return _restore_avif(_avif_header(shape), data)
    height, width = shape[:2]
    size = width.to_bytes(2, "little") + height.to_bytes(2, "little")
    frame = data[:TAG] + b"\x9d\x01\x2a" + size + data[TAG:]
    frame += bytes(len(frame) % 2)
    chunk = b"WEBPVP8 " + len(frame).to_bytes(4, "little") + frame
    return b"RIFF" + len(chunk).to_bytes(4, "little") + chunk


@lru_cache(maxsize=256)
def _jpeg_header(shape: tuple[int, ...], quality: int) -> bytes:
    """Return the header that all JPEGs of a shape and quality have: that of a black one."""
    file = _save_with_codec(Image.fromarray(np.zeros(shape, np.uint8)), "jpeg", quality, optimise=False)
    return file[: _scan(file)]


def _scan(file: bytes) -> int:
    """Return the position at which the coded image of a JPEG begins."""
    start = file.index(START_OF_SCAN) + len(START_OF_SCAN)
    return start + int.from_bytes(file[start : start + 2], "big")


def _avif_frame(file: bytes) -> int:
    """Return the position of the size of an AVIF's frame."""
    sequence = file.index(b"mdat") + len(b"mdat") + 3  # behind the delimiter and a byte: the sequence header's size
    return sequence + 1 + file[sequence] + 1


@lru_cache(maxsize=16)
def _avif_header(shape: tuple[int, ...]) -> bytes:
    """Return the header that all AVIFs of a shape have, but for two lengths: that of a black one."""
    file = _save_with_codec(Image.fromarray(np.zeros(shape, np.uint8)), "avif", 0, optimise=False)
    return file[: _avif_frame(file)]


def _restore_avif(header: bytes, data: bytes) -> bytes:
    """Return the file of a frame: both lengths, of the data and of the box that holds them, follow from its own."""
    size = prefix = 0
    for byte in data[:4]:  # seven bits each, the lowest first, the eighth says whether more follow
        size |= (byte & 0x7F) << 7 * prefix
        prefix += 1
        if byte < 0x80:
            break
    extent, box = header.index(b"iloc") + TO_LENGTH, header.index(b"mdat") - 4
    file = bytearray(header + data[: prefix + size])
    file[extent : extent + 4] = (len(file) - box - 8).to_bytes(4, "big")
    file[box : box + 4] = (len(file) - box).to_bytes(4, "big")
    return bytes(file)
