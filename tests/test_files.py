"""Files that are written whole, or not at all."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import BinaryIO

import pytest

from semcom.files import append_to_file, resolve_file, write_atomically


def test_a_path_from_home(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/somewhere")
    assert resolve_file("~/a") == Path("/somewhere/a")
    assert resolve_file("a/~") == Path("a/~")
    assert resolve_file("~nobody-at-all/a") == Path("~nobody-at-all/a")  # pathlib raises RuntimeError


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


def test_a_folder_that_cannot_be_synced_is_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fsync = os.fsync

    def picky(number: int) -> None:
        if not os.path.isfile(f"/proc/self/fd/{number}"):
            raise OSError(errno.EINVAL, "not on this file system")
        fsync(number)

    monkeypatch.setattr(os, "fsync", picky)
    assert write_atomically(tmp_path / "file", "text").read_text() == "text"


def test_lines_are_added(tmp_path: Path) -> None:
    for line in (b"one\n", b"two\n", b""):
        append_to_file(tmp_path / "file", line)
    assert (tmp_path / "file").read_bytes() == b"one\ntwo\n"


@pytest.mark.parametrize("call", ["fsync", "replace"])
def test_a_write_that_fails_names_its_file(call: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*arguments: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    path = write_atomically(tmp_path / "file", "one")
    with monkeypatch.context() as patch, pytest.raises(OSError, match=str(path)) as error:
        patch.setattr(os, call, full)
        write_atomically(path, "two")
    assert error.value.errno == errno.ENOSPC and path.read_text() == "one" and list(tmp_path.iterdir()) == [path]
