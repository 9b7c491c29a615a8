"""Atomic writing."""

from __future__ import annotations

from pathlib import Path
from typing import BinaryIO

import pytest

from semcom.files import write_atomically


@pytest.mark.parametrize("content", ["text\n", b"text\n", lambda file: file.write(b"text\n")])
def test_content(tmp_path: Path, content: object) -> None:
    path = write_atomically(tmp_path / "new" / "file", content)  # type: ignore[arg-type]
    assert path.read_bytes() == b"text\n"
    assert [p.name for p in path.parent.iterdir()] == ["file"]


def test_a_failure_leaves_the_old_file(tmp_path: Path) -> None:
    path = write_atomically(tmp_path / "file", "old")

    def fail(file: BinaryIO) -> None:
        file.write(b"half")
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        write_atomically(path, fail)
    assert path.read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["file"]
