"""The rule of experiments/protocol.md for runs that have learned nothing."""

from __future__ import annotations

from collections.abc import Sequence

from semcom.studies.analysis.statistics import EQUAL

CHANCE = 1.25
"""A model guesses up to this multiple of the accuracy of guessing among all classes."""
HALF = 0.5
"""And where all clients have one and the same accuracy, up to this one."""


def is_guess(accuracy: float, clients: Sequence[float], classes: int | None) -> bool:
    """Check whether an accuracy is that of guessing: among all classes, or with one answer to a client's own.

    Args:
        accuracy: the mean over clients, a part of 1.
        clients: that of each client.
        classes: of the dataset (None: not known).

    Example:
        >>> is_guess(0.11, [0.0, 0.22], classes=10), is_guess(0.5, [0.5, 0.5], classes=10)
        (True, True)
        >>> is_guess(0.5, [0.4, 0.6], classes=10), is_guess(0.11, [0.0, 0.22], classes=None)
        (False, False)
    """
    same = len(clients) > 1 and max(clients) - min(clients) <= EQUAL and accuracy <= HALF
    return same or (classes is not None and accuracy <= CHANCE / classes)
