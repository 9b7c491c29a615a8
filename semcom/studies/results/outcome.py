"""The outcome of a run in its folder: a summary or an error, and an experiment's additions to the summary."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import semcom
from semcom.config import RunConfig, RunError, run_hash
from semcom.files import ERROR, SUMMARY, TRAINING, open_file
from semcom.runs.folder.stored import write_stored_config
from semcom.runs.folder.summary import read_summary, write_summary
from semcom.studies.grid import set_fields

if TYPE_CHECKING:
    from semcom.runs.result.result import Result
    from semcom.runs.rounds.loop import Observer


def locate_run_folder(config: RunConfig) -> Path:
    """Name the folder of a run of a sweep: its `out`, which the plan of the sweep has set."""
    assert config.out is not None
    return Path(config.out)


def train_and_add_outcome(
    config: RunConfig, more: Callable[[Result], Mapping[str, Any]], observe: Observer | None = None
) -> None:
    """Carry out a run of an experiment that adds to its summary: train, then write the summary with the additions.

    The training lies in a folder of its own, `TRAINING`: the run has a summary only when both are done.

    Args:
        config: of the run, with its `out`.
        more: function from the finished training to additions or replacements in its summary.
        observe: as of `semcom.run`.
    """
    folder = locate_run_folder(config)
    result = semcom.run(set_fields(config, {"out": str(folder / TRAINING)}), observe=observe)
    found = more(result)
    write_stored_config(folder, config)
    write_summary(folder, {**result.summary, **found, "hash": run_hash(config)})


def has_outcome(config: RunConfig) -> bool:
    """Check whether a run has left its summary; a damaged one, or another run's, is none."""
    folder = locate_run_folder(config)
    try:  # a run that is waited for is asked often, and its hash takes longer than a look at its folder
        return (folder / SUMMARY).exists() and read_summary(folder, run_hash(config)) is not None
    except RunError:
        return False


def read_left_error(config: RunConfig) -> str | None:
    """Read the first line of a failed run's error; None without one."""
    return read_first_line(locate_run_folder(config) / ERROR) or None


def read_first_line(path: Path) -> str:
    """Read the first line of a text; empty where there is none that can be read."""
    try:
        with open_file(path) as file:
            return file.readline().decode(errors="replace").strip()
    except OSError:
        return ""
