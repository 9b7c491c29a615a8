"""The datasets by name; an entry is imported when it is first asked for."""

from __future__ import annotations

from collections.abc import Callable

from channels.registry import Registry
from semcom.data.dataset import Dataset

DATASETS: Registry[Callable[[str | None], Dataset]] = Registry(
    "dataset",
    {
        "digits": "semcom.data.sources:digits",
        "cifar10": "semcom.data.sources:cifar10",
        "mnist": "semcom.data.sources:mnist",
    },
)
"""Name -> function of the data root that loads one."""
