"""What a run of a sweep has left in its folder: its summary, or an error."""

from __future__ import annotations

from pathlib import Path

from semcom.config import RunConfig, RunError, run_hash
from semcom.files import ERROR, SUMMARY
from semcom.runs.folder import read_summary


def run_folder(config: RunConfig) -> Path:
    """Return where a run of a sweep leaves its results: its `out`, which the plan of the sweep has set."""
    assert config.out is not None
    return Path(config.out)


def is_finished(config: RunConfig) -> bool:
    """Return whether a run has left its summary; a damaged one, or another run's, is none."""
    folder = run_folder(config)
    try:  # a run that is waited for is asked often, and its hash takes longer than a look at its folder
        return (folder / SUMMARY).exists() and read_summary(folder, run_hash(config)) is not None
    except RunError:
        return False


def left_error(config: RunConfig) -> str | None:
    """Return the first line of what a failed run left; None where there is nothing."""
    path = run_folder(config) / ERROR
    return path.read_text(encoding="utf-8").splitlines()[0] if path.is_file() else None
