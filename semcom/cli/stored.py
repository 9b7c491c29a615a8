"""A stored config.json as the base of a command line; fields without effect beside the flags are dropped."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING

from semcom.config import ConfigError, NoEffect, RunConfig, from_dict, to_dict
from semcom.config.options import read_option_default
from semcom.files import CHECKPOINT, CONFIG, ELSEWHERE, ERROR, METRICS, SUMMARY
from semcom.packed import Packed
from semcom.runs.folder.stored import read_stored_config
from semcom.runs.request.section_options import read_section_options, replace_section_options

if TYPE_CHECKING:
    from semcom.runs.request.setup import Setup

MACHINE = ("device", "chunk", "processes", "store")
"""Fields that suit the machine on which a run was made."""


def read_stored(path: str) -> RunConfig:
    """Read a stored configuration: a config.json, that of a run's folder, or ARCHIVE.zip/RUN. Raises ConfigError.

    In the folder of a run, `out` is that folder, which may have been moved or copied since the file was written.

    An archive is often of another machine. So its device, and how many clients this takes at once, are left open, and a
    path that is not here is cut down to the name of its file, which is then looked for in the current folder.
    """
    place = Path(path)
    if place.parent.suffix != ".zip" or not place.parent.is_file():
        config, file = read_stored_config(path, "config"), place / CONFIG if place.is_dir() else place
        begun = any(file.with_name(name).exists() for name in (METRICS, SUMMARY, CHECKPOINT, ERROR))
        return dataclasses.replace(config, out=str(file.parent)) if begun and file.name == CONFIG else config
    from semcom.studies.results.archive import read_archive

    run = Packed(read_archive(place.parent, place.name)) / place.name
    if not (run / CONFIG).is_file():
        raise ConfigError(f"config: {place.parent} has no run {place.name}; semcom show {place.parent} lists some")
    stored = to_dict(read_stored_config(run, "config"))
    return from_dict({name: _shorten_paths(value) for name, value in stored.items() if name not in MACHINE})


def _shorten_paths(value: object) -> object:
    """Cut paths that are not here down to the names of their files, in a value or inside it."""
    if isinstance(value, dict):
        return {name: _shorten_paths(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_shorten_paths(inner) for inner in value]
    if not isinstance(value, str):
        return value
    lost = value.startswith(ELSEWHERE) or (os.path.isabs(value) and not os.path.exists(value))
    return os.path.basename(value) if lost else value


def prepare_over_stored(config: RunConfig, given: Collection[str]) -> tuple[Setup, list[str]]:
    """Prepare the run of a stored configuration with flags, without fields that have no effect beside them.

    Args:
        config: the flags over the stored values.
        given: the fields that the flags set, see `flags.list_fields_in_flags`.

    Returns:
        the run, and the fields that fall away: they have their defaults.

    Raises:
        ConfigError: anything else is wrong, or a field without effect is among those that are given.
    """
    from semcom.runs.request.resolve import resolve_setup  # imports torch

    try:
        return resolve_setup(config), []
    except NoEffect as error:
        field = next((name for name in error.fields if name not in given), None)
        if field is None:
            raise
        setup, others = prepare_over_stored(_drop_field(config, field), {*given, field})
        return setup, [field, *others]


def _drop_field(config: RunConfig, field: str) -> RunConfig:
    """Reset a field of a configuration to its default."""
    section, _, name = field.rpartition(".")
    if not section:
        return dataclasses.replace(config, **{name: read_option_default(config, name)})
    part = None if section == "hyper" else getattr(config, section)
    if part is not None and hasattr(part, name):
        part = dataclasses.replace(part, **{name: read_option_default(part, name)})
        return dataclasses.replace(config, **{section: part})
    own = read_section_options(config, section)
    return replace_section_options(config, section, dataclasses.replace(own, **{name: read_option_default(own, name)}))
