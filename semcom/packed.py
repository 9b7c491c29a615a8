"""Files of an archive that are read where they lie, by what readers ask of a path."""

from __future__ import annotations

import errno
import fnmatch
import lzma
import weakref
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

DAMAGED = (OSError, EOFError, zipfile.BadZipFile, zlib.error, lzma.LZMAError, UnicodeError, RuntimeError, MemoryError)
"""Errors of reading a damaged archive, or a file that is none.

RuntimeError: it has a password. MemoryError: an entry of LZMA asks for a larger dictionary than there is memory.
"""
BOUNDED = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
"""Compressions that `zipfile` unpacks no further than it is asked to."""


class BoundedArchive(zipfile.ZipFile):
    """An archive whose entries are read 4 KiB at a time, whatever is asked for: a byte of LZMA may become thousands."""

    def open(self, *args: Any, **kwargs: Any) -> Any:
        """Open an entry as `zipfile.ZipFile.open` does."""
        file: Any = super().open(*args, **kwargs)
        if isinstance(file, zipfile.ZipExtFile):
            file.__dict__["read"] = lambda _size=-1: file.read1(4096)
        return file

    def read_entry(self, entry: zipfile.ZipInfo) -> bytes:
        """Read all of an entry, and no more than it says that it has."""
        if entry.compress_type in BOUNDED:
            with super().open(entry) as file:
                return file.read(entry.file_size)
        with self.open(entry) as file:
            return b"".join(iter(file.read, b""))


class Archive:
    """The files of an archive by their names, in it and in an archive within it.

    Args:
        file: of the archive.
        parts: the open archives, with the entries of each that count.
        stack: what closes them, once nothing refers to the archive any more.
    """

    def __init__(self, file: Path, parts: list[tuple[BoundedArchive, list[zipfile.ZipInfo]]], stack: ExitStack) -> None:
        self.file = file
        self.entries = {entry.filename: (part, entry) for part, entries in parts for entry in entries}
        self.folders = {str(place) for name in self.entries for place in PurePosixPath(name).parents}
        weakref.finalize(self, stack.close)

    def read(self, name: str) -> bytes:
        """Read a file. Raises OSError where there is none, or its archive is damaged."""
        if name not in self.entries:
            raise FileNotFoundError(errno.ENOENT, "No such file or directory", f"{self.file}/{name}")
        part, entry = self.entries[name]
        try:
            return part.read_entry(entry)
        except DAMAGED as error:
            raise OSError(errno.EIO, f"its archive is damaged: {error}", f"{self.file}/{name}") from None


_Base: Any = Path if TYPE_CHECKING else object


class Packed(_Base):  # type: ignore[misc]
    """A file or a folder of an archive; other methods of a path it does not have.

    Args:
        archive: that it is in.
        inside: its name there, "." for all of it.
    """

    __slots__ = ("archive", "inside")

    def __init__(self, archive: Archive, inside: str = ".") -> None:
        self.archive, self.inside = archive, inside

    def __truediv__(self, name: str) -> Packed:
        return Packed(self.archive, name if self.inside == "." else f"{self.inside}/{name}")

    def __str__(self) -> str:
        return str(self.archive.file) if self.inside == "." else f"{self.archive.file}/{self.inside}"

    def __repr__(self) -> str:
        return f"Packed({str(self)!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Packed) and str(self) == str(other)

    def __lt__(self, other: Any) -> bool:
        return self.inside < other.inside

    def __hash__(self) -> int:
        return hash(str(self))

    @property
    def name(self) -> str:
        """Its last part."""
        return self.archive.file.name if self.inside == "." else self.inside.rpartition("/")[2]

    @property
    def parent(self) -> Any:
        """The folder that it is in."""
        above = self.inside.rpartition("/")[0] or "."
        return self.archive.file.parent if self.inside == "." else Packed(self.archive, above)

    @property
    def parents(self) -> list[Any]:
        """All folders above it, the nearest first."""
        return [self.parent, *self.parent.parents]

    def is_file(self) -> bool:
        """Check whether it is a file."""
        return self.inside in self.archive.entries

    def is_dir(self) -> bool:
        """Check whether it is a folder."""
        return self.inside in self.archive.folders

    def exists(self) -> bool:
        """Check whether it is there."""
        return self.is_file() or self.is_dir()

    def glob(self, pattern: str) -> Iterator[Packed]:
        """Yield the files that fit a pattern, with as many parts."""
        start, parts = "" if self.inside == "." else f"{self.inside}/", pattern.split("/")
        for name in self.archive.entries:
            inside = name.removeprefix(start).split("/")
            if name.startswith(start) and len(inside) == len(parts) and all(map(fnmatch.fnmatchcase, inside, parts)):
                yield Packed(self.archive, name)

    def read_bytes(self) -> bytes:
        """Read all of it. Raises OSError."""
        return self.archive.read(self.inside)

    def read_text(self, encoding: str = "utf-8", errors: str = "strict") -> str:
        """Read all of it as a text. Raises OSError."""
        return self.read_bytes().decode(encoding, errors)
