"""The progress of a sweep: one line on stderr for each run that ends, and a bar on a terminal."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path

from tqdm import tqdm

from channels import LINKS
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


def describe(config: RunConfig) -> str:
    """Return what tells one run of a sweep from the others: method, partition, channel, seed, hash."""
    kind = config.channel.kind
    channel = f"{kind} {config.channel.snr_db} dB" if LINKS.get(kind).noisy else kind
    return f"{config.method}, {config.partition.kind}, {channel}, seed {config.seed}, {run_hash(config)}"


class SweepProgress:
    """Follows runs by what they leave in their folders; a context manager that closes its bar.

    Args:
        runs: hash -> resolved configuration with its folder; those that are not finished are waited for.
    """

    def __init__(self, runs: Mapping[str, RunConfig]) -> None:
        self.errors: dict[str, str] = {}
        self._waiting = {key: config for key, config in runs.items() if not is_finished(config)}
        self._total, self._start, self._lock = len(runs), time.monotonic(), threading.Lock()
        before = len(runs) - len(self._waiting)
        self._bar = tqdm(total=len(runs), initial=before, disable=not sys.stderr.isatty(), unit="run")
        for config in self._waiting.values():
            (run_folder(config) / ERROR).unlink(missing_ok=True)
        if before:
            self._say(f"{before} of {len(runs)} runs were finished already")

    def __enter__(self) -> SweepProgress:
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.close()

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
        if run_hash(config) in self._waiting:
            self.errors[run_hash(config)] = error
            self._report(config, f"FAILED {describe(config)}: {error}")

    def leave(self, reason: str) -> None:
        """Report, in one line, and remember that none of the runs that are waited for was started."""
        left = self.waiting()
        self.errors |= {run_hash(config): f"not started: {reason}" for config in left}
        self._waiting.clear()
        self._say(f"{len(left)} run{'s were' if len(left) > 1 else ' was'} not started: {reason}")

    def _done(self, config: RunConfig) -> None:
        """Report a finished run with its accuracy."""
        found = read_summary(run_folder(config)) or {}
        self._report(config, f"{describe(config)}, accuracy {100 * found['accuracy']:.1f} %")

    def _report(self, config: RunConfig, text: str) -> None:
        """Print a line with the number of runs that ended and the time since the sweep began."""
        del self._waiting[run_hash(config)]
        self._bar.update()
        self._say(f"[{self._total - len(self._waiting)}/{self._total}, {time.monotonic() - self._start:.0f} s] {text}")

    def _say(self, text: str) -> None:
        """Print a line on stderr that does not break the bar."""
        self._bar.write(text, file=sys.stderr)


def left_error(config: RunConfig) -> str | None:
    """Return the first line of what a failed run left; None where there is nothing."""
    path = run_folder(config) / ERROR
    return path.read_text(encoding="utf-8").splitlines()[0] if path.is_file() else None
