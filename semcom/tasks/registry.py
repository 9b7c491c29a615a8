"""The tasks by name; an entry is imported when it is first asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from channels.registry import Registry
from semcom.registry import find
from semcom.tasks.metric import ACCURACY, Metric

if TYPE_CHECKING:
    from semcom.config import Resolved
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


def make_task(config: Resolved) -> Task:
    """Make the task of a resolved run. Raises ConfigError for one that is not known, or cannot be asked of the run."""
    task = find(TASKS, config.task, "task")()
    task.prepare(config)
    return task


def list_metrics(task: str) -> tuple[Metric, ...]:
    """Return the metrics of a task, the headline first. Raises ConfigError for one that is not known."""
    return (ACCURACY,) if task == "classification" else find(TASKS, task, "task").metrics
