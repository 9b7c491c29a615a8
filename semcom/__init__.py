"""semcom: federated learning of semantic communication over noisy channels.

    import semcom

    result = semcom.run(semcom.RunConfig(method="fedcl", clients=5))
    print(result.summary["accuracy"])

What needs torch is imported when it is first used, so that `import semcom` is quick.
"""

from __future__ import annotations

import importlib
from importlib import metadata
from typing import TYPE_CHECKING, Any

from semcom.config import (
    AirConfig,
    ChannelConfig,
    ConfigError,
    DataConfig,
    ModelConfig,
    PartitionConfig,
    RunConfig,
    RunError,
    TrainConfig,
)

if TYPE_CHECKING:
    from semcom.data.datasets import Dataset
    from semcom.engine.population import Population, average
    from semcom.methods.base import Method
    from semcom.registry import DATASETS, ENCODERS, HEADS, METHODS
    from semcom.request import resolve
    from semcom.runner import Result, run

try:
    __version__ = metadata.version("semcom")
except metadata.PackageNotFoundError:  # run from a source tree that was never installed
    __version__ = "0.0.0"

_LAZY = {
    "DATASETS": "semcom.registry",
    "ENCODERS": "semcom.registry",
    "HEADS": "semcom.registry",
    "METHODS": "semcom.registry",
    "Dataset": "semcom.data.datasets",
    "Method": "semcom.methods.base",
    "Population": "semcom.engine.population",
    "Result": "semcom.runner",
    "average": "semcom.engine.population",
    "resolve": "semcom.request",
    "run": "semcom.runner",
}
"""Exported name -> the module that is imported when it is first asked for."""

__all__ = [
    "DATASETS",
    "ENCODERS",
    "HEADS",
    "METHODS",
    "AirConfig",
    "ChannelConfig",
    "ConfigError",
    "DataConfig",
    "Dataset",
    "Method",
    "ModelConfig",
    "PartitionConfig",
    "Population",
    "Result",
    "RunConfig",
    "RunError",
    "TrainConfig",
    "__version__",
    "average",
    "resolve",
    "run",
]


def __getattr__(name: str) -> Any:
    """Imports what needs torch at its first use (PEP 562)."""
    if name not in _LAZY:
        raise AttributeError(f"module 'semcom' has no attribute {name!r}")
    return getattr(importlib.import_module(_LAZY[name]), name)
