"""The owners of a section's options, and a configuration with its options built.

The method of a run owns `hyper` (flags `--hyper.NAME`); its dataset, partition and link own the `options` of theirs.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from functools import partial
from typing import Any, TypeVar

from channels import LINKS
from channels.options import BaseOptions
from channels.registry import Registry
from semcom.config import RunConfig
from semcom.config.options import build_options
from semcom.data.registry import DATASETS, PARTITIONS
from semcom.methods.registry import METHODS
from semcom.registry import find

R = TypeVar("R", bound=RunConfig)

REGISTRIES: Mapping[str, Registry[Any]] = {
    "hyper": METHODS,
    "data": DATASETS,
    "partition": PARTITIONS,
    "channel": LINKS,
}
"""Section, as its flags begin -> the registry of those that own its options."""
KINDS: Mapping[str, str] = {"data": "name", "partition": "kind", "channel": "kind"}
"""Section -> its field that names the owner."""


def name_owner_field(section: str) -> str:
    """Return the field that names the owner of a section's options, as a flag spells it."""
    return f"{section}.{KINDS[section]}" if section in KINDS else "method"


def find_owner_of_options(config: RunConfig, section: str) -> str:
    """Return the name of what owns the options of a section."""
    return config.method if section == "hyper" else getattr(getattr(config, section), KINDS[section])


def find_options_class(section: str, name: str) -> type:
    """Return the dataclass of the options that `name` takes. Raises ConfigError for a name that is not known.

    A dataset that is not registered is a file or a folder, which takes none.
    """
    if section == "data" and name not in DATASETS:
        return BaseOptions
    entry = find(REGISTRIES[section], name, name_owner_field(section))
    return getattr(entry, "Hyper" if section == "hyper" else "Options", BaseOptions)


def find_owners_of_option(section: str, option: str) -> list[str]:
    """Return the names of those in a section that take an option."""
    classes = {name: find_options_class(section, name) for name in REGISTRIES[section].names()}
    return [name for name, cls in classes.items() if option in (f.name for f in dataclasses.fields(cls))]


def build_section_options(config: R) -> R:
    """Return a configuration whose options are instances of their owners' dataclasses.

    Raises ConfigError for an owner that is not known, and for an option that its owner does not take.
    """
    for section in REGISTRIES:
        config = replace_section_options(config, section, _build_options(config, section))
    return config


def _build_options(config: RunConfig, section: str) -> Any:
    name = find_owner_of_options(config, section)
    cls, given = find_options_class(section, name), read_section_options(config, section)
    return build_options(cls, given, section, name, partial(find_owners_of_option, section))


def read_section_options(config: RunConfig, section: str) -> Any:
    """Return the options of a section as they stand."""
    return config.hyper if section == "hyper" else getattr(config, section).options


def replace_section_options(config: R, section: str, value: Any) -> R:
    """Return a configuration with other options in a section."""
    if section == "hyper":
        return dataclasses.replace(config, hyper=value)
    part = dataclasses.replace(getattr(config, section), options=value)
    return dataclasses.replace(config, **{section: part})
