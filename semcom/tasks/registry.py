"""The tasks by name. An entry is imported on first use."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from semcom.channels.registry import Registry
from semcom.config import ConfigError
from semcom.registry import find_entry
from semcom.tasks.metric import ACCURACY, Metric

if TYPE_CHECKING:
    from semcom.config import Resolved
    from semcom.tasks.scores import ScoreMetric
    from semcom.tasks.task import Task

TASKS: Registry[type[Task]] = Registry(
    "task",
    {
        "classification": "semcom.tasks.classification:Classification",
        "reconstruction": "semcom.tasks.reconstruction:Reconstruction",
    },
    base="semcom.tasks.task:Task",
)
"""Tasks: name -> subclass of `semcom.tasks.task.Task`."""

METRICS: Registry[type[ScoreMetric]] = Registry(
    "metric",
    {
        "top2": "semcom.tasks.scores:Top2",
        "top3": "semcom.tasks.scores:Top3",
        "top5": "semcom.tasks.scores:Top5",
        "ece": "semcom.tasks.scores:CalibrationError",
        "f1": "semcom.tasks.scores:MacroF1",
        "auc": "semcom.tasks.areas:RocArea",
        "auc_micro": "semcom.tasks.areas:RocAreaOfAll",
    },
    base="semcom.tasks.scores:ScoreMetric",
)
"""Metrics that any classification may ask for: name -> subclass of `semcom.tasks.scores.ScoreMetric`."""


def make_task(config: Resolved) -> Task:
    """Make the task of a resolved run, with the metrics that this asks for beside.

    Raises ConfigError for one that is not known, cannot be asked of the run, or is asked for twice.
    """
    task = find_entry(TASKS, config.task, "task")()
    task.prepare(config)
    task.beside = tuple(find_entry(METRICS, name, "train.metrics")() for name in config.train.metrics)
    names = [metric.name for metric in task.judged]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise ConfigError(f"train.metrics: {twice!r} is measured already; leave it out")
    return task


def list_metrics(task: str, beside: Iterable[str] = ()) -> tuple[Metric, ...]:
    """List the metrics of a task and those beside it, the headline first. Raises ConfigError for an unknown one."""
    own = (ACCURACY,) if task == "classification" else find_entry(TASKS, task, "task").metrics
    return (*own, *(find_entry(METRICS, name, "train.metrics").metric for name in beside))
