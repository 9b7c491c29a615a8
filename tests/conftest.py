"""What all tests share: a collector of garbage that comes less often, files that do not wait, and forked ranks."""

from __future__ import annotations

import gc
import os
from types import SimpleNamespace

import pytest
from joblib.externals.loky.backend.context import set_start_method

from tests.processes import start_python

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


set_start_method("forkserver", force=True)  # workers of joblib, which are asked for by `loky` as ever


@pytest.fixture
def forked_ranks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Further processes of a run are forked; `test_ranks` and `test_stop` have some that start Python."""
    monkeypatch.setattr("semcom.engine.host.ranks.subprocess", SimpleNamespace(Popen=start_python, DEVNULL=None))
