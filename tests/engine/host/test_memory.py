"""Freed memory stays with the process."""

from __future__ import annotations

import platform
import resource

import pytest
import torch

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
