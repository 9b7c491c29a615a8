"""What a run tells its user: progress while it trains, and its result as a few lines of text."""

from __future__ import annotations

import contextlib
import logging
import sys
from collections.abc import Mapping
from typing import Any

logger = logging.getLogger(__name__)


class Progress(contextlib.ExitStack):
    """Shows each round: as a bar where stderr is a terminal, as a log line elsewhere.

    Args:
        rounds: T, the number of rounds of the run.
    """

    def __init__(self, rounds: int) -> None:
        super().__init__()
        self.rounds = rounds
        self.bar: Any = None

    def _open_bar(self) -> None:
        """At the first round and not before: until then a wrong request ends with one line."""
        from tqdm import tqdm
        from tqdm.contrib.logging import logging_redirect_tqdm

        self.bar = self.enter_context(tqdm(total=self.rounds, unit="round", dynamic_ncols=True, file=sys.stderr))
        self.enter_context(logging_redirect_tqdm())  # a log line must not tear the bar apart

    def __call__(self, row: Mapping[str, Any]) -> None:
        """Takes one line of `metrics.jsonl`."""
        shown = {"loss": f"{row['loss']:.4g}"} if "loss" in row else {}
        shown |= {name: f"{100 * view['accuracy']:.1f}%" for name, view in row.get("views", {}).items()}
        if self.bar is None and sys.stderr.isatty():
            self._open_bar()
        if self.bar is None:
            logger.info("round %d/%d  %s", row["round"], self.rounds, "  ".join(f"{k} {v}" for k, v in shown.items()))
        else:
            self.bar.update(row["round"] - self.bar.n)  # a resumed run does not begin at 1
            self.bar.set_postfix(shown)


def result_table(summary: Mapping[str, Any]) -> str:
    """The summary of a run as text: accuracies per view, measured SNR, and traffic per client and round."""
    body = _accuracies("view", summary["views"])
    if "new_clients" in summary:
        body += _accuracies("new client", summary["new_clients"])
    snr = ", ".join(f"{name.replace('_', ' ')} {_db(value)}" for name, value in summary["snr_received_db"].items())
    sent = [f"{_DIRECTIONS[way]}: {_traffic(counts)}" for way, counts in summary["traffic"].items()]
    end = f"{summary['rounds']} rounds" + (" and its last stage" if "finish" in summary else "")
    head = f"{summary['method']}: {100 * summary['accuracy']:.1f} % after {end}"
    return "\n".join([head, *body, f"received SNR: {snr}", "per participating client and round", *sent])


def _accuracies(title: str, views: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """A line per view, below one with headings."""
    lines: list[tuple[str, ...]] = [(title, "accuracy %", "std", "worst 10 %")]
    for name, view in views.items():
        lines.append((name, *(f"{100 * view[key]:.1f}" for key in ("accuracy", "accuracy_std", "worst10"))))
    return [f"{name:<10}" + "".join(f"{cell:>12}" for cell in cells) for name, *cells in lines]


def time_table(seconds: Mapping[str, float]) -> str:
    """Where the time of a run went, from `summary["seconds"]`: sections, and within them what a fine clock measured."""
    whole = max(sum(value for path, value in seconds.items() if "/" not in path), 1e-9)
    first = [path for path in (*_SECTIONS, *seconds) if path in seconds and "/" not in path]
    lines = [("where the time went", "seconds", "% of the run")]
    for section in dict.fromkeys(first):
        for path in (section, *(path for path in seconds if path.startswith(f"{section}/"))):
            name = "  " * path.count("/") + _SECTIONS.get(path, path.rpartition("/")[2])
            lines.append((name, f"{seconds[path]:.2f}", f"{100 * seconds[path] / whole:.1f}"))
    over = sum(seconds.get(section, 0.0) for section in ("evaluate", "log", "checkpoint"))
    last = f"overhead: evaluation, logging and checkpointing take {100 * over / whole:.1f} % of the run"
    return "\n".join([*(f"{name:<28}{value:>10}{share:>14}" for name, value, share in lines), last])


_SECTIONS = {
    "setup": "set-up",
    "train": "training",
    "evaluate": "evaluation",
    "checkpoint": "checkpointing",
    "log": "logging",
    "finish": "last stage",
    "newcomers": "new clients",
}
"""What the sections of a run are called, in the order of the table."""
_DIRECTIONS = {"up": "  uplink  ", "down": "  downlink"}


def _db(value: float | None) -> str:
    """A measured SNR; None or NaN: nothing was sent."""
    return "-" if value is None or value != value else f"{value:.2f} dB"


def _traffic(counts: Mapping[str, float]) -> str:
    """What was sent in one direction."""
    return (
        f"{counts['floats']:,.0f} floats, {counts['bits']:,.0f} bits, {counts['uses']:,.0f} channel uses, "
        f"{counts['airtime_s']:.3g} s, {counts['energy_j']:.3g} J"
    )
