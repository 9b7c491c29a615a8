"""What all tests share: a collector of garbage that comes less often, and files that do not wait for the disk."""

from __future__ import annotations

import gc
import os

import pytest

gc.set_threshold(100_000, 50, 100)  # the default looks at all objects of torch and pytest thousands of times


def fsync(descriptor: int) -> None:
    """Stand in for `os.fsync`, as on a disk that is done at once: no test of this process cuts its power."""
    os.fstat(descriptor)  # which must be open


os.fsync = fsync


def pytest_collection_finish(session: pytest.Session) -> None:
    """Leave what is there before the first test out of the searches that follow."""
    gc.collect()
    gc.freeze()


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Give all of it back, or libraries complain at the end that they have leaked."""
    gc.unfreeze()
