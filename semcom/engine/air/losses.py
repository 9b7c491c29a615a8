"""What did not arrive in a run: the one place where it is counted, by client and by the option that kept it back."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from semcom.config import Resolved
from semcom.config.options import spelled

NEARLY = 0.9
"""Part from which on nearly all of something is lost."""
MEANT, CHOSEN = "meant", "chosen"


@dataclass
class Losses:
    """The transmissions up that a run meant to make, and those that never came, counted where some can be lost.

    Attributes:
        counts: what and client, as "meant 3" -> how much. `MEANT`: transmissions that the client was to send. `CHOSEN`:
            rounds for which a scheduler chose it that may leave some out for good. The name of an option: how many
            transmissions, or parts of them, it kept back.
    """

    counts: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))

    def add(self, what: str, ids: Iterable[int], parts: Iterable[float] | None = None) -> None:
        """Count something of clients; see `counts`. None: one of each."""
        for k, part in zip(ids, parts, strict=True) if parts is not None else ((k, 1) for k in ids):
            self.counts[f"{what} {k}"] += part

    def of(self, what: str) -> dict[int, float]:
        """Return how much was counted, by client."""
        named = ((name.split(" "), n) for name, n in self.counts.items())
        return {int(k): n for (name, k), n in named if name == what}

    def describe(self, config: Resolved) -> str | None:
        """Describe what nearly never arrived, of all clients or of some; None where all got through now and then."""
        meant, options = self.of(MEANT), {name.split(" ")[0] for name in self.counts} - {MEANT, CHOSEN}
        missing = {option: self.of(option) for option in options}
        kept = {k: sum(each.get(k, 0) for each in missing.values()) for k in meant}
        sent, lost = sum(meant.values()), sum(kept.values())
        never = [k for k, n in meant.items() if kept[k] > n * (1 - 1e-6)]
        if not never and (not lost or lost < NEARLY * sent):
            return None
        parts = {option: sum(each.values()) / sent for option, each in missing.items()}
        blamed = sorted(parts, key=lambda option: -parts[option])
        each = ", ".join(f"{spelled(o)} {_read_option(config, o)}: {100 * parts[o]:.3g}%" for o in blamed)
        text = f"{100 * lost / sent:.4g}% of what {len(meant)} clients were to send up did not arrive ({each})"
        if not never:
            return f"{text}; hardly anything but what they began with is in this result"
        some = f"client {never[0]}" if len(never) == 1 else f"{len(never)} of them"
        return f"{text}; {some} never once got through"

    def counters(self) -> dict[str, float]:
        """Return a copy of the counts."""
        return dict(self.counts)

    def resume(self, counters: Mapping[str, float]) -> None:
        """Continue from what `counters` returned."""
        self.counts = defaultdict(float, counters)


def _read_option(config: Resolved, name: str) -> Any:
    """Return the value of a field, or of an option, of a section."""
    section, _, last = name.partition(".")
    part = getattr(config, section)
    return getattr(part if hasattr(part, last) else part.options, last)
