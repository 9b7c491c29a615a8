"""What an experiment is: arms, and one grid of runs per scale."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from semcom.config import ConfigError, RunConfig

SCALES = ("smoke", "small", "paper")
"""The cheapest first: digits in seconds; real images, two cores, an hour or two; the paper's own numbers."""


@dataclass(frozen=True)
class Grid:
    """The runs of one scale: `base` for every arm and every combination of the values in `vary`."""

    base: RunConfig
    """What all runs share."""
    vary: Mapping[str, tuple[Any, ...]]
    """Dotted field (`channel.snr_db`, `seed`, `hyper.lam`) -> the values that it takes."""
    apart: Mapping[str, Mapping[Any, Mapping[str, Any]]] = field(default_factory=dict)
    """Varied field or `method` -> one of its values -> what is set otherwise in runs with it, dotted field -> value."""

    def otherwise(self, point: Mapping[str, Any]) -> dict[str, Any]:
        """Return what is set otherwise at a combination of the varied values."""
        found = [values.get(point[name], {}) for name, values in self.apart.items()]
        return {name: value for fields in found for name, value in fields.items()}


@dataclass(frozen=True)
class Experiment:
    """A named comparison of arms; the plain declaration is all that a new experiment needs."""

    name: str
    """Its name on the command line and in `experiments.registry`."""
    title: str
    """One line: what is compared."""
    paper: str
    """The paper item that it reproduces, or "none"."""
    arms: tuple[str, ...]
    """Methods, in the order of tables and legends."""
    scales: Mapping[str, Grid] = field(default_factory=dict)
    """The grid of each scale that is offered."""
    axis: str = "channel.snr_db"
    """The varied field that makes the columns of the table and the abscissa of the figure."""
    figure: str | None = None
    """The figure (of `figures.registry`) that is rendered after a sweep."""
    runner: Callable[[RunConfig], object] | None = None
    """What carries out a run and leaves summary.json in its `out` (None: `experiments.parallel.train`)."""

    def scale(self, name: str | None = None) -> str:
        """`name` if it is offered (ConfigError otherwise); None: the cheapest scale offered."""
        offered = [scale for scale in SCALES if scale in self.scales]
        if name is None:
            return offered[0]
        if name not in offered:
            raise ConfigError(f"scale: {self.name} has no scale {name!r}; it has {', '.join(offered)}")
        return name

    def grid(self, scale: str, overrides: Mapping[str, Any] | None = None) -> list[RunConfig]:
        """The runs, arm by arm, then in the order of the varied values.

        Args:
            scale: one of the experiment's scales.
            overrides: dotted field -> value. For a varied field or `method` a value (or a tuple of them) replaces
                the values that it takes; any other field is set in all runs.

        Raises:
            ConfigError: a scale, arm or field that does not exist.
        """
        chosen, overrides = self.scales[self.scale(scale)], dict(overrides or {})
        axes = {"method": self.arms, **chosen.vary}
        axes |= {name: _several(overrides.pop(name)) for name in axes if name in overrides}
        unknown = [arm for arm in axes["method"] if arm not in self.arms]
        if unknown:
            raise ConfigError(f"method: {self.name} has no arm {unknown[0]!r}; its arms are {', '.join(self.arms)}")
        mixed = [n for n, values in axes.items() if n not in ("method", "seed", self.axis) and len(values) > 1]
        if mixed:
            raise ConfigError(f"{mixed[0]}: the table of {self.name} has {self.axis} alone as its axis; give one value")
        base = set_fields(chosen.base, overrides)
        points = [dict(zip(axes, values, strict=True)) for values in itertools.product(*axes.values())]
        return [set_fields(base, point | chosen.otherwise(point)) for point in points]


def _several(value: Any) -> tuple[Any, ...]:
    """One value or several, as a tuple."""
    return tuple(value) if isinstance(value, (tuple, list)) else (value,)


def set_fields(config: RunConfig, values: Mapping[str, Any]) -> RunConfig:
    """A copy of `config` with dotted fields (`train.rounds`, `hyper.lam`, `partition.ways`, `seed`) replaced.

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


def _with(options: Any, name: str, value: Any) -> dict[str, Any]:
    """Options, of which `semcom.resolve` checks whether their owner takes them, with one of them set."""
    known = vars(options) if dataclasses.is_dataclass(options) else options or {}
    return {**known, name: value}


def _replace(part: Any, name: str, value: Any, full: str) -> Any:
    """`dataclasses.replace` whose error is one line that says what exists."""
    known = [f.name for f in dataclasses.fields(part)] if dataclasses.is_dataclass(part) else []
    if name not in known:
        raise ConfigError(
            f"{full}: no such field; known are {', '.join(known or (f.name for f in dataclasses.fields(RunConfig)))}"
        )
    return dataclasses.replace(part, **{name: value})  # type: ignore[type-var]
