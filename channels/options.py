"""Checks of what a link's options may be."""

from __future__ import annotations

import math
from collections.abc import Sequence


def one_of(name: str, value: str, accepted: Sequence[str]) -> str:
    """An option's value. Raises ValueError unless it is one of those accepted."""
    if value not in accepted:
        raise ValueError(f"{name}: {value!r} is unknown; known are {', '.join(accepted)}")
    return value


def positive(name: str, value: float) -> float:
    """An option's value. Raises ValueError unless it is a finite positive number."""
    if not 0 < value < math.inf:
        raise ValueError(f"{name}: {value!r} is not a positive number")
    return value


def not_negative(name: str, value: float) -> float:
    """An option's value. Raises ValueError unless it is a finite number of at least 0."""
    if not 0 <= value < math.inf:
        raise ValueError(f"{name}: {value!r} is not a number of at least 0")
    return value
