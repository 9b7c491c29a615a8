"""A torch file that ends with a digest of all of it.

torch's reader ignores the checksums of its archive, so a flipped bit would go into the weights unnoticed. The digest is
in the comment at the archive's end, which torch and every zip tool skip, and it is compared before the file is parsed.
It reveals damage, not forgery: anybody who can write the file can write a digest too.
"""

from __future__ import annotations

import hashlib
import os
import struct
from typing import IO, Any, BinaryIO, cast

import torch

_MARK = b"semcom blake2b "
_LENGTH = len(_MARK) + 2 * hashlib.blake2b().digest_size
"""Bytes of the comment, which follows two bytes with its length at the archive's end."""
_BLOCK = 1 << 20


def save_with_checksum(content: Any, file: BinaryIO) -> None:
    """Save `content` to an open file and seal it.

    Raises OSError as the system reported it: torch wraps some in errors of its own.
    """
    writer = _Writer(file)
    try:
        torch.save(content, cast(IO[bytes], writer))
    except Exception:
        if writer.error is None:
            raise
    if writer.error is not None:
        raise writer.error
    file.seek(-2, os.SEEK_END)
    file.write(_trailer(writer.digest))


def verify_checksum(file: BinaryIO) -> bool:
    """Check every byte of an open file against its seal; the file is left at its beginning."""
    left = file.seek(0, os.SEEK_END) - 2 - _LENGTH
    file.seek(0)
    digest = hashlib.blake2b()
    while left > 0 and (block := file.read(min(left, _BLOCK))):
        digest.update(block)
        left -= len(block)
    digest.update(bytes(2))  # the length as it was when the digest was taken
    whole = left == 0 and file.read() == _trailer(digest)
    file.seek(0)
    return whole


def _trailer(digest: hashlib.blake2b) -> bytes:
    """Format the end of a sealed archive: the length of its comment, and the comment."""
    return struct.pack("<H", _LENGTH) + _MARK + digest.hexdigest().encode()


class _Writer:
    """File for torch to write to: its bytes are digested on their way, and its first error is remembered."""

    def __init__(self, file: BinaryIO) -> None:
        self.file, self.digest = file, hashlib.blake2b()
        self.error: OSError | None = None

    def write(self, data: bytes) -> int:
        """Write all of `data`."""
        self.digest.update(data)
        try:
            return self.file.write(data)
        except OSError as error:
            self.error = self.error or error
            raise

    def flush(self) -> None:
        """Do nothing: the code that opened the file flushes it once."""
