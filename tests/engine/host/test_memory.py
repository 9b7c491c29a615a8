"""Freed memory stays with the process, and limits of control groups count, of either version and of those above."""

from __future__ import annotations

import platform
import resource
import sys
from pathlib import Path

import pytest
import torch

from semcom.engine.host import memory
from semcom.engine.host.memory import keep_freed_memory


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="glibc only")
def test_freed_memory_is_used_again_without_page_faults() -> None:
    assert keep_freed_memory()

    def touch() -> int:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        for _ in range(20):
            del_me = torch.ones(4 << 20)  # 16 MiB: 4,096 pages
            del del_me
        return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

    touch()
    assert touch() < 4096  # fewer than one of the twenty would cost


@pytest.mark.parametrize(
    ("own", "files", "left"),
    [
        ("0::/a/b", {"a/b/memory.max": "300", "a/b/memory.stat": "anon 100\nfile 50"}, 200),
        ("0::/a/b", {"a/memory.max": "300", "a/memory.stat": "anon 50", "a/b/memory.max": "max"}, 250),
        ("0::/a/b", {"a/b/memory.max": "max", "a/b/memory.stat": "anon 50"}, sys.maxsize),
        (
            "5:cpu:/a\n4:memory:/a/b\n0::/",
            {"memory/a/memory.limit_in_bytes": "70", "memory/a/memory.stat": "total_rss 30"},
            40,
        ),
        ("4:memory:/seen/outside", {"memory/memory.limit_in_bytes": "70", "memory/memory.stat": "total_rss 80"}, 0),
    ],
)
def test_the_tightest_group_counts(
    own: str, files: dict[str, str], left: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text + "\n")
    (tmp_path / "own").write_text(own + "\n")
    monkeypatch.setattr(memory, "GROUPS", tmp_path)
    monkeypatch.setattr(memory, "OWN", tmp_path / "own")
    free = memory.measure_free_memory(torch.device("cpu"))
    assert free == left if left < sys.maxsize else free > 1 << 20
