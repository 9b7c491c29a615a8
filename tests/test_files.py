"""Files that are written whole, or not at all."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import BinaryIO

import pytest

from semcom.files import append_to_file, remove_leftover_files, resolve_file, sync_file, write_atomically


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


def test_a_new_file_is_on_the_disk_before_it_has_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise a loss of power could leave the name without the content; the folder comes last."""
    calls: list[str] = []
    fsync, replace = os.fsync, os.replace
    monkeypatch.setattr(os, "fsync", lambda number: calls.append("sync") or fsync(number))
    monkeypatch.setattr(os, "replace", lambda old, new: calls.append("rename") or replace(old, new))
    write_atomically(tmp_path / "file", "text")
    sync_file(tmp_path / "file")
    assert calls == ["sync", "rename", "sync", "sync"]


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


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full")
def test_a_device_that_is_full() -> None:
    with pytest.raises(OSError) as error:
        append_to_file(Path("/dev/full"), b"line\n")
    assert error.value.errno == errno.ENOSPC


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EIO])
@pytest.mark.parametrize("call", ["fsync", "replace"])
def test_a_write_that_fails_names_its_file(
    number: int, call: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*arguments: object) -> None:
        raise OSError(number, os.strerror(number))

    path = write_atomically(tmp_path / "file", "one")
    with monkeypatch.context() as patch, pytest.raises(OSError, match=str(path)) as error:
        patch.setattr(os, call, full)
        write_atomically(path, "two")
    assert error.value.errno == number and path.read_text() == "one" and list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("taken", [0, 1, 4])
def test_a_line_that_does_not_fit_is_taken_back(taken: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The system takes some of its bytes before it says that the disk is full."""
    path = write_atomically(tmp_path / "file", "one\n")
    opened = Path.open

    class Almost:
        def __init__(self, file: BinaryIO) -> None:
            self.file, self.room = file, taken

        def __enter__(self) -> Almost:
            return self

        def __exit__(self, *error: object) -> None:
            self.file.close()

        def seek(self, at: int, whence: int) -> int:
            return self.file.seek(at, whence)

        def truncate(self, size: int) -> int:
            return self.file.truncate(size)

        def write(self, data: bytes) -> int:
            if not self.room:
                raise OSError(errno.ENOSPC, "full")
            self.room -= 1
            return self.file.write(data[:1])

    with monkeypatch.context() as patch, pytest.raises(OSError, match="full"):
        patch.setattr(Path, "open", lambda *arguments, **options: Almost(opened(*arguments, **options)))
        append_to_file(path, b"two, three\n")
    assert path.read_bytes() == b"one\n"


def test_what_killed_processes_left_is_removed(tmp_path: Path) -> None:
    ours = [".file.1.part", ".file.4194304.part"]
    others = [".file.x.part", ".file.1.part.txt", "file.1.part", ".other.1.part", "file"]
    for name in (*ours, *others):
        (tmp_path / name).write_text("half")
    remove_leftover_files(tmp_path / "file")
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(others)
