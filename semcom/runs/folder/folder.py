"""A run's folder: config.json, metrics.jsonl, summary.json, arrays.npz, checkpoint.pt or the weights in its place."""

from __future__ import annotations

import errno
import json
import logging
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

from semcom.config import ConfigError, RunConfig, RunError, list_identity_differences, run_hash
from semcom.files import (
    ARRAYS,
    CARD,
    CHECKPOINT,
    CONFIG,
    ERROR,
    EXPORT,
    METRICS,
    MODEL,
    PREVIOUS,
    ROWS,
    SUMMARY,
    SWEEP,
    TABLE,
    TRAINING,
    WEIGHTS,
    append_to_file,
    digest_of_file,
    locate_aside,
    remove_leftover_files,
    resolve_folder,
    set_file_aside,
    sync_file,
    write_atomically,
)
from semcom.runs.folder.arrays import Arrays, read_arrays, write_arrays
from semcom.runs.folder.lines import DamagedRun, format_lines, read_metrics
from semcom.runs.folder.lock import LOCK, MOMENT_S, hold_lock, watch_lock
from semcom.runs.folder.stored import format_config, locate_training, read_stored_config
from semcom.runs.folder.summary import format_summary, read_summary
from semcom.runs.request.inputs import find_changed_input

LOG = logging.getLogger(__name__)
REMEDY = "wait for it, or give another folder"
"""What helps where another process runs in the folder."""
SHOWN = 3
"""Number of fields that are named where a folder holds another run."""


class WriteError(RunError):
    """A file of the folder that could not be written, as on a full disk: its name and the system's reason."""


@contextmanager
def name_file_in_error(name: str) -> Iterator[None]:
    """Raise WriteError, which names the file, if the system refuses to write inside."""
    try:
        yield
    except OSError as error:
        raise WriteError(f"{name}: {error.strerror or error}") from error


class Folder:
    """The folder of one run.

    A checkpoint must not cover rounds whose lines a crash could still take away. So lines are appended as their rounds
    end, are synced before a checkpoint is renamed into place (`store`), and lines beyond it are cut off when a run is
    taken up (`begin`).

    Args:
        path: created when it is opened.
        config: the resolved configuration.
        again: whether to replace the run in the folder, be it this one or another.
    """

    def __init__(self, path: Path, config: RunConfig, again: bool = False) -> None:
        self.path, self.config, self.again = path, config, again
        self.check_lock: Callable[[], None] = lambda: None

    def check(self) -> None:
        """Raise ConfigError when the folder holds another run, or is no folder."""
        resolve_folder(self.path)
        stored = self.path / CONFIG
        strange = [name for name in (METRICS, SUMMARY, CHECKPOINT) if (self.path / name).exists()]
        if not stored.exists():
            if strange:
                raise ConfigError(f"out: {self.path} holds {strange[0]} without a {CONFIG}; give another folder")
            if found := _find_study_sign(self.path):  # it would be hidden: what holds a run is read as that run
                raise ConfigError(f"out: {self.path} is the folder of a study: it holds {found}; give another folder")
            return
        try:
            other = read_stored_config(stored, "config")
        except ConfigError as error:  # it may be another tool's, which `again` must not remove
            if self.again and (read_metrics(self.path) or _has_own_summary(self.path)):
                return
            raise ConfigError(f"out: {self.path} holds no run ({error}); give another folder") from None
        if self.again:
            return
        if run_hash(other) != run_hash(self.config):
            found = list_identity_differences(other, self.config)
            more = f"; and {len(found) - SHOWN} more" if len(found) > SHOWN else ""
            fields = "; ".join(found[:SHOWN]) + more
            raise ConfigError(f"out: {self.path} holds another run ({fields}); give another folder, or --again")
        check_stored_reads(self.path)

    def clear(self) -> None:
        """Remove the replaced run, beginning with the sign that it is finished, and its configuration last."""
        made = [path.name for of in (ROWS.format("*"), "leak.png", "leak-*.png") for path in self.path.glob(of)]
        damaged = [locate_aside(self.path / name).name for name in (SUMMARY, ARRAYS, CHECKPOINT, PREVIOUS)]
        for name in (SUMMARY, ERROR, CHECKPOINT, PREVIOUS, WEIGHTS, *made, *damaged, METRICS, ARRAYS, CONFIG):
            (self.path / name).unlink(missing_ok=True)
        exported = self.path / EXPORT
        if (exported / MODEL).exists():
            for name in (MODEL, CARD):
                (exported / name).unlink(missing_ok=True)
            with suppress(OSError):  # of a folder with something else
                exported.rmdir()

    @contextmanager
    def open(self) -> Iterator[None]:
        """Create the folder, keep other processes out, and remove partly written files of a dead process.

        The operating system drops the lock with the process, so a dead one's does not block.

        Raises:
            BusyError: another process has the folder.
            ConfigError: as `check`; another process may have had it in the meantime.
            WriteError: the folder cannot be written to.
        """
        new = not self.path.exists()
        with self._locked():
            self.check()
            for name in (CONFIG, METRICS, SUMMARY, CHECKPOINT, WEIGHTS, ARRAYS):
                remove_leftover_files(self.path / name)
            try:
                yield
            except ConfigError:
                if new and not (self.path / CONFIG).exists():  # a request that is refused leaves nothing
                    shutil.rmtree(self.path)
                raise

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Create the folder and hold its lock; the read-only folder of a finished run needs none."""
        with ExitStack() as stack, name_file_in_error(f"out: {self.path}"):
            self.path.mkdir(parents=True, exist_ok=True)
            try:
                self.check_lock = watch_lock(stack.enter_context(hold_lock(self.path / LOCK, MOMENT_S, REMEDY)))
            except OSError as error:
                if error.errno not in (errno.EROFS, errno.EACCES) or not (self.path / SUMMARY).exists():
                    raise
            held = stack.pop_all()
        with held:
            yield

    @contextmanager
    def _writing(self, name: str) -> Iterator[None]:
        """Surround the writing of a file, see `name_file_in_error`. Raises RunError when the lock is no longer ours."""
        self.check_lock()
        with name_file_in_error(name):
            yield

    def begin(self, kept: Sequence[dict[str, Any]]) -> None:
        """Store the configuration, and cut the metrics back to the lines that the checkpoint covers."""
        for name, text in ((CONFIG, format_config(self.config)), (METRICS, format_lines(kept))):
            path = self.path / name
            with self._writing(name):
                if not path.exists() or path.read_bytes() != text.encode():
                    write_atomically(path, text)
        (self.path / ERROR).unlink(missing_ok=True)

    def summary(self) -> dict[str, Any] | None:
        """Read the summary of a finished run; a damaged file is put aside, with a warning. None without one.

        Raises RunError if it is whole and metrics.jsonl has changed.
        """
        try:
            return read_summary(self.path, run_hash(self.config))
        except DamagedRun:
            raise
        except RunError as error:
            self._set_aside(SUMMARY, error, "the run is finished again")
            return None

    def arrays(self) -> Arrays:
        """Read the arrays of a finished run; a damaged file is put aside, with a warning."""
        try:
            return read_arrays(self.path / ARRAYS, run_hash(self.config))
        except RunError as error:
            self._set_aside(ARRAYS, error, "the arrays are made again")
            return {}

    def _set_aside(self, name: str, error: RunError, then: str) -> None:
        LOG.warning("%s; it is now %s, and %s", error, set_file_aside(self.path / name).name, then)

    def keep(self, found: Arrays) -> None:
        """Write the arrays that a run keeps on request, in place of former ones."""
        with self._writing(ARRAYS):
            write_arrays(self.path / ARRAYS, found, run_hash(self.config))

    def write_error(self, text: str) -> None:
        """Write error.txt, which a finished run does not have; a full disk is ignored."""
        with suppress(OSError):
            if (self.path / SUMMARY).exists():
                (self.path / ERROR).unlink(missing_ok=True)
                return
            write_atomically(self.path / ERROR, text)

    def append(self, line: dict[str, Any]) -> None:
        """Add one line to metrics.jsonl, or no part of it if the disk is full (WriteError)."""
        with self._writing(METRICS):
            append_to_file(self.path / METRICS, format_lines([line]).encode())

    @contextmanager
    def store(self) -> Iterator[Path]:
        """Surround the writing of a checkpoint, and give its path; the metrics are on the disk before it begins."""
        with self._writing(METRICS):
            sync_file(self.path / METRICS)
        with self._writing(CHECKPOINT):
            yield self.path / CHECKPOINT

    def finish(self, summary: dict[str, Any]) -> None:
        """Write summary.json: the run is done. Its checkpoints go where they are not wanted any more.

        Raises RunError when somebody else has changed metrics.jsonl meanwhile.
        """
        with self._writing(METRICS):
            if summary["metrics_digest"] != digest_of_file(self.path / METRICS):
                raise DamagedRun(self.path / METRICS, "the run did not write all of its lines")
        self.keep_weights()
        with self._writing(SUMMARY):
            write_atomically(self.path / SUMMARY, format_summary(summary))
        self.drop_checkpoints()

    def settle_models(self) -> str:
        """Keep of a finished run's models what is asked for, and say what was done, or why it could not be."""
        try:
            written = f"; {WEIGHTS} written" if self.keep_weights() else ""  # first: checkpoints go if that succeeds
            return written + ("; checkpoints removed" if self.drop_checkpoints() else "")
        except RunError as error:
            return f"; {error}"

    def drop_checkpoints(self) -> bool:
        """Remove the checkpoints of a finished run if they are not to stay, and say whether there were any."""
        keep = self.config.keep
        wanted = "checkpoint" not in keep and (self.config.train.drop_checkpoints or "weights" in keep)
        if not (wanted and (self.path / CHECKPOINT).exists()):
            return False
        with self._writing(CHECKPOINT):
            drop_checkpoints(self.path)
        return True

    def keep_weights(self) -> bool:
        """Write the weights of the last checkpoint if they alone are kept, and say whether any were written."""
        wanted = "weights" in self.config.keep and "checkpoint" not in self.config.keep
        if not (wanted and (self.path / CHECKPOINT).exists()):
            return False
        from semcom.runs.folder.weights import write_weights  # imports torch

        with self._writing(WEIGHTS):
            write_weights(self.path)
        return True


def drop_checkpoints(folder: Path) -> None:
    """Remove the checkpoints of a finished run, and rows of the disk unless its weights refer to them.

    The newest one goes last: with an older one alone, the run would count as unfinished.
    """
    rows = [] if (folder / WEIGHTS).exists() else folder.glob(ROWS.format("*"))
    for path in (folder / PREVIOUS, folder / CHECKPOINT, *rows):
        path.unlink(missing_ok=True)


def check_stored_reads(folder: Path) -> None:
    """Raise ConfigError if a file that a stored run has read has changed."""
    stored = locate_training(folder) / CONFIG
    if stored.exists() and (changed := find_changed_input(read_stored_config(stored, "config").contents)):
        words = f"{changed}, which it read, has changed"
        raise ConfigError(f"out: {folder} holds another run ({words}); give another folder, move it away, or --again")


def _has_own_summary(folder: Path) -> bool:
    """Check whether a folder has a summary that a run of semcom has written."""
    try:
        return "metrics_digest" in json.loads((folder / SUMMARY).read_bytes())
    except (OSError, ValueError, TypeError):
        return False


def _find_study_sign(folder: Path) -> str | None:
    """Find a sign that a folder without a run is that of a study, by its name; None without a sign."""
    of_sweep = (name for name in (SWEEP, TABLE) if (folder / name).exists())
    runs = (path.parent.name for path in folder.glob(f"*/{CONFIG}") if path.parent.name != TRAINING)
    return next(of_sweep, None) or next((f"a run in {name}" for name in runs), None)
