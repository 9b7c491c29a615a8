"""An experiment: the methods that it compares, and one grid of runs per scale."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import semcom
from experiments.cost import samples
from semcom.config import ConfigError, RunConfig

SCALES = ("smoke", "small", "paper")
"""The scales of this project's experiments, the cheapest first: digits in seconds; real images, two cores, an hour or
two; the paper's own numbers. An experiment may have others."""

Train = Callable[[RunConfig], object]
"""Function that carries out one run and leaves summary.json in its `out`: `semcom.runs.folder.write_summary`."""


@dataclass(frozen=True)
class Grid:
    """The runs of one scale: `base` for every method and every combination of the values in `vary`."""

    base: RunConfig
    """Configuration that all runs share."""
    vary: Mapping[str, tuple[Any, ...]]
    """Dotted field (`channel.snr_db`, `seed`, `hyper.lam`) -> the values that it takes."""
    apart: Mapping[str, Mapping[Any, Mapping[str, Any]]] = field(default_factory=dict)
    """Varied field or `method` -> one of its values -> what is set otherwise in runs with it, dotted field -> value."""

    def otherwise(self, point: Mapping[str, Any]) -> dict[str, Any]:
        """Return what is set otherwise at a combination of the varied values."""
        found = [values.get(point[name], {}) for name, values in self.apart.items()]
        return {name: value for fields in found for name, value in fields.items()}


@dataclass(frozen=True)
class Outline:
    """The size of one scale of an experiment."""

    runs: int
    """Number of runs of the scale."""
    methods: tuple[str, ...]
    """Methods, in the order of the table."""
    axes: Mapping[str, tuple[Any, ...]]
    """Varied field, `seed` among them -> the values that it takes."""
    samples: float | None
    """Training samples that pass through the encoder in all runs together, see `experiments.cost`; None: not known."""


@dataclass(frozen=True)
class Experiment:
    """A named comparison of methods; the plain declaration is all that a new experiment needs."""

    name: str
    """Its name on the command line and in `experiments.registry`."""
    title: str
    """One line: what is compared."""
    paper: str
    """The paper item that it reproduces, or "none"."""
    methods: tuple[str, ...]
    """Methods, in the order of tables and legends."""
    scales: Mapping[str, Grid] = field(default_factory=dict)
    """Name of a scale (one of `SCALES`, or any other) -> its grid."""
    axis: str = "channel.snr_db"
    """The varied field that makes the columns of the table and the abscissa of the figure."""
    figure: str | None = None
    """The figure (of `figures.registry`) that is rendered after a sweep."""
    train: Train | None = None
    """Function that carries out a run and leaves its summary by `semcom.runs.folder.write_summary` (None:
    `semcom.run`)."""

    def offered(self) -> list[str]:
        """Return the names of the scales: those of `SCALES`, the cheapest first, then others as they are declared.

        Raises:
            ConfigError: there is none.
        """
        if not self.scales:
            raise ConfigError(f"scales: {self.name} has none; declare one, such as scales={{'smoke': Grid(...)}}")
        return [*(name for name in SCALES if name in self.scales), *(n for n in self.scales if n not in SCALES)]

    def scale(self, name: str | None = None) -> str:
        """Return `name` if it is a scale of this experiment; for None the first one of `offered`.

        Raises:
            ConfigError: the experiment has no such scale, or none at all.
        """
        offered = self.offered()
        if name is None:
            return offered[0]
        if name not in offered:
            raise ConfigError(f"scale: {self.name} has no scale {name!r}; it has {', '.join(offered)}")
        return name

    def grid(self, scale: str, overrides: Mapping[str, Any] | None = None) -> list[RunConfig]:
        """Return the runs, method by method, then in the order of the varied values.

        Args:
            scale: one of the experiment's scales.
            overrides: dotted field -> value. For a varied field or `method` a value (or a tuple of them) replaces
                the values that it takes; any other field is set in all runs.

        Raises:
            ConfigError: a scale, method or field that does not exist, an axis without values, or several values of a
                field that the table of the experiment does not show.
        """
        chosen, overrides = self.scales[self.scale(scale)], dict(overrides or {})
        axes = self.axes(scale)
        axes |= {name: _several(overrides.pop(name)) for name in axes if name in overrides}
        empty = [name for name, values in axes.items() if not values]
        if empty:
            raise ConfigError(f"{empty[0]}: it has no value; give one, or a tuple of them")
        unknown = [method for method in axes["method"] if method not in self.methods]
        if unknown:
            known = ", ".join(self.methods)
            raise ConfigError(f"method: {self.name} has no method {unknown[0]!r}; its methods are {known}")
        mixed = [n for n, values in axes.items() if n not in ("method", "seed", self.axis) and len(values) > 1]
        if mixed:
            raise ConfigError(f"{mixed[0]}: the table of {self.name} has {self.axis} alone as its axis; give one value")
        base = set_fields(chosen.base, overrides)
        points = [dict(zip(axes, values, strict=True)) for values in itertools.product(*axes.values())]
        return [set_fields(base, point | chosen.otherwise(point)) for point in points]

    def axes(self, scale: str) -> dict[str, tuple[Any, ...]]:
        """Return what a scale varies, "method" first: field -> its values.

        Raises:
            ConfigError: an axis has no values.
        """
        vary = self.scales[self.scale(scale)].vary
        if not isinstance(vary, Mapping):
            raise ConfigError(f"vary: {self.name} has {vary!r}; give a table from fields to tuples of values")
        found = {}
        for name, values in {"method": self.methods, **vary}.items():
            if isinstance(values, str) or not isinstance(values, Iterable) or not tuple(values):
                raise ConfigError(f"{name}: {self.name} varies it over {values!r}; give a tuple of values")
            found[name] = tuple(values)
        return found

    def outline(self, scale: str | None = None) -> Outline:
        """Return the number of runs of a scale (None: the first one), its methods, its axes and its cost.

        Nothing is loaded: the cost follows from the sizes of the known datasets.

        Raises:
            ConfigError: the experiment has no such scale, or a configuration of it is wrong.
        """
        chosen = self.scale(scale)
        costs = [samples(semcom.resolve(config)) for config in self.grid(chosen)]
        known = [cost for cost in costs if cost is not None]
        total = sum(known) if len(known) == len(costs) else None
        return Outline(len(costs), self.methods, dict(self.scales[chosen].vary), total)


def _several(value: Any) -> tuple[Any, ...]:
    return tuple(value) if isinstance(value, (tuple, list)) else (value,)


def field_of(config: RunConfig, name: str) -> Any:
    """Return the value of a dotted field (`train.rounds`, `hyper.lam`, `partition.ways`, `seed`); None for none."""
    section, _, rest = name.partition(".")
    part: Any = getattr(config, section, None)
    if rest and section != "hyper" and not hasattr(part, rest):
        part = getattr(part, "options", None)
    return (part.get(rest) if isinstance(part, Mapping) else getattr(part, rest, None)) if rest else part


def set_fields(config: RunConfig, values: Mapping[str, Any]) -> RunConfig:
    """Return a copy of `config` with dotted fields (`train.rounds`, `hyper.lam`, `partition.ways`, `seed`) replaced.

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
    """Return options with one of them set; `semcom.resolve` checks whether their owner takes it."""
    known = vars(options) if dataclasses.is_dataclass(options) else options or {}
    return {**known, name: value}


def _replace(part: Any, name: str, value: Any, full: str) -> Any:
    """Return `dataclasses.replace(part, name=value)`, with an error of one line that says which fields exist."""
    known = [f.name for f in dataclasses.fields(part)] if dataclasses.is_dataclass(part) else []
    if name not in known:
        raise ConfigError(
            f"{full}: no such field; known are {', '.join(known or (f.name for f in dataclasses.fields(RunConfig)))}"
        )
    return dataclasses.replace(part, **{name: value})  # type: ignore[type-var]
