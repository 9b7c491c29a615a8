"""Writing files so that a reader, or a crash, never meets half of one."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO


def write_atomically(path: Path | str, content: str | bytes | Callable[[BinaryIO], object]) -> Path:
    """Writes a file under a temporary name beside it, syncs and renames it; makes its folder if there is none.

    Args:
        path: the file.
        content: text, bytes, or a function that writes to the open file.

    Returns:
        `path`.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with temporary.open("wb") as file:
            if callable(content):
                content(file)
            else:
                file.write(content.encode() if isinstance(content, str) else content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
    return path
