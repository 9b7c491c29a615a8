"""One run of a sweep, in any process: its outcome lies in its folder."""

from __future__ import annotations

import os
import tempfile
import traceback
from collections.abc import Collection, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from semcom.config import RunError, from_dict, run_hash
from semcom.files import ERROR, METRICS, TRAINING, write_atomically
from semcom.runs.folder.folder import drop_checkpoints
from semcom.runs.folder.lock import BusyError
from semcom.runs.folder.summary import read_summary
from semcom.runs.request.stop import Stopped, raise_on_stop_signals, stop_after_minutes
from semcom.studies.experiment import Train
from semcom.studies.results.outcome import locate_run_folder

ROOM = 1 << 20
"""Bytes that have to fit on the disk for a run to start."""


def attempt_run(content: Mapping[str, Any], train: Train, limit_minutes: float | None) -> None:
    """Carry out one run; a failure is left in the run's folder and does not stop the others.

    Args:
        content: the configuration as plain values: a plug-in's classes are not known before it is loaded here.
        train: function that carries it out.
        limit_minutes: time after which it is stopped, with its state kept (None: none).

    Raises:
        BusyError: another process has the run.
        OSError: the disk takes no more files; the run has not begun.
        KeyboardInterrupt, Stopped: a signal ended it; its state is kept.
    """
    from semcom.engine.train.precision import reset_torch  # imports torch

    config = from_dict(content)
    folder = locate_run_folder(config)
    probe_disk(folder.parent)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with raise_on_stop_signals(), stop_after_minutes(limit_minutes), reset_torch():
            train(config)
        if read_summary(folder, run_hash(config)) is None:
            raise RunError("the run ended without a summary")
        _drop_models(folder, config.keep)
    except (BusyError, Stopped):  # the folder of a busy one is not ours to write to
        raise
    except (Exception, SystemExit) as error:
        text = f"{format_attempt_error(error)}\n\n{traceback.format_exc()}"
        with suppress(OSError):  # a full disk: the sweep then says so
            write_atomically(folder / ERROR, text)


def _drop_models(folder: Path, keep: Collection[str]) -> None:
    """Remove the models of a finished run but those that are to be kept: many runs would fill a disk with them."""
    for place in (folder, folder / TRAINING) if "checkpoint" not in keep else ():
        if (place / METRICS).is_file():  # of `semcom.run`: another function's files are its own
            drop_checkpoints(place)


def probe_disk(folder: Path) -> None:
    """Write as much as a small run needs, and remove it. Raises OSError where the disk is full."""
    with tempfile.TemporaryFile(dir=folder) as file:
        file.write(bytes(ROOM))
        file.flush()
        os.fsync(file.fileno())


def format_attempt_error(error: BaseException) -> str:
    """Format an exception in a line: its type, and the first line of its text."""
    return f"{type(error).__name__}: {(str(error).splitlines() or [''])[0]}"
