"""Options that their owner declares, such as a method, a link, a partition or a dataset, as a frozen dataclass.

An owner's dataclass may have two more things:

* `check()`, which raises ValueError ("name: value is not ...") for a value that makes no sense;
* `needs`, a ClassVar of type `Needs`: options that have an effect only beside some values of others.
"""

from __future__ import annotations

import dataclasses
import os
import types
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from numbers import Integral, Real
from pathlib import Path
from typing import Any, Literal

from semcom.channels import options as channel_options
from semcom.channels.options import Rule
from semcom.config.declared import declared_types
from semcom.config.errors import ConfigError, NoEffect, show_value

Needs = Mapping[str, Mapping[str, tuple[Any, ...] | Rule]]
"""Option -> {another option: its values, or a rule on them, with which the first has an effect}."""
NOT_ZERO = Rule(lambda v: v != 0, "anything but 0")
"""Rule on a weight whose other options have no effect at 0."""


def build_options(
    cls: type, given: Any, section: str, owner: str, accepted_by: Callable[[str], Sequence[str]] = lambda name: ()
) -> Any:
    """Build the options of an owner as an instance of its dataclass.

    Args:
        cls: the dataclass.
        given: None, a mapping of some of its fields, or an instance.
        section: the beginning of the flags, such as "channel".
        owner: name of the owner, for the error.
        accepted_by: function from an option to the owners that take it, for the error too.

    Raises:
        ConfigError: `given` is of another type, or has a field that the owner does not take.
    """
    known = [f.name for f in dataclasses.fields(cls)]
    hints = declared_types(cls)
    if type(given) is cls:
        values = {name: getattr(given, name) for name in known}
        plainer = {name: parse_option_value(value, hints[name]) for name, value in values.items()}
        return cls(**plainer) if show_value(plainer) != show_value(values) else given  # 1 equals 1.0
    if given is not None and not isinstance(given, Mapping):
        field = section if section == "hyper" else f"{section}.options"
        raise ConfigError(f"{field}: {show_value(given)} is not a table of fields, nor the options of {owner}")
    for name in given or {}:
        if not isinstance(name, str) or name not in known:
            text = name if isinstance(name, str) else show_value(name)
            raise ConfigError(describe_untaken_option(section, text, owner, cls, accepted_by(text)))
    try:
        return cls(**{name: parse_option_value(value, hints[name]) for name, value in (given or {}).items()})
    except RecursionError:
        raise ConfigError(f"{section}: lists within lists are nested too deep for any option") from None


def describe_untaken_option(section: str, name: str, owner: str, cls: type, accepted_by: Sequence[str]) -> str:
    """Describe an option that an owner does not take, with the owners of its kind that do."""
    takes = ", ".join(spell_option(f.name) for f in dataclasses.fields(cls)) or "no options"
    others = f"; it is for {', '.join(accepted_by)}" if accepted_by else ""
    return f"{section}.{spell_option(name)}: not for {owner}, which takes {takes}{others}"


def parse_option_value(value: Any, hint: Any = Any) -> Any:
    """Convert a given value to the form in which a field of type `hint` holds it.

    Lists become tuples, paths and NumPy's numbers and texts become Python's. 3 becomes 3.0 if the type has no whole
    numbers, so that both are the same run.
    """
    if value is None or isinstance(value, bool) or type(value) is str:  # most of a stored configuration
        return value
    union = typing.get_origin(hint) in (typing.Union, types.UnionType)
    kinds = typing.get_args(hint) if union else (hint,)
    if isinstance(value, list | tuple):
        inner = next((typing.get_args(kind)[0] for kind in kinds if typing.get_origin(kind) is tuple), Any)
        return tuple(parse_option_value(v, inner) for v in value)
    if isinstance(value, Real) and not isinstance(value, bool):
        choices = [v for kind in kinds if typing.get_origin(kind) is Literal for v in typing.get_args(kind)]
        if value in choices:
            return choices[choices.index(value)]
        if isinstance(value, Integral) and (int in kinds or float not in kinds):
            return int(value)
        with suppress(OverflowError):  # what is too large is left to the ranges
            return float(value)
    if isinstance(value, str):
        return str.__str__(value)
    return os.fspath(value) if isinstance(value, os.PathLike) else value


def list_paths_in_options(options: Any) -> dict[str, str]:
    """List the options that are declared as `Path`, with the paths that they hold."""
    cls: type = type(options)
    hints = declared_types(cls)
    named = [name for name, hint in hints.items() if Path in (hint, *typing.get_args(hint))]
    return {name: os.fspath(value) for name in named if (value := getattr(options, name)) is not None}


def spell_option(name: str) -> str:
    """Spell a field as the command line does."""
    return name.replace("_", "-")


def check_options(section: str, options: Any) -> None:
    """Raise ConfigError for the first option that makes no sense, or has no effect beside the others."""
    with raise_as_config_error(section, options):
        if hasattr(options, "check"):
            options.check()
    needs: Needs = getattr(options, "needs", {})
    defaults = {f.name: _read_field_default(f) for f in dataclasses.fields(options)}
    for name, others in needs.items():
        value = getattr(options, name)
        for other, wanted in others.items():
            idle = value != defaults[name] and value != 0  # a weight of zero says what holds anyway
            held = getattr(options, other)
            if idle and not (wanted.accepts(held) if isinstance(wanted, Rule) else held in wanted):
                beside = wanted.wanted if isinstance(wanted, Rule) else " or ".join(map(str, wanted))
                why = f"{value!r} has no effect with {section}.{spell_option(other)} {held}; it has one with {beside}"
                raise NoEffect(f"{section}.{spell_option(name)}: {why}")


def _read_field_default(field: dataclasses.Field[Any]) -> Any:
    return field.default if field.default_factory is dataclasses.MISSING else field.default_factory()


def read_option_default(part: Any, name: str) -> Any:
    """Read the default of a field of a dataclass instance."""
    return next(_read_field_default(field) for field in dataclasses.fields(part) if field.name == name)


@contextmanager
def raise_as_config_error(section: str, options: Any) -> Iterator[None]:
    """Turn a ValueError from inside that begins with an option's name into a ConfigError that begins with its flag."""
    try:
        yield
    except ValueError as error:
        kind = NoEffect if isinstance(error, channel_options.NoEffect) else ConfigError
        raise kind(spell_options_as_flags(str(error), section, options)) from None


def spell_options_as_flags(text: str, section: str, options: Any) -> str:
    """Spell the option with which a message begins as its flag; other messages stay."""
    name, colon, rest = text.partition(":")
    known = {spell_option(f.name) for f in dataclasses.fields(options)}
    return f"{section}.{spell_option(name)}{colon}{rest}" if spell_option(name) in known else text
