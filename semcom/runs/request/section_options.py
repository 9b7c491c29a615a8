"""The owners of a section's options, and a configuration with its options built.

The method of a run owns `hyper` (flags `--hyper.NAME`); its dataset, partition and link own the `options` of theirs.
The options of the air belong to its access, compression, privacy and rate together, those of the network to its
places, path loss and speeds.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from semcom.channels import LINKS, PATH_LOSSES
from semcom.channels.options import BaseOptions
from semcom.channels.registry import Registry
from semcom.config import FORMER, ConfigError, NoEffect, RunConfig
from semcom.config.declared import declared_types
from semcom.config.errors import show_value
from semcom.config.misplaced import describe_misplaced_field
from semcom.config.options import build_options, parse_option_value, read_option_default, spell_option
from semcom.data.registry import DATASETS, PARTITIONS
from semcom.engine.air.registry import ACCESS, COMPRESSIONS, PLACES, PRIVACY, RATES, SPEEDS
from semcom.methods.registry import METHODS
from semcom.registry import find_entry

R = TypeVar("R", bound=RunConfig)

OWNERS: Mapping[str, Mapping[str, Registry[Any]]] = {
    "hyper": {"method": METHODS},
    "data": {"data.name": DATASETS},
    "partition": {"partition.kind": PARTITIONS},
    "channel": {"channel.kind": LINKS},
    "air": {"air.access": ACCESS, "air.compress": COMPRESSIONS, "air.privacy": PRIVACY, "air.rate": RATES},
    "network": {"network.kind": PLACES, "network.path_loss": PATH_LOSSES, "network.speeds": SPEEDS},
}
"""Section, as its flags begin -> the field that names an owner of its options -> the registry of such owners."""
NAMING: Mapping[str, Registry[Any]] = {name: each for fields in OWNERS.values() for name, each in fields.items()}
"""The same without sections."""


def read_option_owner(config: RunConfig, field: str) -> str:
    """Read the name in a field of `NAMING`."""
    section, _, name = field.rpartition(".")
    return getattr(getattr(config, section) if section else config, name)


def find_options_class(field: str, name: str) -> type:
    """Find the dataclass of an owner's options. Raises ConfigError for an unknown name.

    A dataset that is not registered is a file or a folder, which takes none.

    Args:
        field: field of `NAMING` with the name.
        name: of the owner.
    """
    if field == "data.name" and name not in DATASETS:
        return BaseOptions
    return getattr(find_entry(NAMING[field], name, field), "Hyper" if field == "method" else "Options", BaseOptions)


def list_option_owners(config: RunConfig, section: str) -> dict[str, str]:
    """List the fields that name the owners of a section's options, with these names."""
    return {field: read_option_owner(config, field) for field in OWNERS[section]}


def find_owners_of_option(section: str, option: str) -> list[tuple[str, str]]:
    """Find the owners that take an option of a section: the field that names each, and its name."""
    known = [(field, name) for field, registry in OWNERS[section].items() for name in registry.names()]
    return [owner for owner in known if option in (f.name for f in dataclasses.fields(find_options_class(*owner)))]


@functools.cache
def join_options_classes(*classes: type) -> type:
    """Join the dataclasses of several owners' options; if only one has options, it is returned itself.

    Raises ValueError for an option that two of them have.
    """
    having = [cls for cls in classes if dataclasses.fields(cls)]
    if len(having) < 2:
        return having[0] if having else classes[0]
    names = [field.name for cls in having for field in dataclasses.fields(cls)]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise ValueError(f"{spell_option(twice)}: two have an option of this name; rename that of your own")

    def check(options: Any) -> None:
        """Check the values, each owner's its own."""
        for cls in having:
            if hasattr(cls, "check"):
                cls.check(options)

    def reduce(options: Any) -> tuple[Any, ...]:
        """Describe how to build the options again, for pickle, which cannot import a class made here."""
        return _rebuild, (classes, vars(options))

    needs = {name: others for cls in having for name, others in getattr(cls, "needs", {}).items()}
    own = {"check": check, "needs": needs, "__module__": "builtins", "__reduce__": reduce}
    return dataclasses.make_dataclass("Options", [], bases=tuple(having[::-1]), namespace=own, frozen=True)


def _rebuild(classes: Sequence[type], values: Mapping[str, Any]) -> Any:
    return join_options_classes(*classes)(**values)


def build_section_options(config: R) -> R:
    """Build the options of all sections as instances of their owners' dataclasses.

    Raises ConfigError for an unknown owner, and for an option that its owner does not take.
    """
    for section in OWNERS:
        config = replace_section_options(config, section, _build_options(config, section))
    return config


def _build_options(config: RunConfig, section: str) -> Any:
    owners, given = list_option_owners(config, section), read_section_options(config, section)
    classes = [find_options_class(*owner) for owner in owners.items()]
    try:
        cls = join_options_classes(*classes)
    except (TypeError, ValueError) as error:  # as of a dataclass that is not frozen
        raise ConfigError(f"{section}.{error}") from None
    if len(owners) > 1 and type(given) is not cls:
        given = _leave_former(config, section, cls, given)
    named = " and ".join(owners.values())
    return build_options(cls, given, section, named, lambda name: [o for _, o in find_owners_of_option(section, name)])


def _leave_former(config: RunConfig, section: str, cls: type, given: Any) -> Any:
    """Leave out options without an owner here, if they have the default of an owner elsewhere.

    Runs wrote them down before options had owners, and options of other owners contain them.

    Raises NoEffect for another value, and ConfigError for an unknown option.
    """
    given = vars(given) if dataclasses.is_dataclass(given) else given
    if not isinstance(given, Mapping):
        return given
    known, kept = {field.name for field in dataclasses.fields(cls)}, {}
    for name, value in given.items():
        if name in known or not isinstance(name, str):
            kept[name] = value
            continue
        if not (owners := find_owners_of_option(section, name)):
            raise ConfigError(describe_misplaced_field(type(getattr(config, section)), f"{section}.", name, value))
        taking = [find_options_class(*owner) for owner in owners]
        neutral = [
            *(read_option_default(cls, name) for cls in taking),
            *(FORMER[section][n] for n in [name] if n in FORMER[section]),
        ]
        value = parse_option_value(value, declared_types(taking[0])[name])
        if show_value(value) not in map(show_value, neutral):
            others = " or ".join(owner for _, owner in owners)
            why = f"{show_value(value)} has no effect, as {owners[0][0]} is not {others}; leave it out"
            raise NoEffect(f"{section}.{spell_option(name)}: {why}")
    return kept


def read_section_options(config: RunConfig, section: str) -> Any:
    """Return the options of a section, built or not."""
    return config.hyper if section == "hyper" else getattr(config, section).options


def replace_section_options(config: R, section: str, value: Any) -> R:
    """Replace the options of a section."""
    if section == "hyper":
        return dataclasses.replace(config, hyper=value)
    part = dataclasses.replace(getattr(config, section), options=value)
    return dataclasses.replace(config, **{section: part})


def replace_option_owners(config: R, chosen: Mapping[str, str]) -> R:
    """Replace owners of options; the options of the former owners go with them.

    Args:
        config: the configuration.
        chosen: fields of `NAMING` with their new names.
    """
    for section in OWNERS:
        owners = list_option_owners(config, section)
        changed = {f: chosen[f] for f in owners if f in chosen and chosen[f] != owners[f]}
        if not changed:
            continue
        stay = [find_options_class(f, name) for f, name in owners.items() if f not in changed]
        given = read_section_options(config, section)
        table = vars(given) if dataclasses.is_dataclass(given) else given or {}
        own = {f.name: table[f.name] for cls in stay for f in dataclasses.fields(cls) if f.name in table}
        config = replace_section_options(config, section, own or None)
        for field, name in changed.items():
            part = {field.rpartition(".")[2]: name}
            whole = {section: dataclasses.replace(getattr(config, section), **part)} if section != "hyper" else part
            config = dataclasses.replace(config, **whole)
    return config
