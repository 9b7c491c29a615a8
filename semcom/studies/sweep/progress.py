"""The progress of a sweep: a line on stderr for each run that ends; on a terminal and in notebooks the running ones."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from semcom.config import Resolved, RunConfig, run_hash
from semcom.escape import escape_controls
from semcom.files import CONFIG, ERROR, METRICS, open_file
from semcom.runs.folder.stored import locate_training, write_stored_config
from semcom.runs.folder.summary import read_summary
from semcom.runs.result.accuracy import list_accuracy_snrs
from semcom.screen import is_notebook, is_terminal_screen, say, show_bars_on_screen
from semcom.studies.results.outcome import has_outcome, locate_run_folder, read_left_error
from semcom.tasks.metric import read_headline

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

SECONDS = 1.0
"""Time between two looks at the rounds of the running runs."""
WIDTH = 110
"""Characters of the line in a notebook."""


class SweepProgress:
    """Follows runs by what they leave in their folders; a context manager that shows the running ones.

    On a terminal they are bars, in a notebook one line.

    Args:
        runs: hash -> resolved configuration with its folder; those that are not finished are waited for.
        labels: hash -> label of the run (None: its method and hash).
        jobs: runs at a time.
    """

    def __init__(self, runs: Mapping[str, Resolved], labels: Mapping[str, str] | None = None, jobs: int = 1) -> None:
        self.errors: dict[str, str] = {}
        self.jobs = jobs
        self._rounds = {key: config.train.rounds for key, config in runs.items()}
        self._labels = labels or {key: f"{config.method}, {key}" for key, config in runs.items()}
        self._waiting = {key: config for key, config in runs.items() if not has_outcome(config)}
        self._total, self._start, self._lock = len(runs), time.monotonic(), threading.Lock()
        before = len(runs) - len(self._waiting)
        for config in self._waiting.values():
            (locate_run_folder(config) / ERROR).unlink(missing_ok=True)
        self._open = ExitStack()
        if before:
            self._say(f"{before} of {len(runs)} runs were finished already")

    def __enter__(self) -> SweepProgress:
        show = None
        if is_terminal_screen(sys.stderr):
            show = partial(self._update_bars, self._open.enter_context(show_bars_on_screen(transient=True)), {})
        elif is_notebook():
            show = self._update_line
        if show is not None:
            self._show(show)
            ended = threading.Event()
            thread = threading.Thread(target=self._follow, args=(show, ended), daemon=True)
            thread.start()
            self._open.callback(thread.join)
            self._open.callback(ended.set)
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    def waiting(self) -> list[RunConfig]:
        """List the runs that have left neither a summary nor an error."""
        return list(self._waiting.values())

    def running(self) -> dict[str, int]:
        """Count the rounds of the running runs, by hash: runs begin in their order, `jobs` at a time."""
        first = list(self._waiting.items())[: self.jobs]
        return {
            key: _count_rounds(locate_training(locate_run_folder(config)))
            for key, config in first
            if locate_run_folder(config).is_dir()
        }

    def look(self) -> None:
        """Report the runs that ended since the last look; joblib's threads call this too."""
        with self._lock:
            for config in self.waiting():
                if has_outcome(config):
                    self._done(config)
                elif (text := read_left_error(config)) is not None:
                    self.fail(config, text)

    def fail(self, config: RunConfig, error: str) -> None:
        """Report and remember a run as failed, unless it has ended already."""
        key = run_hash(config)
        if key in self._waiting:
            self.errors[key] = error
            _store_config(config)
            self._report(key, f"FAILED {self._labels[key]}: {error}")

    def leave(self, reason: str) -> None:
        """Report, in one line, and remember that none of the runs that are waited for was started."""
        left = self.waiting()
        self.errors |= {run_hash(config): f"not started: {reason}" for config in left}
        self._waiting.clear()
        self._say(f"{len(left)} run{'s were' if len(left) > 1 else ' was'} not started: {reason}")

    def _done(self, config: RunConfig) -> None:
        """Report a finished run with its headline."""
        key, found = run_hash(config), read_summary(locate_run_folder(config)) or {}
        metric = read_headline(found)
        first, *others = list_accuracy_snrs(found.get("views", {})) or [""]
        where = f" at {first} dB" if others else ""
        self._report(key, f"{self._labels[key]}, {metric.label} {metric.state(found[metric.name])}{where}")

    def _report(self, key: str, text: str) -> None:
        """Print a line with the number of runs that ended and the time since the sweep began."""
        del self._waiting[key]
        seconds = time.monotonic() - self._start
        self._say(f"[{self._total - len(self._waiting)}/{self._total}, {seconds:.0f} s] {text}")

    def _say(self, text: str) -> None:
        over = is_notebook()
        say(f"{text:<{WIDTH}}" if over else text, stream=sys.stderr, start="\r" if over else "")

    def _follow(self, show: Callable[[str, Mapping[str, int], int], None], ended: threading.Event) -> None:
        """Show how the runs stand, again and again until the end."""
        while not ended.wait(SECONDS):
            self._show(show)

    def _show(self, show: Callable[[str, Mapping[str, int], int], None]) -> None:
        """Show how many runs are in each state, the rounds of the running ones and all rounds that are done."""
        running, waiting, failed = self.running(), dict(self._waiting), len(self.errors)
        left = sum(self._rounds[key] - running.get(key, 0) for key in waiting)
        finished, pending = self._total - len(waiting) - failed, len(waiting) - len(running)
        counts = {"finished": finished, "failed": failed, "running": len(running), "pending": pending}
        text = ", ".join(f"{n} {state}" for state, n in counts.items() if n or state == "finished")
        show(f"{self._total} runs: {text}", running, sum(self._rounds.values()) - left)

    def _update_bars(
        self, progress: Progress, tasks: dict[str, TaskID], text: str, running: Mapping[str, int], done: int
    ) -> None:
        """Keep a bar for all rounds, and one for each running run, up to date."""
        if "" not in tasks:
            tasks[""] = progress.add_task("", total=sum(self._rounds.values()), note="")
        for key in tasks.keys() - running.keys() - {""}:
            progress.remove_task(tasks.pop(key))
        for key, rounds in running.items():
            if key not in tasks:
                tasks[key] = progress.add_task(escape_controls(self._labels[key]), total=self._rounds[key], note="")
            progress.update(tasks[key], completed=rounds)
        progress.update(tasks[""], completed=done, description=text)

    def _update_line(self, text: str, running: Mapping[str, int], done: int) -> None:
        """Write a line in the place of the last one, with the first of the running runs."""
        first = next((f"; {self._labels[key]} {n}/{self._rounds[key]}" for key, n in running.items()), "")
        shown = f"{text}; round {done}/{sum(self._rounds.values())}{first}"
        say(f"{shown[:WIDTH]:<{WIDTH}}", end="", stream=sys.stderr, start="\r")


def _count_rounds(folder: Path) -> int:
    with suppress(FileNotFoundError), open_file(folder / METRICS) as lines:
        return sum(1 for _ in lines)
    return 0


def _store_config(config: RunConfig) -> None:
    """Store the configuration of a run that failed earlier, by which the run can be identified and repeated."""
    folder = locate_run_folder(config)
    if folder.is_dir() and not (folder / CONFIG).exists():
        with suppress(OSError):  # a full disk
            write_stored_config(folder, config)
