"""The progress of a sweep: one line on stderr for each run that ends; on a terminal also those that are at work."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING

from semcom.config import Resolved, RunConfig, run_hash
from semcom.files import CONFIG, ERROR
from semcom.runs.accuracy import tested_at
from semcom.runs.folder import read_summary, write_config
from semcom.screen import Screen, on_terminal
from semcom.studies.results.outcome import is_finished, left_error, run_folder
from semcom.studies.sweep.display import Snapshot, shown
from semcom.studies.sweep.following import Following
from semcom.studies.sweep.forecast import Forecast

if TYPE_CHECKING:
    from rich.console import RenderableType


class SweepProgress:
    """Follows runs by what they leave in their folders; a context manager that shows the runs at work on a terminal.

    Args:
        runs: hash -> resolved configuration with its folder; those that are not finished are waited for.
        labels: hash -> what tells a run from the others (None: its method and hash).
        jobs: runs at a time.
    """

    def __init__(self, runs: Mapping[str, Resolved], labels: Mapping[str, str] | None = None, jobs: int = 1) -> None:
        self.errors: dict[str, str] = {}
        self._labels = labels or {key: f"{config.method}, {key}" for key, config in runs.items()}
        self._waiting = {key: config for key, config in runs.items() if not is_finished(config)}
        self._total, self._start, self._lock = len(runs), time.monotonic(), threading.Lock()
        before = len(runs) - len(self._waiting)
        for config in self._waiting.values():
            (run_folder(config) / ERROR).unlink(missing_ok=True)
        self._following = Following(self._waiting, jobs)
        self._forecast = Forecast(self._waiting, jobs, self._following)
        self._screen, self._open = Screen(self._shown), ExitStack()
        if before:
            self._say(f"{before} of {len(runs)} runs were finished already")

    def __enter__(self) -> SweepProgress:
        if on_terminal(sys.stderr):
            self._open.enter_context(self._screen)
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    def at_a_time(self, jobs: int) -> None:
        """Take note of how many runs a cluster has room for, which is known once it is reached."""
        self._following.jobs = self._forecast.jobs = jobs

    def waiting(self) -> list[RunConfig]:
        """Return the runs that have left neither a summary nor an error."""
        return list(self._waiting.values())

    def look(self) -> None:
        """Report the runs that ended since the last look; joblib's threads call this too."""
        with self._lock:
            for config in self.waiting():
                if is_finished(config):
                    self._done(config)
                elif (text := left_error(config)) is not None:
                    self.fail(config, text)

    def fail(self, config: RunConfig, error: str) -> None:
        """Report and remember a run as failed, unless it has ended already."""
        key = run_hash(config)
        if key in self._waiting:
            self.errors[key] = error
            _leave_config(config)
            self._report(key, f"FAILED {self._labels[key]}: {error}")

    def leave(self, reason: str) -> None:
        """Report, in one line, and remember that none of the runs that are waited for was started."""
        left = self.waiting()
        self.errors |= {run_hash(config): f"not started: {reason}" for config in left}
        self._waiting.clear()
        self._say(f"{len(left)} run{'s were' if len(left) > 1 else ' was'} not started: {reason}")

    def snapshot(self) -> Snapshot:
        """Return how far the sweep has come."""
        now, errors = self._seconds(), dict(self.errors)
        waiting = {key: config for key, config in dict(self._waiting).items() if key not in errors}
        running = self._following.look(waiting, now)
        done, to_come = self._total - len(waiting) - len(errors), len(waiting) - len(running)
        left = self._forecast.seconds_left(waiting, errors, now)
        return Snapshot(running, done, len(errors), to_come, now, left)

    def _shown(self) -> RenderableType:
        return shown(self.snapshot(), self._labels, self._screen.lines)

    def _seconds(self) -> float:
        return time.monotonic() - self._start

    def _done(self, config: RunConfig) -> None:
        """Report a finished run with its accuracy."""
        key, found = run_hash(config), read_summary(run_folder(config)) or {}
        first, *others = tested_at(found.get("views", {})) or [""]
        where = f" at {first} dB" if others else ""
        self._report(key, f"{self._labels[key]}, accuracy {100 * found['accuracy']:.1f} %{where}")

    def _report(self, key: str, text: str) -> None:
        """Print a line with the number of runs that ended and the time since the sweep began."""
        del self._waiting[key]
        self._say(f"[{self._total - len(self._waiting)}/{self._total}, {self._seconds():.0f} s] {text}")

    def _say(self, text: str) -> None:
        print(text, file=sys.stderr, flush=True)


def _leave_config(config: RunConfig) -> None:
    """Leave the configuration of a run that failed before it had stored it: it tells what failed, and repeats it."""
    folder = run_folder(config)
    if folder.is_dir() and not (folder / CONFIG).exists():
        with suppress(OSError):  # a full disk
            write_config(folder, config)
