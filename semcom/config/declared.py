"""The declared types of a dataclass's fields."""

from __future__ import annotations

import functools
import typing
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any


@functools.cache
def declared_types(cls: type) -> Mapping[str, Any]:
    """Read the declared types of a dataclass's fields.

    They are cached: to evaluate annotations takes longer than most requests.
    """
    return MappingProxyType(typing.get_type_hints(cls))
