"""The declared types of a dataclass's fields."""

from __future__ import annotations

import functools
import typing
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any


@functools.cache
def declared_types(cls: type) -> Mapping[str, Any]:
    """Return field -> declared type. They are written as text, which takes longer to read than most requests do."""
    return MappingProxyType(typing.get_type_hints(cls))
