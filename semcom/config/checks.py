"""Checks of a configuration that need no data: types, ranges, and fields that contradict each other."""

from __future__ import annotations

import dataclasses
import functools
import math
import re
import types
import typing
from operator import attrgetter
from pathlib import Path
from typing import Any, Literal

from semcom.channels import options
from semcom.channels.options import COUNT, Rule
from semcom.config import COMMON, SNR, ConfigError, NoEffect, Resolved, RunConfig, parse_snr
from semcom.config.declared import declared_types
from semcom.config.errors import show_value
from semcom.config.options import spell_option
from semcom.config.resolved import Schedule

PER_CLIENT = ("train.lr", "train.local_epochs")
"""Fields that hold one value, or one per client."""


def check_config(config: Resolved) -> None:
    """Raise ConfigError for the first field that is wrong."""
    check_config_types(config)
    _check_ranges(RunConfig, config, "")
    for name in PER_CLIENT:
        value = attrgetter(name)(config)
        if isinstance(value, tuple) and len(value) != config.clients:
            raise ConfigError(
                f"{spell_option(name)}: {len(value)} values for {config.clients} clients; give one, or one per client"
            )
    if config.chunk != "auto":
        require_in_config("chunk", config.chunk, COUNT)
    wrong = [k for k in config.partition.scarce if not 0 <= k < config.clients]
    if wrong:
        raise ConfigError(f"partition.scarce: there is no client {wrong[0]}; clients are 0 to {config.clients - 1}")
    twice = [k for k in config.partition.scarce if config.partition.scarce.count(k) > 1]
    if twice:
        raise ConfigError(f"partition.scarce: client {twice[0]} is named twice")
    if (config.train.eval_clients or 0) > config.clients:
        raise ConfigError(f"train.eval-clients: {config.train.eval_clients} is more than the {config.clients} clients")
    sharing = max(config.clients, config.new_clients)
    if config.processes > sharing:
        raise ConfigError(f"processes: {config.processes} share {sharing} clients; give at most one per client")
    _check_train_config(config.train)
    _check_part_rates(config.train)
    _check_snr(config)


def require_in_config(name: str, value: Any, rule: Rule) -> None:
    """Raise ConfigError, naming the flag, unless a value meets a rule (`semcom.channels.options.require`)."""
    try:
        options.require(spell_option(name), value, rule)
    except ValueError as error:
        raise ConfigError(str(error)) from None


# -- types -----------------------------------------------------------------------------------------------------------


DIGITS = 4000
"""Digits from which on a number is refused; Python does not write numbers of more than 4,300."""
_UNCOUNTED = 10**DIGITS
_SURROGATE = re.compile("[\ud800-\udfff]")
"""Halves of characters, as Python reads bytes of a path that are not UTF-8."""


def check_config_types(config: RunConfig, seen: dict[Any, Any] | None = None) -> None:
    """Raise ConfigError for a value, read from a file or given in Python, that is not of its field's declared type.

    Sections that are in `seen` of `from_dict`, and have been checked, are not checked again.
    """
    for section in dataclasses.fields(RunConfig):
        part = getattr(config, section.name)
        if seen is not None and id(part) in seen:
            continue
        if dataclasses.is_dataclass(part):
            _check_config_fields(part, f"{section.name}.")
            if dataclasses.is_dataclass(own := getattr(part, "options", None)):
                _check_config_fields(own, f"{section.name}.")
            if seen is not None:
                seen[id(part)] = part
    _check_config_fields(config, "")


def _check_config_fields(part: Any, prefix: str) -> None:
    """Check the fields of a section, except the sections in it, which no rule here fits."""
    cls: type = type(part)
    for name, hint in declared_types(cls).items():
        value = getattr(part, name)
        if not dataclasses.is_dataclass(hint) and not _fits_declared_type(value, hint):
            several = f"; write [{show_value(value)}]" if _fits_declared_type((value,), hint) else ""
            raise ConfigError(
                f"{spell_option(prefix + name)}: {show_value(value)} is not {describe_type(hint)}{several}"
            )


def _fits_declared_type(value: Any, hint: Any) -> bool:
    """Check that a value has a declared type: a whole number is a number too, a truth value is not.

    A number has less than `DIGITS` digits. A text is UTF-8 without NUL, so that it can be written to a file and be a
    path.
    """
    if type(value) in _list_plain_kinds(hint) and (type(value) is not str or (value.isascii() and "\0" not in value)):
        return True
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if hint is Any or origin is typing.ClassVar:
        return True
    if origin is Literal:
        return isinstance(value, str | int) and value in arguments
    if origin in (typing.Union, types.UnionType):
        return any(_fits_declared_type(value, kind) for kind in arguments)
    if origin is tuple:
        return isinstance(value, tuple) and all(_fits_declared_type(v, arguments[0]) for v in value)
    if origin is dict:
        return isinstance(value, dict) and all(
            _fits_declared_type(n, arguments[0]) and _fits_declared_type(v, arguments[1]) for n, v in value.items()
        )
    if isinstance(value, bool):
        return hint is bool
    if isinstance(value, str):
        return hint in (str, Path) and "\0" not in value and not _SURROGATE.search(value)
    if isinstance(value, int) and abs(value) >= _UNCOUNTED:
        return False
    kind = (int, float) if hint is float else origin or hint
    return not isinstance(kind, type | tuple) or isinstance(value, kind)


@functools.cache
def _list_plain_kinds(hint: Any) -> tuple[type, ...]:
    """List the classes of values that all have a declared type; texts if they are of ASCII, without NUL."""
    inside = typing.get_args(hint) if typing.get_origin(hint) in (typing.Union, types.UnionType) else (hint,)
    return tuple(kind for kind in (float, bool, str, type(None)) if kind in inside)


def describe_type(hint: Any) -> str:
    """Describe a declared type in words."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is Literal:
        return f"one of {', '.join(map(str, arguments))}"
    if origin in (typing.Union, types.UnionType):
        return " or ".join(describe_type(kind) for kind in arguments if kind is not type(None))
    if origin is tuple:
        one = describe_type(arguments[0])
        return f"a list of {one.removeprefix('a ')}s" if arguments[0] in _SCALARS else f"a list, each {one}"
    if origin is dict:
        return f"a table from {describe_type(arguments[0])} to {describe_type(arguments[1])}"
    return _SCALARS.get(hint, "true or false" if hint is bool else str(hint))


_SCALARS: dict[Any, str] = {int: "a whole number", float: "a number", str: "a text", Path: "a path"}


# -- ranges ----------------------------------------------------------------------------------------------------------


def _check_ranges(cls: type, part: Any, prefix: str) -> None:
    for field in dataclasses.fields(cls):  # of the request's class: those of a resolved one declare no ranges
        value = getattr(part, field.name)
        if dataclasses.is_dataclass(section := field.default_factory):
            _check_ranges(section, value, f"{field.name}.")  # type: ignore[arg-type]
        elif rule := field.metadata.get("rule"):
            require_in_config(prefix + field.name, value, rule)


def _check_train_config(train: Schedule) -> None:
    if train.momentum and train.optimizer != "sgd":
        raise NoEffect(
            f"train.momentum: {train.momentum} has no effect with {train.optimizer}; set train.optimizer sgd"
        )
    if train.local_steps is not None and train.local_epochs is not None:
        steps, epochs = train.local_steps, train.local_epochs
        why = f"train.local-steps: {steps} is not taken beside train.local-epochs {epochs}; give one of them"
        raise NoEffect(why, "train.local_epochs")
    milestones, decay = train.lr_milestones or (), train.lr_decay
    if milestones and train.lr_schedule == "cosine":
        raise NoEffect(f"train.lr-milestones: {milestones} has no effect with train.lr-schedule cosine; leave it out")
    if sorted(set(milestones)) != list(milestones):
        raise ConfigError(f"train.lr-milestones: {milestones} is not a list of ascending rounds")
    if isinstance(decay, tuple) and len(decay) != len(milestones):
        wanted = f"{len(decay)} values for {len(milestones)} milestones; give one, or one per milestone"
        raise ConfigError(f"train.lr-decay: {wanted}")
    if not milestones and decay not in (None, (), COMMON["lr_decay"]):
        raise NoEffect(f"train.lr-decay: {decay} has no effect without train.lr-milestones")


def _check_part_rates(train: Schedule) -> None:
    told = f"train.lr-parts: {','.join(train.lr_parts)!r}"
    try:
        factors = train.part_factors
        right = all(name and 0 <= factor < math.inf for name, factor in factors)
    except ValueError:  # of what is no number
        right = False
    if not right:
        raise ConfigError(f"{told} is not a list of names of parts with factors of at least 0, such as encoder=0.1")
    if len(dict(factors)) < len(factors):
        raise ConfigError(f"{told} names a part twice")


def _check_snr(config: RunConfig) -> None:
    """Check the three SNR fields against the number of clients."""
    channel = config.channel
    for name, value in (("channel.snr-db", channel.snr_db), ("channel.downlink-snr-db", channel.downlink_snr_db)):
        snr = SNR((0.0,)) if value is None else parse_snr(value, name)
        if not snr.drawn and len(snr.values) not in (1, config.clients):
            given = f"{len(snr.values)} values for {config.clients} clients"
            raise ConfigError(f"{name}: {given}; give one, or one per client")
    test = channel.test_snr_db
    if test is not None and parse_snr(test, "channel.test-snr-db").drawn:
        raise ConfigError(f"channel.test-snr-db: {test!r} is a range; give one number or a comma list for a curve")
