"""A configuration as plain containers and back, and the hash that identifies a run."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Mapping
from typing import Any

from semcom.config.errors import ConfigError
from semcom.config.fields import RunConfig

NOT_IDENTITY = ("out", "device", "chunk", "processes", "store", "data.root")
"""Fields that only say where or how a run is carried out: they are not in its hash."""


def to_dict(config: RunConfig) -> dict[str, Any]:
    """The configuration as plain containers, as `config.json` holds it."""
    return dataclasses.asdict(config)


def from_dict(values: Mapping[str, Any]) -> RunConfig:
    """Inverse of `to_dict`. Raises ConfigError for a section or field that does not exist."""
    return _build(RunConfig, values, "")


def _build(cls: type, values: Any, prefix: str) -> Any:
    """An instance of dataclass `cls` from a mapping, with lists turned into tuples and nested sections built."""
    if not isinstance(values, Mapping):
        raise ConfigError(f"{prefix.rstrip('.') or 'config'}: {values!r} is not a table of fields")
    known = {f.name: f for f in dataclasses.fields(cls)}
    built = {}
    for name, value in values.items():
        if name not in known:
            raise ConfigError(f"{prefix}{name}: no such field; known are {', '.join(known) or 'none'}")
        section = known[name].default_factory
        if isinstance(section, type) and dataclasses.is_dataclass(section):
            value = _build(section, value, f"{prefix}{name}.")
        built[name] = tuple(value) if isinstance(value, list) else value
    return cls(**built)


def run_hash(config: RunConfig) -> str:
    """Identity of a resolved configuration: 12 hexadecimal digits; `NOT_IDENTITY` fields do not count."""
    values = to_dict(config)
    for name in NOT_IDENTITY:
        section, _, field_name = name.rpartition(".")
        del (values[section] if section else values)[field_name]
    text = json.dumps(values, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:12]
