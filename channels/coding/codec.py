"""JPEG, WebP and AVIF coding of small images by Pillow, with each file split into its header and its payload.

A file of a 32 x 32 image is mostly header. Headers need not travel if sender and receiver agree on their content
beforehand. A WebP is then its 3 bytes of frame tag and its partitions, a JPEG one byte for the quality and its scan,
coded with the standard's own tables, and an AVIF the size of its frame and the frame.

At few bytes a JPEG of half the size is better (`jpeg-half`): shrunk by Lanczos, enlarged by bicubic interpolation.
"""

from __future__ import annotations

import io
from bisect import bisect_left
from functools import lru_cache

import numpy as np
from PIL import Image

CODECS = ("webp", "jpeg", "avif", "jpeg-half")
HEADERS = ("sent", "free")
JPEG = tuple(range(1, 96))
QUALITIES = {"webp": tuple(range(0, 101, 5)), "jpeg": JPEG, "avif": tuple(range(0, 96, 5)), "jpeg-half": JPEG}
"""Qualities to try. Pillow advises against a JPEG's above 95, and an AVIF's 100 is another format, lossless."""
HALF = "-half"
"""Suffix of a codec that codes an image at half its height and width, and enlarges the received image."""
END_OF_JPEG = b"\xff\xd9"
START_OF_SCAN = b"\xff\xda"
RIFF_HEADER, TAG, START_AND_SIZE = 20, 3, 7
"""Bytes of a WebP: its RIFF, WEBP and VP8 chunk headers, its frame tag, and its start code with width and height."""
AHEAD = 2
"""Qualities that are tried beyond the first without room: sizes fall in 1 of 100 steps to a better quality."""
TO_LENGTH = 22
"""Bytes from the name of an AVIF's box iloc to the length of its data."""


class Encoder:
    """Encodes an image at the qualities that are asked for, each only once.

    Args:
        pixels: uint8, in the order of `shape`.
        shape: (height, width) or (height, width, 3).
        codec: one of `CODECS`.
        headers: "sent", as part of the bytes, or "free".
    """

    def __init__(self, pixels: bytes, shape: tuple[int, ...], codec: str, headers: str) -> None:
        image = Image.fromarray(np.frombuffer(pixels, np.uint8).reshape(shape))
        height, width = _halve_sides(shape, codec)[:2]
        if image.size != (width, height):
            image = image.resize((width, height), Image.Resampling.LANCZOS)
        self.image, self.codec, self.headers = image, codec.removesuffix(HALF), headers
        self.qualities, self.found = QUALITIES[codec], dict[int, tuple[bytes, int]]()

    def encode(self, at: int) -> tuple[bytes, int]:
        """Encode at a position among the qualities: the sent bytes, and the number of header bytes."""
        if at not in self.found:
            # Without headers a JPEG cannot carry its own Huffman tables, so it keeps the standard's.
            file = _save_file(self.image, self.codec, self.qualities[at], optimise=self.headers == "sent")
            part = _strip_header(file, self.codec, self.qualities[at])
            self.found[at] = file if self.headers == "sent" else part, len(file) - len(part)
        return self.found[at]

    def encode_all(self) -> list[tuple[bytes, int]]:
        """Encode at each quality, the lowest first."""
        return [self.encode(at) for at in range(len(self.qualities))]

    def fit(self, room: float) -> tuple[bytes, int]:
        """Encode at the best quality whose bytes have room; no bytes if none have.

        It bisects, then tries `AHEAD` qualities further up, since sizes do not always rise with the quality.
        """

        def has_room(at: int) -> bool:
            return len(self.encode(at)[0]) <= room

        best = bisect_left(range(len(self.qualities)), True, key=lambda at: not has_room(at)) - 1
        beyond = range(best + 2, min(best + 2 + AHEAD, len(self.qualities)))  # the next one has none
        best = max((at for at in beyond if has_room(at)), default=best)
        return self.encode(best) if best >= 0 else (b"", 0)


encode_image = lru_cache(maxsize=2**14)(Encoder)
"""Makes an `Encoder`, the same for the same image: each test of a run, at each SNR, sends the same images."""


def decode_image(data: bytes, shape: tuple[int, ...], codec: str, headers: str) -> np.ndarray | None:
    """Decode received bytes to an image, uint8 of `shape`, or to None if they cannot be decoded.

    Zeros may follow the bytes. The other arguments are those of `Encoder`.
    """
    codec, coded = codec.removesuffix(HALF), _halve_sides(shape, codec)
    try:
        file = data if headers == "sent" else _restore_header(data, coded, codec)
        with Image.open(io.BytesIO(file), formats=(codec,)) as image:  # or Pillow asks each of its formats in turn
            right, picture = (image.height, image.width) == coded[:2], image.convert("L" if len(shape) == 2 else "RGB")
        if coded != shape:
            picture = picture.resize((shape[1], shape[0]), Image.Resampling.BICUBIC)
    except (OSError, ValueError, SyntaxError, IndexError, RuntimeError):  # what Pillow raises for a broken file
        return None
    return np.array(picture) if right else None


def _halve_sides(shape: tuple[int, ...], codec: str) -> tuple[int, ...]:
    """Compute the shape in which a codec codes an image: half of its sides for codecs that end in `HALF`."""
    if not codec.endswith(HALF):
        return shape
    return (max(1, shape[0] // 2), max(1, shape[1] // 2), *shape[2:])


def _save_file(image: Image.Image, codec: str, quality: int, optimise: bool) -> bytes:
    """Save an image in as few bytes as the codec can, a JPEG with its own tables only if `optimise`."""
    buffer = io.BytesIO()
    if codec == "webp":
        image.save(buffer, "WEBP", quality=quality, method=6)
    elif codec == "avif":  # twice as fast as by default, for 1.5 % more bytes; one thread gives the same everywhere
        image.save(buffer, "AVIF", quality=quality, speed=8, max_threads=1)
    else:
        image.save(buffer, "JPEG", quality=quality, optimize=optimise)
    return buffer.getvalue()


def _strip_header(file: bytes, codec: str, quality: int) -> bytes:
    if codec == "webp":
        frame = file[RIFF_HEADER:]
        return frame[:TAG] + frame[TAG + START_AND_SIZE :]
    if codec == "avif":
        return file[_find_avif_frame(file) :]
    return bytes([quality]) + file[_find_scan(file) : -len(END_OF_JPEG)]


def _restore_header(data: bytes, shape: tuple[int, ...], codec: str) -> bytes:
    """Rebuild the file of bytes that travelled without a header."""
    if codec == "jpeg":
        return _make_jpeg_header(shape, data[0]) + data[1:] + END_OF_JPEG
    if codec == "avif":
        return _restore_avif(_make_avif_header(shape), data)
    height, width = shape[:2]
    size = width.to_bytes(2, "little") + height.to_bytes(2, "little")
    frame = data[:TAG] + b"\x9d\x01\x2a" + size + data[TAG:]
    frame += bytes(len(frame) % 2)  # RIFF pads chunks to an even length
    chunk = b"WEBPVP8 " + len(frame).to_bytes(4, "little") + frame
    return b"RIFF" + len(chunk).to_bytes(4, "little") + chunk


@lru_cache(maxsize=256)
def _make_jpeg_header(shape: tuple[int, ...], quality: int) -> bytes:
    """Make the header that all JPEGs of a shape and quality share: that of a black image."""
    file = _save_file(Image.fromarray(np.zeros(shape, np.uint8)), "jpeg", quality, optimise=False)
    return file[: _find_scan(file)]


def _find_scan(file: bytes) -> int:
    """Find the position at which the coded image of a JPEG begins."""
    start = file.index(START_OF_SCAN) + len(START_OF_SCAN)
    return start + int.from_bytes(file[start : start + 2], "big")


def _find_avif_frame(file: bytes) -> int:
    """Find the position of the size of an AVIF's frame."""
    sequence = file.index(b"mdat") + len(b"mdat") + 3  # behind the delimiter and a byte: the sequence header's size
    return sequence + 1 + file[sequence] + 1


@lru_cache(maxsize=16)
def _make_avif_header(shape: tuple[int, ...]) -> bytes:
    """Make the header that all AVIFs of a shape share up to two lengths: that of a black image."""
    file = _save_file(Image.fromarray(np.zeros(shape, np.uint8)), "avif", 0, optimise=False)
    return file[: _find_avif_frame(file)]


def _restore_avif(header: bytes, data: bytes) -> bytes:
    """Rebuild the file of a frame. Its size gives both lengths: of the data, and of the box that holds them."""
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
