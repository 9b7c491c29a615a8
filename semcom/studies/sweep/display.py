"""What a terminal shows of a sweep while it is at work: the runs that train, and when all will have ended."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from semcom.studies.overrides import duration
from semcom.studies.sweep.following import Running

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

BAR = 10
"""Columns of a bar."""


@dataclass(frozen=True)
class Snapshot:
    """How far a sweep has come."""

    running: Sequence[Running]
    """The runs at work."""
    done: int
    """Runs that are finished, those among them that were so before."""
    failed: int
    """Runs that failed."""
    to_come: int
    """Runs that have not begun."""
    elapsed: float
    """Seconds since the sweep began."""
    left: float | None
    """Seconds until it ends, about; None where nobody can say yet."""

    def counts(self) -> str:
        """Return the numbers of runs in words."""
        parts = {"done": self.done, "failed": self.failed, "at work": len(self.running), "to come": self.to_come}
        total = sum(parts.values())
        return f"{total} runs: " + ", ".join(f"{n} {name}" for name, n in parts.items() if n or name == "done")

    def times(self, now: datetime) -> str:
        """Return the time that has passed, and about when the sweep ends."""
        passed = f"{duration(self.elapsed)} passed"
        if self.left is None:
            return f"{passed}, the end is not known yet"
        end = now + timedelta(seconds=self.left)
        day = "" if end.date() == now.date() else f"{end:%a %d %b} "
        return f"{passed}, about {duration(self.left)} left, until {day}{end:%H:%M}"


def shown(snapshot: Snapshot, labels: Mapping[str, str], lines: int) -> RenderableType:
    """Return what is shown of a sweep.

    Args:
        snapshot: how far it has come.
        labels: hash -> what tells a run from the others.
        lines: of the terminal; runs for which there is no room are counted alone.
    """
    from rich.console import Group
    from rich.text import Text

    room = max(1, lines - 5)
    parts: list[RenderableType] = [_runs(snapshot.running[:room], labels)] if snapshot.running else []
    if len(snapshot.running) > room:
        parts.append(Text(f"and {len(snapshot.running) - room} more at work", style="dim"))
    counts = Text(snapshot.counts(), style="red" if snapshot.failed else "green")
    return Group(*parts, counts, Text(snapshot.times(datetime.now())))


def _runs(running: Sequence[Running], labels: Mapping[str, str]) -> Table:
    """Return a line per run: its label, a bar, its rounds, its last accuracy."""
    from rich.progress_bar import ProgressBar
    from rich.table import Table

    table = Table.grid(padding=(0, 1, 0, 0))
    table.add_column(overflow="fold")
    for width in (BAR, None, len("100.0 %")):
        table.add_column(justify="right", no_wrap=True, min_width=width)
    for run in running:
        bar = ProgressBar(total=run.rounds, completed=run.round, width=BAR)
        accuracy = "" if run.accuracy is None else f"{100 * run.accuracy:.1f} %"
        round_ = f"round {run.round:>{len(str(run.rounds))}}/{run.rounds}"  # as wide as that of the last one
        table.add_row(labels[run.key], bar, round_, accuracy)
    return table
