"""What all tests share: rarer collection of garbage, no wait for the disk, forked ranks, and thin networks."""

from __future__ import annotations

import functools
import gc
import importlib.metadata
import os
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from joblib.externals.loky.backend.context import set_start_method

from tests.processes import start_python

gc.set_threshold(100_000, 50, 100)  # the default looks at all objects of torch and pytest thousands of times


def fsync(descriptor: int) -> None:
    """Stand in for `os.fsync`, as on a disk that is done at once: no test of this process cuts its power."""
    os.fstat(descriptor)  # which must be open


os.fsync = fsync
importlib.metadata.packages_distributions = functools.cache(importlib.metadata.packages_distributions)
"""Nothing is installed meanwhile, and what is there is asked for wherever a request names code of no package."""


PORTABLE = ("channels", "config", "data", "methods", "models", "tasks")
"""Rooms of tests that take nothing of the system, but for modules that have `Forked` processes."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what runs on any system: the workflows run it on macOS, on Windows, and with the lowest versions."""
    for item in items:
        room = item.path.relative_to(Path(__file__).parent).parts[0]
        if room in PORTABLE and not hasattr(getattr(item, "module", None), "Forked"):
            item.add_marker(pytest.mark.portable)


def pytest_collection_finish(session: pytest.Session) -> None:
    """Leave what is there before the first test out of the searches that follow."""
    gc.collect()
    gc.freeze()


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Give all of it back, or libraries complain at the end that they have leaked."""
    gc.unfreeze()


set_start_method("forkserver", force=True)  # workers of joblib, which are asked for by `loky` as ever


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Go to an empty folder, and back after the test."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def own_names(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forget the names that a test registers."""
    from semcom.channels import LINKS, PATH_LOSSES, PROFILES
    from semcom.data.registry import AUGMENTATIONS, DATASETS, PARTITIONS
    from semcom.engine.air.registry import ACCESS, COMPRESSIONS, PLACES, PRIVACY, RATES, SPEEDS
    from semcom.engine.air.schedulers import SCHEDULERS
    from semcom.methods.registry import METHODS
    from semcom.models.registry import ENCODERS, HEADS
    from semcom.plots.kinds import KINDS
    from semcom.plots.registry import FIGURES
    from semcom.studies.registry import EXPERIMENTS
    from semcom.tasks.registry import METRICS, TASKS

    data, models = (DATASETS, PARTITIONS, AUGMENTATIONS), (METHODS, ENCODERS, HEADS)
    air = (ACCESS, COMPRESSIONS, RATES, PRIVACY, PLACES, SPEEDS, SCHEDULERS)
    registries: tuple[Any, ...] = (LINKS, PATH_LOSSES, PROFILES, EXPERIMENTS, FIGURES, KINDS, METRICS, TASKS)
    for registry in (*data, *models, *air, *registries):
        monkeypatch.setattr(registry, "_added", dict(registry._added))
        monkeypatch.setattr(registry, "_sources", dict(registry._sources))


@pytest.fixture
def own_generator() -> Iterator[None]:
    """Seed torch's generator for the draws of a test, which leave no trace."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        yield


@pytest.fixture
def forked_ranks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Further processes of a run are forked; `test_ranks` and `test_stop` have some that start Python."""
    monkeypatch.setattr("semcom.engine.host.ranks.subprocess", SimpleNamespace(Popen=start_python, DEVNULL=None))


def make_networks_thin(patch: pytest.MonkeyPatch) -> None:
    """Put a DCGAN of 16 filters, as few as GroupNorm takes, in the place of all DCGANs and small CNNs, to save time."""
    from torch import nn

    from semcom.models import encoders

    make = encoders._dcgan

    def make_thin(channels: int, features: int, size: int = 32, width: int = 16, **options: Any) -> nn.Sequential:
        return make(channels, features, size, 16, **options)

    def make_thin_cnn(channels: int, features: int, size: int = 32) -> nn.Sequential:
        return nn.Sequential(*make_thin(channels, features, size).children(), nn.ReLU(inplace=True))

    for name, function in {"_dcgan": make_thin, "conv4": make_thin, "cnn": make_thin_cnn}.items():
        patch.setattr(encoders, name, function)


@pytest.fixture
def thin(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have thin networks."""
    make_networks_thin(monkeypatch)


@pytest.fixture
def few_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give `semcom channel-check` a hundredth of its draws or less, whose errors are as much larger."""
    numbers = {"noise.UNITS": 2000, "fading.UNITS": 2000, "errors.UNITS": 2000, "users.UNITS": 2000}
    numbers |= {"users.CLIENTS": 50, "fading.ROUNDS": 30, "ofdm.MOVING": 200, "ofdm.WIDTH": 200}
    numbers |= {"digital.SYMBOLS": 2000, "digital.BLOCKS": 20}
    for name, number in numbers.items():
        monkeypatch.setattr(f"semcom.channels.check.{name}", number)
    monkeypatch.setattr("semcom.channels.check.ofdm.FRAMES", {"rayleigh": 200, "tdl": 50, "cdl": 10})
