"""Checks of refusals: by the field that is refused, not by the words, which tests/wordings.txt records."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from semcom.config import ConfigError


@contextmanager
def refuses(field: str, *words: object) -> Iterator[None]:
    """Check that what is done inside is refused for a field, in one line that holds some values."""
    with pytest.raises(ConfigError) as stop:
        yield
    line = str(stop.value)
    assert stop.value.field == field and line.isprintable(), line
    assert not [word for word in words if str(word) not in line], line
