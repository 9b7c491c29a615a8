"""Looking a name up in a registry on behalf of a request."""

from __future__ import annotations

from typing import TypeVar

from semcom.channels.registry import Registry
from semcom.config import ConfigError

T = TypeVar("T")


def find_entry(registry: Registry[T], name: str, field: str | None = None) -> T:
    """Find the entry called `name`.

    Args:
        registry: where it is looked for.
        name: of the entry.
        field: the field that holds the name, spelled as a flag (None: the registry's word for an entry).

    Raises:
        ConfigError: the name is unknown; the known names are listed.
    """
    if name not in registry:
        raise ConfigError(f"{field or registry.kind}: {registry.unknown(name)}")
    return registry.get(name)
