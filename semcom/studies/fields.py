"""The fields of a run by their dotted names, as grids vary and set them: `train.rounds`, `hyper.lam`, `partition.ways`.

Options are named without `options`, hyperparameters after `hyper`; `seed` and `clients` have no section.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, TypeVar

from semcom.config import ConfigError, RunConfig

R = TypeVar("R", bound=RunConfig)
FIXED: Mapping[str, str] = {
    "method": "the methods of a grid are its variants (--methods)",
    "out": "each run of a grid has a folder of its own; give that of all of them (--out)",
    "plugins": "they belong to all runs (--plugin)",
    "contents": "they are worked out from the files",
}
"""Fields that a grid neither varies nor sets, and why."""


def field_of(config: RunConfig, name: str) -> Any:
    """Return the value of a dotted field (`train.rounds`, `hyper.lam`, `partition.ways`, `seed`); None for none."""
    section, _, rest = name.partition(".")
    part: Any = getattr(config, section, None)
    if rest and section != "hyper" and not hasattr(part, rest):
        part = getattr(part, "options", None)
    return (part.get(rest) if isinstance(part, Mapping) else getattr(part, rest, None)) if rest else part


def set_fields(config: R, values: Mapping[str, Any]) -> R:
    """Return a copy of `config` with dotted fields (`train.rounds`, `hyper.lam`, `partition.ways`, `seed`) replaced.

    None leaves an option or a hyperparameter open, so that its default holds: a grid may vary the kind of a partition
    together with an option that only one of the kinds has.

    Raises:
        ConfigError: names a field that does not exist. (What `hyper` and options may hold is checked by
            `semcom.resolve`.)
    """
    for name, value in values.items():
        section, _, rest = name.partition(".")
        if section == "hyper" and rest:
            value = _with(config.hyper, rest, value)
        elif rest:
            part: Any = getattr(config, section, None)
            if hasattr(part, "options") and not hasattr(part, rest):
                rest, value = "options", _with(part.options, rest, value)
            value = _replace(part, rest, value, name)
        config = _replace(config, section, value, name)
    return config


def check_field(name: str) -> None:
    """Check that a grid may vary or set a field, whether or not there is one of this name.

    Raises:
        ConfigError: it is one of `FIXED`, or a whole section.
    """
    if name in FIXED:
        raise ConfigError(f"{name}: {FIXED[name]}")
    known = {field.name: field.default_factory for field in dataclasses.fields(RunConfig)}
    section, _, rest = name.partition(".")
    cls = known.get(section)
    if name == "hyper" or (dataclasses.is_dataclass(cls) and rest in ("", "options")):
        inside = "hyper.lam" if name == "hyper" else f"{section}.{dataclasses.fields(cls)[0].name}"  # type: ignore[arg-type]
        raise ConfigError(f"{name}: it is a section; name one of its fields, such as {inside}")


def _with(options: Any, name: str, value: Any) -> dict[str, Any]:
    """Return options with one set, or left open (None); `semcom.resolve` checks whether their owner takes it."""
    known = vars(options) if dataclasses.is_dataclass(options) else options or {}
    return {**{key: old for key, old in known.items() if key != name}, **({} if value is None else {name: value})}


def _replace(part: Any, name: str, value: Any, full: str) -> Any:
    """Return `dataclasses.replace(part, name=value)`, with an error of one line that says which fields exist."""
    known = [f.name for f in dataclasses.fields(part)] if dataclasses.is_dataclass(part) else []
    if name not in known:
        raise ConfigError(
            f"{full}: no such field; known are {', '.join(known or (f.name for f in dataclasses.fields(RunConfig)))}"
        )
    return dataclasses.replace(part, **{name: value})  # type: ignore[type-var]
