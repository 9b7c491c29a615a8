"""The runs of a sweep that are at work, as seen from outside: by the lines that they add to metrics.jsonl."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from semcom.config import Resolved
from semcom.files import METRICS
from semcom.runs.folder import read_metrics_from
from semcom.studies.results.outcome import run_folder

Mark = tuple[int, ...]
"""Times at which a run's folder and its metrics were last written to, and their sizes."""


@dataclass
class Running:
    """A run at work. Times are in seconds since the sweep began."""

    key: str
    """Hash of the run."""
    rounds: int
    """T: rounds of the run."""
    begun: float
    """Time when the first of its new rounds was seen; until then, and where it has none, when it was seen itself."""
    first: int
    """Rounds that it had then: what comes before, such as imports, says nothing of its pace."""
    round: int = 0
    """Rounds that it has now."""
    latest: float = 0.0
    """Time when the newest of them was first seen."""
    accuracy: float | None = None
    """Headline of its last evaluation; None before the first one."""
    read: tuple[int, int] = (0, 0)
    """The file of its metrics, which is a new one after a resumption, and the bytes of it that have been read."""

    @property
    def share(self) -> float:
        """The part of its rounds that it has done since then."""
        return max(0, self.round - self.first) / self.rounds


class Following:
    """Looks at the runs that have begun and not ended; cheap enough to be asked every second.

    Runs begin in their order, `jobs` at a time. So no folder is looked at behind the next `jobs` that have not begun.

    Args:
        waiting: hash -> resolved configuration with its folder, of the runs that are not finished, in their order.
        jobs: runs at a time.
    """

    def __init__(self, waiting: Mapping[str, Resolved], jobs: int) -> None:
        self.jobs = jobs
        self._before = {key: mark for key, config in waiting.items() if (mark := _mark(run_folder(config)))}
        self._first = {key: _last_round(run_folder(waiting[key])) for key in self._before}
        self.seen: dict[str, Running] = {}
        """Hash -> each run that was at work at one of the looks; one that has ended has all its rounds."""

    def look(self, waiting: Mapping[str, Resolved], now: float) -> list[Running]:
        """Return the runs at work, in the order of the sweep.

        Args:
            waiting: those that have not ended yet, in their order.
            now: seconds since the sweep began.
        """
        for run in self.seen.values():
            if run.key not in waiting and run.round < run.rounds:
                run.round, run.latest = run.rounds, now
        found, ahead = [], self.jobs
        for key, config in waiting.items():
            run = self.seen.get(key) or self._begun(key, config, now)
            if run is not None:
                _read(run, run_folder(config), now)
                found.append(run)
            elif not (ahead := ahead - 1):
                break
        return found

    def first(self, key: str) -> int:
        """Return the rounds that a run had when the sweep began."""
        return self._first.get(key, 0)

    def _begun(self, key: str, config: Resolved, now: float) -> Running | None:
        """Return a run that has begun since the last look: its folder is new, or is written to."""
        if _mark(run_folder(config)) in (None, self._before.get(key)):
            return None
        first = self.first(key)
        self.seen[key] = Running(key, config.train.rounds, now, first, first, now)
        return self.seen[key]


def _read(run: Running, folder: Path, now: float) -> None:
    """Take over what a run has added to its metrics."""
    try:
        metrics = (folder / METRICS).stat()
    except FileNotFoundError:
        return
    file, start = run.read
    lines, end = read_metrics_from(folder, start if file == metrics.st_ino and start <= metrics.st_size else 0)
    run.read = (metrics.st_ino, end)
    if not lines:
        return
    if start == 0:
        run.begun, run.first = now, lines[-1]["round"]
    if lines[-1]["round"] > run.round:
        run.latest = now
    run.round = lines[-1]["round"]
    tested = [line["views"] for line in lines if line.get("views")]
    if tested:
        run.accuracy = next(iter(tested[-1].values()))["accuracy"]


def _mark(folder: Path) -> Mark | None:
    """Return what tells whether a run's folder has been written to; None without a folder."""
    found: list[int] = []
    for path in (folder, folder / METRICS):
        with suppress(FileNotFoundError):
            stat = path.stat()
            found += (stat.st_mtime_ns, stat.st_size)
    return tuple(found) or None


def _last_round(folder: Path) -> int:
    """Return the rounds that a run has done."""
    lines, _ = read_metrics_from(folder, 0)
    return lines[-1]["round"] if lines else 0
