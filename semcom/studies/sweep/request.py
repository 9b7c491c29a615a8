"""The changes that a sweep makes to a declared experiment: other variants, seeds, settings and axes."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from semcom.config import NOT_IDENTITY, ConfigError, RunConfig
from semcom.config.options import parse_option_value
from semcom.methods.registry import METHODS
from semcom.runs.request.section_options import NAMING, replace_option_owners
from semcom.studies.experiment import Experiment
from semcom.studies.grid import Axis, Grid, Variant, check_grid_field, parse_axis, set_fields
from semcom.studies.registry import EXPERIMENTS

STUDY, OWN = "study", "own"
"""Name and scale of a study without a declaration."""
SEED = ("seed",)
"""The axis that `seeds` are the values of."""


@dataclass(frozen=True)
class Request:
    """The changes to a declared experiment; `parse_request` makes it from a user's arguments."""

    methods: tuple[str, ...] | None = None
    """Names of the variants that run (None: all), and methods of plug-ins, which join them; of a study without a
    declaration, methods."""
    set: Mapping[str, Any] = field(default_factory=dict)
    """Dotted field -> its value in all runs; of a field that varies, the only one."""
    axes: tuple[Axis, ...] = ()
    """Axes in the place of those of the same fields, or beside them; seeds are one."""
    tune: tuple[Axis, ...] = ()
    """Axes whose best value is chosen for each variant before the study begins, see `semcom.studies.sweep.tune`."""
    own: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Variant -> dotted field -> value of its own, as `semcom.studies.sweep.tune` has chosen it."""
    words: str = ""
    """The call that makes the request, as sweep.json keeps it: a line for a shell, or of Python."""


def parse_request(
    methods: Iterable[str] | str | None = None,
    seeds: Iterable[int] | int | None = None,
    set: Mapping[str, Any] | None = None,
    vary: Mapping[str | tuple[str, ...], Any] | None = None,
    tune: Mapping[str | tuple[str, ...], Any] | None = None,
) -> Request:
    """Parse the request of a user: lists become tuples, and numbers Python's.

    Args:
        methods: names of variants.
        seeds: values of the field `seed`.
        set: dotted field -> value.
        vary: dotted field, or a tuple of joint ones, -> values.
        tune: the same, of which the best values are chosen.

    Raises:
        ConfigError: a field is asked for twice, is none that a grid can take, or has no values.
    """
    axes = [parse_axis(key, values, "the sweep") for key, values in (vary or {}).items()]
    if seeds is not None:
        axes.append(parse_axis("seed", (seeds,) if isinstance(seeds, int) else seeds, "the sweep"))
    fixed = {name: parse_option_value(value) for name, value in (set or {}).items()}
    for name in fixed:
        check_grid_field(name)
    tuned = tuple(parse_axis(key, values, "the sweep") for key, values in (tune or {}).items())
    fields = [*fixed, *(name for axis in (*axes, *tuned) for name in axis.fields)]
    twice = [name for name in fields if fields.count(name) > 1]
    if twice:
        raise ConfigError(f"{twice[0]}: it is asked for twice; set, vary or tune it once (--seeds are values of seed)")
    names = (methods,) if isinstance(methods, str) else methods
    return Request(None if names is None else tuple(names), fixed, tuple(axes), tuned)


def make_experiment_of_request(request: Request) -> Experiment:
    """Build the experiment of a study without a declaration: the default run, with methods as variants.

    Raises:
        ConfigError: it has no methods.
    """
    if not request.methods:
        known = ", ".join(EXPERIMENTS.names())
        raise ConfigError(f"experiment: none is given; known are {known}; or give --methods for a study of your own")
    first = next((axis for axis in request.axes if axis.fields != SEED), None)
    axis = first.fields[0] if first else "data.name"
    return Experiment(STUDY, "A study of its own", "none", request.methods, {OWN: Grid(RunConfig(), {})}, axis)


def apply_request(declared: Experiment, scale: str, request: Request) -> Experiment:
    """Apply a request to an experiment, of which one scale is left.

    Where methods of plug-ins join it, what is set of their training is theirs alone.

    Raises:
        ConfigError: a variant or a field that is not there, an axis that cuts through a joint one, or a setting that
            no run would have.
    """
    grid, axes = declared.scales[scale], {axis.fields: axis for axis in declared.axes(scale)}
    wanted = [*request.axes, *(Axis((n,), ((v,),)) for n, v in request.set.items() if (n,) in axes)]
    for axis in wanted:
        _check_whole_axis(axis, axes, declared.name)
        axes[axis.fields] = axis
    common = {name: value for name, value in request.set.items() if (name,) not in axes}
    for name in common:
        _check_whole_axis(Axis((name,), ()), axes, declared.name)
    vary = {a.name if len(a.fields) == 1 else a.fields: a.entries() for a in axes.values()}
    own = dict(request.own)
    if joining := list_joining_methods(declared, request.methods):
        theirs = {name: value for name, value in common.items() if name not in NOT_IDENTITY}
        common = {name: value for name, value in common.items() if name in NOT_IDENTITY}
        own |= {name: {**theirs, **own.get(name, {})} for name in joining}
    chosen = choose_variants(declared, request.methods)
    variants = tuple(dataclasses.replace(v, set={**v.set, **own.get(v.name, {})}) for v in chosen)
    base = set_fields(replace_option_owners(grid.base, {f: common[f] for f in NAMING if f in common}), common)
    changed = dataclasses.replace(grid, base=base, vary=vary)
    found = dataclasses.replace(declared, variants=variants, scales={scale: changed})
    _check_effect(changed, variants, declared.name, request.set)
    return found


def choose_variants(declared: Experiment, names: Sequence[str] | None) -> tuple[Variant, ...]:
    """Choose the variants of these names, in the order of the declaration; methods that join it come last.

    Raises:
        ConfigError: a name is neither, or there is none.
    """
    compared = {variant.name: variant for variant in declared.compared()}
    compared |= {name: Variant(name, name) for name in list_joining_methods(declared, names)}
    unknown = [name for name in names or () if name not in compared]
    if unknown:
        known = ", ".join(compared)
        raise ConfigError(f"methods: {declared.name} has no variant {unknown[0]!r}; its variants are {known}")
    if names is not None and not names:
        raise ConfigError(f"methods: none is given; the variants of {declared.name} are {', '.join(compared)}")
    return tuple(variant for name, variant in compared.items() if names is None or name in names)


def list_joining_methods(declared: Experiment, names: Sequence[str] | None) -> list[str]:
    """List those of some names that are no variants of an experiment but methods of plug-ins, which join it."""
    there = {variant.name for variant in declared.compared()}
    return [name for name in names or () if name not in there and name in METHODS and METHODS.source(name)]


def _check_whole_axis(axis: Axis, axes: Mapping[tuple[str, ...], Axis], name: str) -> None:
    """Raise ConfigError for fields of which some other axis holds a part."""
    for fields in axes:
        common = [one for one in axis.fields if one in fields]
        if common and fields != axis.fields:
            joint = ",".join(fields)
            raise ConfigError(f"{common[0]}: {name} varies {joint} together; give them together: --vary {joint}=...")


def _check_effect(grid: Grid, variants: Sequence[Variant], name: str, fixed: Mapping[str, Any]) -> None:
    """Raise ConfigError for a field that is set though every run has a value of its own."""
    if not fixed:
        return
    idle = dict(fixed)
    for variant, point in grid.points(variants, name):
        own = grid.otherwise(variant, point)
        idle = {field: value for field, value in idle.items() if field in own and own[field] != value}
        if not idle:
            return
    field, value = next(iter(idle.items()))
    raise ConfigError(f"{field}: {value!r} has no effect, as all runs of {name} set it otherwise; leave it out")


def format_call(
    name: str | None, scale: str | None, request: Request, plugins: Sequence[str], out: Path | str | None
) -> str:
    """Format the call of `semcom.sweep` that asks for a request, as a line of Python."""
    vary, tune = (
        {axis.fields if len(axis.fields) > 1 else axis.name: axis.entries() for axis in axes}
        for axes in (request.axes, request.tune)
    )
    given = {
        "scale": scale,
        "methods": request.methods,
        "set": dict(request.set),
        "vary": vary,
        "tune": tune,
        "plugins": tuple(plugins),
        "out": str(out or ""),
    }
    words = [*([repr(name)] if name else []), *(f"{key}={value!r}" for key, value in given.items() if value)]
    return f"semcom.sweep({', '.join(words)})"
