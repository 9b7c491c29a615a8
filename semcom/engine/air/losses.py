"""Losses of a run, counted by client and by the option that caused them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from semcom.config import Resolved
from semcom.config.options import spell_option

NEARLY = 0.9
"""Part from which on nearly all of something is lost."""
MEANT, CHOSEN = "meant", "chosen"


@dataclass
class Losses:
    """Planned uploads and their losses, counted in runs that may lose some.

    Attributes:
        counts: kind and client, as "meant 3" -> count. `MEANT`: planned uploads. `CHOSEN`: rounds in which a scheduler
            chose the client, if it may leave out some for good. The name of an option: uploads, or fractions of them,
            that it kept back.
    """

    counts: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))

    def add(self, what: str, ids: Iterable[int], parts: Iterable[float] | None = None) -> None:
        """Add to the counts of clients, `parts` or 1 each; see `counts`."""
        for k, part in zip(ids, parts, strict=True) if parts is not None else ((k, 1) for k in ids):
            self.counts[f"{what} {k}"] += part

    def of(self, what: str) -> dict[int, float]:
        """Return the counts of a kind by client."""
        named = ((name.split(" "), n) for name, n in self.counts.items())
        return {int(k): n for (name, k), n in named if name == what}

    def find_lost(self) -> dict[int, float]:
        """Find how many planned uploads of each client did not arrive, of those that planned any."""
        missing = self._list_missing().values()
        return {k: sum(each.get(k, 0) for each in missing) for k in self.of(MEANT)}

    def _list_missing(self) -> dict[str, dict[int, float]]:
        """List what each option kept back, by client."""
        options = {name.split(" ")[0] for name in self.counts} - {MEANT, CHOSEN}
        return {option: self.of(option) for option in options}

    def describe(self, config: Resolved) -> str | None:
        """Describe uploads that hardly ever arrived, of all clients or some; None if all got through now and then."""
        meant, missing, kept = self.of(MEANT), self._list_missing(), self.find_lost()
        sent, lost = sum(meant.values()), sum(kept.values())
        never = [k for k, n in meant.items() if kept[k] > n * (1 - 1e-6)]
        if not never and (not lost or lost < NEARLY * sent):
            return None
        parts = {option: sum(each.values()) / sent for option, each in missing.items()}
        blamed = sorted(parts, key=lambda option: -parts[option])
        each = ", ".join(f"{spell_option(o)} {_read_option(config, o)}: {100 * parts[o]:.3g}%" for o in blamed)
        text = f"{100 * lost / sent:.4g}% of what {len(meant)} clients were to send up did not arrive ({each})"
        if not never:
            return f"{text}; hardly anything but what they began with is in this result"
        some = f"client {never[0]}" if len(never) == 1 else f"{len(never)} of them"
        return f"{text}; {some} never once got through"

    def counters(self) -> dict[str, float]:
        """Return a copy of the counts."""
        return dict(self.counts)

    def resume(self, counters: Mapping[str, float]) -> None:
        """Continue from the result of `counters`."""
        self.counts = defaultdict(float, counters)


def _read_option(config: Resolved, name: str) -> Any:
    section, _, last = name.partition(".")
    part = getattr(config, section)
    return getattr(part if hasattr(part, last) else part.options, last)
