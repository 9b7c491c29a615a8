"""The two ways in which semcom fails: a wrong request, and work that cannot be done."""

from __future__ import annotations


class ConfigError(ValueError):
    """A request that cannot be met: one line that names the field, the value and what would be accepted."""


class RunError(RuntimeError):
    """A failure of the work itself (divergence, a full disk): the request was fine."""
