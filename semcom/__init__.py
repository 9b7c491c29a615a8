"""semcom: federated learning of semantic communication over noisy channels.

    import semcom

    result = semcom.run(semcom.RunConfig(method="fedcl", clients=5))
    print(result.summary["accuracy"])

What needs torch is imported when it is first used, so that `import semcom` is quick.
"""

from __future__ import annotations

import importlib
import sys
from importlib import metadata
from typing import TYPE_CHECKING, Any

from semcom.packages import find_hidden_package, is_package_command

if _problem := find_hidden_package("channels"):
    if is_package_command():
        print(f"semcom: error: {_problem}", file=sys.stderr)  # noqa: T201
        sys.exit(2)
    raise ImportError(_problem)

from semcom.config import (  # noqa: E402 - after the check, since it needs `channels`
    AirConfig,
    ChannelConfig,
    ConfigError,
    DataConfig,
    FinishConfig,
    ModelConfig,
    NetworkConfig,
    PartitionConfig,
    RunConfig,
    RunError,
    TrainConfig,
)

importlib.import_module(
    "semcom.runs.request.sources"
).listen()  # first, so that no file of the user's is imported unheard

if TYPE_CHECKING:
    from channels.registry import depends
    from semcom.data.augment import Augmentation
    from semcom.data.dataset import Dataset
    from semcom.data.registry import AUGMENTATIONS, DATASETS, PARTITIONS
    from semcom.data.split import Partition, Split
    from semcom.engine.air.registry import ACCESS, COMPRESSIONS, PATH_LOSSES, PLACES, RATES, SPEEDS
    from semcom.engine.air.schedulers import SCHEDULERS
    from semcom.engine.store.population import Population, average
    from semcom.methods.base import Method
    from semcom.methods.registry import METHODS
    from semcom.models.registry import ENCODERS, HEADS
    from semcom.plots.base import Drawing, Plot
    from semcom.plots.registry import FIGURES
    from semcom.plots.render import plot
    from semcom.plots.report.build import report
    from semcom.runs.request.resolve import resolve
    from semcom.runs.result.embedding import embedding, knn_purity, silhouette
    from semcom.runs.result.result import Result
    from semcom.runs.rounds.load import load
    from semcom.runs.rounds.runner import run
    from semcom.runs.rounds.tracking import TRACKERS, Tracker, scalars
    from semcom.studies.analysis.sheet import table
    from semcom.studies.analysis.study import Study, study
    from semcom.studies.experiment import Experiment
    from semcom.studies.grid import Grid, Variant
    from semcom.studies.registry import EXPERIMENTS
    from semcom.studies.sweep.sweep import sweep
    from semcom.tasks.metric import Metric
    from semcom.tasks.registry import METRICS, TASKS
    from semcom.tasks.scores import ScoreMetric
    from semcom.tasks.task import Task

try:
    __version__ = metadata.version("semcom")
except metadata.PackageNotFoundError:  # run from a source tree that was never installed
    __version__ = "0.0.0"

_LAZY = {
    "AUGMENTATIONS": "semcom.data.registry",
    "Augmentation": "semcom.data.augment",
    "DATASETS": "semcom.data.registry",
    "Drawing": "semcom.plots.base",
    "ENCODERS": "semcom.models.registry",
    "EXPERIMENTS": "semcom.studies.registry",
    "Experiment": "semcom.studies.experiment",
    "FIGURES": "semcom.plots.registry",
    "Grid": "semcom.studies.grid",
    "HEADS": "semcom.models.registry",
    "METHODS": "semcom.methods.registry",
    "METRICS": "semcom.tasks.registry",
    "PARTITIONS": "semcom.data.registry",
    "Dataset": "semcom.data.dataset",
    "Method": "semcom.methods.base",
    "Partition": "semcom.data.split",
    "Plot": "semcom.plots.base",
    "Population": "semcom.engine.store.population",
    "Result": "semcom.runs.result.result",
    **dict.fromkeys(("ACCESS", "COMPRESSIONS", "RATES"), "semcom.engine.air.registry"),
    **dict.fromkeys(("PATH_LOSSES", "PLACES", "SPEEDS"), "semcom.engine.air.registry"),
    "SCHEDULERS": "semcom.engine.air.schedulers",
    "ScoreMetric": "semcom.tasks.scores",
    "Split": "semcom.data.split",
    "Study": "semcom.studies.analysis.study",
    "TASKS": "semcom.tasks.registry",
    "Task": "semcom.tasks.task",
    "Metric": "semcom.tasks.metric",
    "TRACKERS": "semcom.runs.rounds.tracking",
    "Tracker": "semcom.runs.rounds.tracking",
    "Variant": "semcom.studies.grid",
    "depends": "channels.registry",
    "average": "semcom.engine.store.population",
    "embedding": "semcom.runs.result.embedding",
    "knn_purity": "semcom.runs.result.embedding",
    "load": "semcom.runs.rounds.load",
    "plot": "semcom.plots.render",
    "report": "semcom.plots.report.build",
    "resolve": "semcom.runs.request.resolve",
    "run": "semcom.runs.rounds.runner",
    "scalars": "semcom.runs.rounds.tracking",
    "silhouette": "semcom.runs.result.embedding",
    "study": "semcom.studies.analysis.study",
    "sweep": "semcom.studies.sweep.sweep",
    "table": "semcom.studies.analysis.sheet",
}
"""Exported name -> the module that is imported when it is first asked for."""

__all__ = [
    "ACCESS",
    "AUGMENTATIONS",
    "AirConfig",
    "Augmentation",
    "COMPRESSIONS",
    "ChannelConfig",
    "ConfigError",
    "DATASETS",
    "DataConfig",
    "Dataset",
    "Drawing",
    "ENCODERS",
    "EXPERIMENTS",
    "Experiment",
    "FIGURES",
    "FinishConfig",
    "Grid",
    "HEADS",
    "METHODS",
    "METRICS",
    "Method",
    "Metric",
    "ModelConfig",
    "NetworkConfig",
    "PARTITIONS",
    "Partition",
    "PartitionConfig",
    "Plot",
    "Population",
    "PATH_LOSSES",
    "PLACES",
    "RATES",
    "SPEEDS",
    "Result",
    "RunConfig",
    "RunError",
    "SCHEDULERS",
    "ScoreMetric",
    "Split",
    "Study",
    "TASKS",
    "Task",
    "TRACKERS",
    "Tracker",
    "TrainConfig",
    "Variant",
    "__version__",
    "average",
    "depends",
    "embedding",
    "knn_purity",
    "load",
    "plot",
    "report",
    "resolve",
    "run",
    "scalars",
    "silhouette",
    "study",
    "sweep",
    "table",
]


def __getattr__(name: str) -> Any:
    """Import what needs torch at its first use (PEP 562)."""
    if name not in _LAZY:
        raise AttributeError(f"module 'semcom' has no attribute {name!r}")
    return getattr(importlib.import_module(_LAZY[name]), name)
