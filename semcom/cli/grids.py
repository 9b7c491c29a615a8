"""The flags of `semcom sweep` as values of a grid, typed and checked like those of `semcom train`."""

from __future__ import annotations

import dataclasses
import re
import typing
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from semcom.cli import flags
from semcom.cli.flags import SweepFlags
from semcom.config import ConfigError, RunConfig
from semcom.config.options import describe_untaken_option, spell_option
from semcom.runs.request.section_options import (
    NAMING,
    OWNERS,
    build_section_options,
    find_options_class,
    find_owners_of_option,
    read_option_owner,
)

if TYPE_CHECKING:
    from semcom.studies.experiment import Experiment


def read_grid_request(wanted: SweepFlags, methods: Sequence[str], base: RunConfig) -> dict[str, Any]:
    """Read the flags that change an experiment's declaration: the arguments of `sweep.request.parse_request`.

    Args:
        wanted: the flags.
        methods: those that the experiment compares.
        base: the configuration that its runs share.

    Raises:
        ConfigError: a flag that is spelled wrongly, a field that is not there, a value that is none of it.
    """
    from semcom.studies.overrides import (
        parse_seeds_override,
        parse_set_override,
        parse_vary_override,
        split_override_values,
    )

    names = None if wanted.methods is None else split_override_values(wanted.methods, "methods")
    typed = Typed(methods or names or (), base)
    settings = [parse_set_override(text, typed) for text in wanted.set]
    settings += [(n, v) for n, v in (("data.root", wanted.data_root), ("device", wanted.device)) if v is not None]
    settings += [("keep", typed("keep", " ".join(wanted.keep)))] if wanted.keep else []
    _check_once("set", [name for name, _ in settings])

    def read_axes(flag: str, texts: Sequence[str]) -> dict[Any, Any]:
        axes = [parse_vary_override(text, typed) for text in texts]
        _check_once(flag, [name for fields, _ in axes for name in fields])
        return {f if len(f) > 1 else f[0]: [v if len(f) > 1 else v[0] for v in values] for f, values in axes}

    vary, tune = read_axes("vary", wanted.vary), read_axes("tune", wanted.tune)
    seeds = None if wanted.seeds is None else parse_seeds_override(wanted.seeds)
    return {"methods": names, "seeds": seeds, "set": dict(settings), "vary": vary, "tune": tune}


def find_grid_in_use(declared: Experiment | None, scale: str | None) -> tuple[list[str], RunConfig]:
    """Find the methods that an experiment compares and the configuration that its runs share; None: no experiment."""
    if declared is None:
        return [], RunConfig()
    return [variant.method for variant in declared.compared()], declared.scales[declared.scale(scale)].base


def _check_once(flag: str, names: Sequence[str]) -> None:
    """Raise ConfigError for a field that a flag is given for twice."""
    twice = [name for name in names if names.count(name) > 1]
    if twice:
        raise ConfigError(f"{flag}: {twice[0]} is given twice; give it once")


class Typed:
    """Reads words as values of fields. A field that only some owners have is typed by the first that has it.

    Args:
        methods: those whose hyperparameters come first.
        base: the configuration whose dataset, partition and link come first.
    """

    def __init__(self, methods: Sequence[str], base: RunConfig) -> None:
        known = [name for name in methods if name in NAMING["method"]]  # others are refused with their runs
        self._first = {field: [read_option_owner(base, field)] for field in NAMING} | {"method": known}

    def __call__(self, field: str, word: str) -> Any:
        """Parse the value of a field; several values have spaces between them.

        "None" leaves an option open.

        Raises:
            ConfigError: there is no such field, or the word is none of its values.
        """
        from semcom.studies.grid import check_grid_field

        check_grid_field(field)
        part = self._part(field)
        if part is None:
            raise self._no_field(field, word)
        section, _, rest = field.rpartition(".")
        if word == "None" and _find_part(section, rest) is None:
            return None  # an option that is left open, as another owner has none of that name
        hint, default = typing.get_type_hints(type(part))[rest], getattr(part, rest)
        return _read_value(section, rest, hint, default, word)

    def _part(self, field: str) -> Any:
        """Find an instance of the dataclass that a field belongs to; None without one."""
        section, _, rest = field.rpartition(".")
        options = (cls() for _, cls in self._owners(section) if rest in cls.__dataclass_fields__)
        return _find_part(section, rest) or next(options, None)

    def _owners(self, section: str) -> Iterator[tuple[str, Any]]:
        """Yield the possible owners of a section's options, with their dataclass, the owners in use first."""
        for field, registry in OWNERS.get(section, {}).items():
            for one in dict.fromkeys((*self._first[field], *registry.names())):
                yield one, find_options_class(field, one)

    def _no_field(self, field: str, word: str) -> ConfigError:
        """Make the error about an unknown field, with the most similar known one."""
        section, _, rest = field.rpartition(".")
        for name, cls in self._owners(section) if section == "hyper" else ():
            others = [other for _, other in find_owners_of_option("hyper", rest)]
            return ConfigError(describe_untaken_option("hyper", rest, name, cls, others))
        config = build_section_options(
            dataclasses.replace(RunConfig(), method=next(iter(self._first["method"]), "fedcl"))
        )
        try:
            flags.parse_flags(config, "semcom sweep", [f"--{spell_option(field)}={word}"], {})
        except ConfigError as error:
            return ConfigError(re.sub(r"--(?=[a-z])", "", str(error)).replace("no such flag", "no such field"))
        return ConfigError(f"{field}: no such field")


def _find_part(section: str, name: str) -> Any:
    """Find the part of a configuration that has a field; None if only an owner of options may have it."""
    part = getattr(RunConfig(), section, None) if section else RunConfig()
    return part if section != "hyper" and hasattr(part, name) else None


def _read_value(section: str, name: str, hint: object, default: object, word: str) -> Any:
    """Parse a word by tyro, as a command line that knows only this field."""
    flag = ".".join(spell_option(part) for part in (section, name) if part)
    if hint is bool:
        if word not in ("True", "False"):
            raise ConfigError(f"{flag}: {word!r} is not True or False")
        return word == "True"
    held = dataclasses.field(default_factory=lambda: default)
    alone = dataclasses.make_dataclass("Alone", [(name, hint, held)], frozen=True)()
    if section:
        inside = dataclasses.field(default_factory=lambda: alone)
        alone = dataclasses.make_dataclass("Section", [(section, type(alone), inside)], frozen=True)()
    words = [f"--{flag}", *word.split()] if "tuple" in str(hint) else [f"--{flag}={word}"]
    parsed = flags.parse_flags(alone, "semcom sweep", words, {})
    return getattr(getattr(parsed, section) if section else parsed, name)
