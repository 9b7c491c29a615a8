"""Comma lists of names, as the benchmarks' flags take them."""

from __future__ import annotations

from collections.abc import Sequence

from semcom.config import ConfigError


def chosen(field: str, text: str, known: Sequence[str]) -> list[str]:
    """Names separated by commas, in the order of `known`. Raises ConfigError for one that is not known."""
    given = [name.strip() for name in text.split(",")]
    for name in given:
        if name not in known:
            raise ConfigError(f"{field}: {name!r} is not one of {', '.join(known)}")
    return [name for name in known if name in given]
