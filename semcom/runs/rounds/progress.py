"""The progress of a run: a bar on a terminal, a line in a notebook, log lines elsewhere."""

from __future__ import annotations

import contextlib
import logging
import sys
from collections.abc import Mapping
from typing import Any

from semcom.screen import is_notebook, is_terminal_screen, say, show_bars_on_screen
from semcom.tasks.metric import ACCURACY, Metric

LOG = logging.getLogger(__name__)


class RoundProgress(contextlib.ExitStack):
    """Display of each round: a bar if stderr is a terminal, one line in a notebook, log lines elsewhere.

    Args:
        rounds: T, the number of rounds of the run.
        metric: the number that is shown of each view.
    """

    def __init__(self, rounds: int, metric: Metric = ACCURACY) -> None:
        super().__init__()
        self.rounds, self.metric = rounds, metric
        self.bar: Any = None

    def __call__(self, line: Mapping[str, Any]) -> None:
        """Show one line of `metrics.jsonl`."""
        shown = {"loss": f"{line['loss']:.4g}"} if "loss" in line else {}
        views, metric = line.get("views", {}), self.metric
        shown |= {name: metric.state(view[metric.name]).replace(" %", "%") for name, view in views.items()}
        text, place = "  ".join(f"{name} {value}" for name, value in shown.items()), f"{line['round']}/{self.rounds}"
        if self.bar is None and is_terminal_screen(sys.stderr):
            # not before the first round: a wrong request ends with one line
            self.bar = self.enter_context(show_bars_on_screen())
            self.bar.add_task("round", total=self.rounds, note="")
        if self.bar is not None:
            self.bar.update(self.bar.task_ids[0], completed=line["round"], note=text)
        elif is_notebook():
            end = "\n" if line["round"] == self.rounds else ""
            say(f"{f'round {place}  {text}':<79}", end=end, stream=sys.stderr, start="\r")
        else:
            LOG.info("round %s  %s", place, text)
