"""Damage to a stored file is noticed before anything in it is read."""

from __future__ import annotations

import errno
import io
import os
import random
import zipfile
from pathlib import Path
from typing import Any, BinaryIO

import pytest
import torch

from semcom.config import RunError
from semcom.runs.folder.checkpoint import load_checkpoint, save_checkpoint
from semcom.runs.folder.checksum import save_with_checksum, verify_checksum

CONTENT = {"hash": "abc", "progress": {"round": 3, "loss": 0.5}, "state": {"t": torch.arange(100.0)}}


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("good") / "c.pt"
    save_checkpoint(path, CONTENT)
    return path.read_bytes()


def sealed(data: bytes) -> bool:
    return verify_checksum(io.BytesIO(data))


def test_a_sealed_file_is_a_torch_file_and_a_zip_archive(good: bytes, tmp_path: Path) -> None:
    (tmp_path / "c.pt").write_bytes(good)
    for content in (load_checkpoint(tmp_path / "c.pt"), torch.load(tmp_path / "c.pt", weights_only=True)):
        assert content["hash"] == "abc" and content["progress"] == CONTENT["progress"]
        assert torch.equal(content["state"]["t"], torch.arange(100.0))
    assert zipfile.ZipFile(tmp_path / "c.pt").testzip() is None


def test_a_flipped_bit_is_noticed_wherever_it_is(good: bytes) -> None:
    assert sealed(good)
    rng = random.Random(0)
    for i in range(len(good)):
        damaged = bytearray(good)
        damaged[i] ^= 1 << rng.randrange(8)
        assert not sealed(bytes(damaged)), i


def test_a_cut_or_grown_file_is_noticed(good: bytes) -> None:
    cuts = [*range(300), *range(300, len(good), 97), *range(len(good) - 300, len(good))]
    assert not any(sealed(good[:n]) for n in cuts)
    assert not any(sealed(data) for data in (good + b"\0", b"\0" + good, good + good, good[1:]))


def test_large_files_are_read_in_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("semcom.runs.folder.checksum._BLOCK", 1000)
    for n in (0, 1, 5000):
        save_checkpoint(tmp_path / "c.pt", {"t": torch.arange(n)})
        assert torch.equal(load_checkpoint(tmp_path / "c.pt")["t"], torch.arange(n))


def refused(path: Path) -> str:
    with pytest.raises(RunError) as error:
        load_checkpoint(path)
    text = str(error.value)
    assert "\n" not in text and str(path) in text
    return text


def test_what_is_no_checkpoint_gets_one_line(good: bytes, tmp_path: Path) -> None:
    path = tmp_path / "c.pt"
    for content in (good[:1000], good[:-1], b"", b"hello", b"PK\x05\x06" + bytes(18)):
        path.write_bytes(content)
        assert "move it away to start again" in refused(path)
    for value in ([1, 2], None, torch.zeros(3)):
        save_checkpoint(path, value)  # type: ignore[arg-type]
        assert "not a checkpoint" in refused(path)
    path.unlink()
    assert "cannot be read: No such file" in refused(path)
    path.mkdir()
    assert "cannot be read: it is no file" in refused(path)


class Full(io.BytesIO):
    """A file on a disk with some room left."""

    def __init__(self, room: int, number: int) -> None:
        super().__init__()
        self.room, self.number = room, number

    def write(self, data: Any) -> int:
        self.room -= len(data)
        if self.room < 0:
            raise OSError(self.number, os.strerror(self.number))
        return super().write(data)


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EFBIG])
def test_a_full_disk_is_an_error_of_the_system_at_every_write(good: bytes, number: int) -> None:
    """torch makes some of them its own: 'unexpected pos 64 vs 0'."""
    for room in (*range(0, len(good), 61), len(good) - 1):
        with pytest.raises(OSError) as error:
            save_with_checksum(CONTENT, Full(room, number))
        assert error.value.errno == number
    file: BinaryIO = Full(len(good) + 2, number)  # the length of the comment is written twice
    save_with_checksum(CONTENT, file)
    assert verify_checksum(file)


def test_an_error_of_another_kind_stays_what_it_is(tmp_path: Path) -> None:
    with pytest.raises(Exception, match="pickle"):
        save_checkpoint(tmp_path / "c.pt", {"state": lambda: None})
    assert list(tmp_path.iterdir()) == []
