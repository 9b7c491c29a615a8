"""The recovery of a run: its checkpoint, and the parts of its folder that still hold."""

from __future__ import annotations

import hashlib
import logging
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from semcom.config import Resolved, RunError, run_hash
from semcom.engine.host.clock import Clock
from semcom.engine.host.ranks import Team
from semcom.engine.store.rows import Slot
from semcom.files import CHECKPOINT, METRICS, PREVIOUS, SUMMARY, WEIGHTS, set_file_aside
from semcom.runs.folder import checkpoint
from semcom.runs.folder.folder import Folder
from semcom.runs.folder.lines import digest_metrics, read_metrics
from semcom.runs.folder.weights import load_weights
from semcom.runs.request.stop import defer_stop_signals

LOG = logging.getLogger(__name__)


class Checkpoints:
    """The newest checkpoint of a run's folder, and the one before it; without a folder there are none.

    Attributes:
        begun: begin of the run, in UTC, in the process of the first checkpoint.
        stored: round of the newest one (None: there is none).
        rows: of each, the newest first, handles of the rows in a file, which keep them until the next checkpoint.
    """

    def __init__(self, folder: Folder | None, config: Resolved, clock: Clock) -> None:
        self.folder, self.config, self.clock = folder, config, clock
        self.begun = datetime.now(UTC).isoformat(timespec="seconds")
        self.stored: int | None = None
        self.rows: list[list[Slot]] = []
        self.written_at = time.monotonic()

    def find(self, progress: dict[str, Any]) -> dict[str, Any] | None:
        """Read the newest checkpoint that is whole; None if there is none, or if it is to be replaced.

        A damaged one is put aside, with a warning, if the one before it is whole.

        Args:
            progress: counters of the run before its first round.

        Raises:
            RunError: none is whole, or it is of another run.
        """
        if self.folder is None or self.folder.again:
            return None
        newest, before = self.folder.path / CHECKPOINT, self.folder.path / PREVIOUS
        if not newest.exists():
            others = (path for path in (before, self.folder.path / WEIGHTS) if path.exists())
            return next((read_checkpoint(path, self.config, progress) for path in others), None)
        try:
            return read_checkpoint(newest, self.config, progress)
        except checkpoint.Damaged as error:
            if not before.exists():
                raise
            content = read_checkpoint(before, self.config, progress)
            place, round_ = set_file_aside(newest).name, content["progress"]["round"]
            LOG.warning("%s; it is now %s, and the run goes on from round %d", error, place, round_)
            return content

    def take_up(self, state: Any, round_: int) -> None:
        """Continue from a round's checkpoint, whose State has been restored."""
        if self.folder is None:
            return
        self.stored, self.rows = round_, [checkpoint.list_checkpoint_rows(state)]
        if any(self.rows) and (self.folder.path / CHECKPOINT).exists():  # or the one before is what was taken up
            self.rows.append(checkpoint.claim_checkpoint_rows(state, self.folder.path / PREVIOUS))

    def are_due(self, round_: int) -> bool:
        """Check whether a checkpoint is due after a round: by its number, by the time, or as the last one."""
        train, minutes = self.config.train, (time.monotonic() - self.written_at) / 60
        return round_ % train.checkpoint_every == 0 or round_ == train.rounds or minutes >= train.checkpoint_minutes

    def write(self, state: Any, progress: dict[str, Any]) -> None:
        """Write a checkpoint of the last good state, unless there is one."""
        round_ = progress["round"]
        if self.folder is None or self.stored == round_ or not round_:
            return
        with defer_stop_signals(), self.clock("checkpoint"):
            with self.folder.store() as path:
                content = {
                    "hash": run_hash(self.config),
                    "begun": self.begun,
                    "progress": progress,
                    "state": checkpoint.state_to_checkpoint(state),
                }
                checkpoint.save_checkpoint(path, content)
            self.stored, self.written_at = round_, time.monotonic()
            self.rows = [checkpoint.list_checkpoint_rows(state), *self.rows[:1]]

    def describe(self, round_: int) -> str:
        """Say from where a run goes on that has come to a round."""
        if self.folder is None:
            return f"round {round_}, not stored (no out folder)"
        paths = [self.folder.path / name for name in (CHECKPOINT, PREVIOUS)]
        path = next((path for path in paths if path.exists()), None)  # it may have been renamed, and no new one written
        return "none" if self.stored is None else f"round {self.stored}, in {path}"


def read_checkpoint(path: Path, config: Resolved, progress: dict[str, Any]) -> dict[str, Any]:
    """Read a checkpoint. Raises RunError if it is damaged or not of this run; see `Checkpoints.find`."""
    content = load_weights(path) if path.name == WEIGHTS else checkpoint.load_checkpoint(path)
    if content.get("hash") != run_hash(config):
        raise RunError(f"{path}: belongs to another run; move it away to start again")
    found: Any = content.get("progress")
    if isinstance(found, dict):
        found.setdefault("losses", {})  # older versions counted none
        air, wanted = found.get("air"), progress["air"]
        if isinstance(air, dict):
            found["air"] = {**{name: wanted[name] for name in ("sent_s", "timeline") if name in wanted}, **air}
    fits = checkpoint.fits_checkpoint_template({**progress, "seconds": {}}, found)
    if not fits or found["round"] > config.train.rounds:
        raise RunError(f"{path}: its counters do not fit this run; move it away to start again")
    return content


def restore_state(template: Any, content: dict[str, Any], folder: Path | None, ranks: Team) -> Any:
    """Restore the State in a checkpoint's content.

    Args:
        template: a State of the run.
        content: of the checkpoint.
        folder: folder of rows in files.
        ranks: the processes of the run, which all restore at once.

    Raises:
        RunError: it is not a State of the run.
    """
    try:
        return checkpoint.state_from_checkpoint(template, content["state"], folder, ranks)
    except (RunError, AttributeError, LookupError, TypeError, ValueError) as error:
        reason = error if isinstance(error, RunError) else "its state is no state"
        place = CHECKPOINT if folder is None else folder / CHECKPOINT
        remedy = "give another folder, or move this one away, to start again"
        raise RunError(f"{place}: {reason}; {remedy}") from error


def read_covered_metrics(folder: Path, rounds: int, covered: list[int]) -> list[dict[str, Any]]:
    """Read the lines of the rounds of a checkpoint. Raises RunError unless they have its digest."""
    lines = read_metrics(folder, rounds)
    if digest_metrics(hashlib.sha256(), *lines) != covered:
        wrong = f"lacks lines of rounds 1 to {rounds}, or has others than the run wrote"
        raise RunError(f"{folder / METRICS} {wrong}; give another folder to train it again")
    return lines


def begin_or_recover(
    folder: Folder, stored: int | None, rounds: int, covered: list[int]
) -> tuple[dict[str, Any] | None, list[dict[str, Any]]]:
    """Make a folder ready for the remaining rounds, and read its metrics so far.

    Args:
        folder: of the run.
        stored: round of the restored checkpoint, if any.
        rounds: the run's number of rounds.
        covered: digest of the lines that the checkpoint covers.

    Returns:
        the summary of a finished run (None: it is not finished), and the lines of metrics.jsonl.

    Raises:
        RunError: lines of metrics.jsonl are missing, or have changed.
    """
    summary = folder.summary()
    if summary is not None and stored is None:  # its models have gone, as of a sweep's run
        return summary, read_metrics(folder.path)
    lines = read_covered_metrics(folder.path, stored or 0, covered)
    rounds = rounds if summary is None else summary["rounds"]  # fewer where it stopped early
    if summary is not None and stored != rounds:
        LOG.warning("rounds %d to %d are trained again", (stored or 0) + 1, rounds)
        summary = None
        (folder.path / SUMMARY).unlink()  # it is of other lines, should this be interrupted
    if summary is None:
        folder.begin(lines)
    return summary, lines
