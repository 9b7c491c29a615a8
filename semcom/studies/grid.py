"""A grid of runs: the fields that vary, the variants that are compared, and the configuration of each run.

Fields have dotted names: `train.rounds`, `hyper.lam`, `partition.ways` (options without `options`), `seed`, `clients`.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from semcom.config import ConfigError, RunConfig, parse_snr
from semcom.config.options import parse_option_value
from semcom.studies.overrides import Fields, Values, format_number

R = TypeVar("R", bound=RunConfig)
FIXED: Mapping[str, str] = {
    "method": "the methods of a grid are its variants (--methods)",
    "out": "each run of a grid has a folder of its own; give that of all of them (--out)",
    "plugins": "they belong to all runs (--plugin)",
    "contents": "they are worked out from the files",
}
"""Fields that a grid neither varies nor sets, and why."""
TEST_SNR, TEST = "channel.test_snr_db", "test_snr_db"
"""The field whose axis costs no training, as a run is tested at all its values; and the axis that these make."""
MOST = 100_000
"""Runs of the largest grid."""


@dataclass(frozen=True)
class Variant:
    """A method under a name of its own, with settings of its own, to compare with others."""

    name: str
    """Its name in tables and legends, and on the command line (`--methods`)."""
    method: str
    """Name of the method (see: semcom list methods)."""
    set: Mapping[str, Any] = field(default_factory=dict)
    """Dotted field -> its value in all runs of the variant. A field that the grid varies is then not varied for it."""


@dataclass(frozen=True)
class Run:
    """One run of a grid."""

    variant: str
    """Name of its variant."""
    config: RunConfig
    """Its configuration, not resolved yet."""


@dataclass(frozen=True)
class Axis:
    """One field of a grid that varies, or several that take their values together."""

    fields: Fields
    """Dotted names."""
    values: Values
    """The values, each a tuple with an entry per field."""

    @property
    def name(self) -> str:
        """Its fields as text."""
        return ", ".join(self.fields)

    def entries(self) -> tuple[Any, ...]:
        """List the values as `Grid.vary` declares them: those of one field are no tuples."""
        return self.values if len(self.fields) > 1 else tuple(value for (value,) in self.values)

    def points(self) -> list[dict[str, Any]]:
        """List field -> value for each of the values."""
        return [dict(zip(self.fields, value, strict=True)) for value in self.values]


def parse_axis(key: str | Sequence[str], values: Any, owner: str) -> Axis:
    """Parse an entry of `Grid.vary`.

    Args:
        key: a dotted field, or several of them.
        values: its values; those of several fields are tuples.
        owner: what varies it, for the error.

    Raises:
        ConfigError: it has no values, values of the wrong shape, or a field that cannot vary.
    """
    fields = (key,) if isinstance(key, str) else tuple(key)
    name = ", ".join(fields)
    if isinstance(values, str) or not isinstance(values, Iterable) or not (listed := tuple(values)):
        raise ConfigError(f"{name}: {owner} varies it over {values!r}; give a tuple of values")
    for one in fields:
        check_grid_field(one)
    if isinstance(key, str):
        return Axis(fields, tuple((parse_option_value(value),) for value in listed))
    wrong = [value for value in listed if not isinstance(value, tuple | list) or len(value) != len(fields)]
    if wrong:
        raise ConfigError(f"{name}: {wrong[0]!r} is no tuple of {len(fields)} values, one for each field")
    return Axis(fields, tuple(parse_option_value(value) for value in listed))


@dataclass(frozen=True)
class Grid:
    """The runs of one scale: `base` for every variant and every combination of the values in `vary`."""

    base: RunConfig
    """Configuration that all runs share."""
    vary: Mapping[Any, Sequence[Any]]
    """Dotted field (`channel.snr_db`, `seed`, `hyper.lam`), or a tuple of joint ones, -> the values that it takes;
    those of joint fields are tuples."""
    apart: Mapping[str, Mapping[Any, Mapping[str, Any]]] = field(default_factory=dict)
    """Varied field -> one of its values -> what is set otherwise in runs with it, dotted field -> value."""
    own: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Name of a variant -> what is set in its runs at this scale, dotted field -> value; what it sets itself wins."""
    apart_of: Mapping[str, Mapping[str, Mapping[Any, Mapping[str, Any]]]] = field(default_factory=dict)
    """Name of a variant -> the same as `apart` for its runs alone, such as its rate with each dataset."""

    def axes(self, owner: str) -> tuple[Axis, ...]:
        """Parse what varies, in the order of the declaration; `owner` is named in an error.

        Raises:
            ConfigError: an axis has no values, a field has two axes, or `apart` is about one that does not vary.
        """
        if not isinstance(self.vary, Mapping):
            raise ConfigError(f"vary: {owner} has {self.vary!r}; give a table from fields to tuples of values")
        found = tuple(parse_axis(key, values, owner) for key, values in self.vary.items())
        fields = [name for axis in found for name in axis.fields]
        twice = [name for name in fields if fields.count(name) > 1]
        if twice:
            raise ConfigError(f"{twice[0]}: two axes of {owner} vary it; give one")
        apart = [name for of in (self.apart, *self.apart_of.values()) for name in of]
        idle = [name for name in apart if name not in fields or name == TEST_SNR]
        if idle:
            what = f"its axes are {', '.join(fields) or 'none'}, and settings of a method belong to its Variant"
            raise ConfigError(f"apart: {idle[0]} has runs of its own in no grid of {owner}; {what}")
        return found

    def points(self, variants: Sequence[Variant], owner: str) -> Iterator[tuple[Variant, dict[str, Any]]]:
        """Yield the variant and the fields of each run: variant by variant, the last axis fastest.

        A variant, or a value of an axis, may set a field that another axis varies: there are then no runs along that.

        Raises:
            ConfigError: as `axes`; more runs than `MOST`; a test SNR that is none.
        """
        tested, axes = _split_off_test_axis(self.axes(owner))
        size = len(variants) * math.prod(len(axis.values) for axis in axes)
        if size > MOST:
            raise ConfigError(f"vary: {size:,} runs are more than the {MOST:,} of the largest grid; give fewer values")
        done = set()
        for variant in variants:
            for places in itertools.product(*(range(len(axis.values)) for axis in axes)):
                parts = [axis.points()[i] for axis, i in zip(axes, places, strict=True)]
                point = {name: value for part in parts for name, value in part.items()}
                otherwise = self.otherwise(variant, point)
                free = [i for i, part in zip(places, parts, strict=True) if not part.keys() <= otherwise.keys()]
                key = (variant.name, *free, *map(repr, otherwise.items()))
                if len(free) == len(places) or key not in done:
                    yield variant, {**tested, **point, **otherwise}
                done.add(key)

    def otherwise(self, variant: Variant, point: Mapping[str, Any]) -> dict[str, Any]:
        """Collect what is set otherwise for a variant at a combination of the varied values; its own settings win."""
        apart = (*self.apart.items(), *self.apart_of.get(variant.name, {}).items())
        found = [values.get(point[name], {}) for name, values in apart]
        found += [self.own.get(variant.name, {}), variant.set]
        return {name: value for fields in found for name, value in fields.items()}

    def runs(self, variants: Sequence[Variant], owner: str) -> list[Run]:
        """Build the runs in the order of `points`.

        Raises:
            ConfigError: as `points`, or a field that does not exist.
        """
        points = self.points(variants, owner)
        return [Run(v.name, set_fields(self.base, {"method": v.method, **point})) for v, point in points]


def _split_off_test_axis(axes: Sequence[Axis]) -> tuple[dict[str, Any], list[Axis]]:
    """Turn an axis of test SNRs into the setting of all runs; the other axes are left."""
    found = next((axis for axis in axes if axis.fields == (TEST_SNR,)), None)
    if found is None:
        return {}, list(axes)
    values = [value for (value,) in found.values]
    for value in values:
        snr = parse_snr(value, TEST_SNR)
        if snr.drawn or len(snr.values) > 1:
            raise ConfigError(f"{TEST_SNR}: {value!r} is not one SNR; an axis of it takes numbers in dB, or inf")
    joined = values[0] if len(values) == 1 else ",".join(format_number(float(value)) for value in values)
    return {TEST_SNR: joined}, [axis for axis in axes if axis is not found]


# -- fields by their dotted names ------------------------------------------------------------------------------------


def read_grid_field(config: RunConfig, name: str) -> Any:
    """Look up the value of a dotted field (`train.rounds`, `hyper.lam`, `partition.ways`, `seed`); None for none."""
    section, _, rest = name.partition(".")
    part: Any = getattr(config, section, None)
    if rest and section != "hyper" and not hasattr(part, rest):
        part = getattr(part, "options", None)
    return (part.get(rest) if isinstance(part, Mapping) else getattr(part, rest, None)) if rest else part


def set_fields(config: R, values: Mapping[str, Any]) -> R:
    """Copy `config` with dotted fields (`train.rounds`, `hyper.lam`, `partition.ways`, `seed`) replaced.

    None leaves an option or a hyperparameter open, so that its default holds: a grid may vary the kind of a partition
    together with an option that only one of the kinds has.

    Raises:
        ConfigError: names a field that does not exist. (What `hyper` and options may hold is checked by
            `semcom.resolve`.)
    """
    changed = dict[str, Any]()
    for name, value in values.items():
        section, _, rest = name.partition(".")
        part: Any = changed.get(section, getattr(config, section, None))
        if section == "hyper" and rest:
            value = _set_option(part, rest, value)
        elif rest:
            if hasattr(part, "options") and not hasattr(part, rest):
                rest, value = "options", _set_option(part.options, rest, value)
            _check_known(part, rest, name)
            value = dataclasses.replace(part, **{rest: value})
        _check_known(config, section, name)
        changed[section] = value
    return dataclasses.replace(config, **changed)


def check_grid_field(name: str) -> None:
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


def _set_option(options: Any, name: str, value: Any) -> dict[str, Any]:
    """Set one of some options, or leave it open (None); `semcom.resolve` checks whether their owner takes it."""
    known = vars(options) if dataclasses.is_dataclass(options) else options or {}
    return {**{key: old for key, old in known.items() if key != name}, **({} if value is None else {name: value})}


def _check_known(part: Any, name: str, full: str) -> None:
    """Raise ConfigError that says which fields exist where a section has no field of this name."""
    known = getattr(part, "__dataclass_fields__", {})
    if name not in known:
        raise ConfigError(f"{full}: no such field; known are {', '.join(known or RunConfig.__dataclass_fields__)}")
