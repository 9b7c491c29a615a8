"""Looking a name up in a registry on behalf of a request."""

from __future__ import annotations

from typing import TypeVar

from channels.registry import Registry
from semcom.config import ConfigError

T = TypeVar("T")


def find(registry: Registry[T], name: str) -> T:
    """Return the entry called `name`. Raises ConfigError, in the registry's own words, for a name that is not known."""
    try:
        return registry.get(name)
    except ValueError as error:
        raise ConfigError(str(error)) from None
