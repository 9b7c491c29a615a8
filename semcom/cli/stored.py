"""A stored config.json as the base of a command line: the flags override it, and what they leave idle falls away."""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import semcom
from semcom.cli.fields import ALIASES
from semcom.config import ConfigError, NoEffect, Resolved, RunConfig, from_dict
from semcom.config.checks import check_types
from semcom.config.options import usual
from semcom.files import CONFIG
from semcom.runs.section_options import options, replace_options

LARGEST = 64 << 20
"""Bytes of the largest config.json: that of a million clients with a rate each."""


MACHINE = ("device", "chunk", "processes", "store")
"""Fields that suit the machine on which a run was made."""


def read_config(path: str) -> RunConfig:
    """Read a stored configuration: a config.json, that of a run's folder, or ARCHIVE.zip/RUN. Raises ConfigError."""
    archive = os.path.dirname(path.rstrip("/"))
    if archive.endswith(".zip") and os.path.isfile(archive):
        return _read_archived(archive, os.path.basename(path.rstrip("/")))
    path = os.path.join(path, CONFIG) if os.path.isdir(path) else path
    try:
        if os.path.exists(path) and not os.path.isfile(path):  # a pipe, for which it would wait, or a device
            raise ConfigError(f"config: {path!r} is no file")
        if os.path.getsize(path) > LARGEST:
            raise ConfigError(f"config: {path!r} has more than {LARGEST >> 20} MiB, and is no configuration")
        values = json.loads(Path(path).read_text(encoding="utf-8"), object_pairs_hook=_table)
    except OSError as error:
        raise ConfigError(f"config: {path!r} cannot be read: {error.strerror}") from None
    except ConfigError:
        raise
    except (ValueError, RecursionError) as error:  # of a path with NUL, of bytes that are no text, or of JSON
        raise ConfigError(f"config: {path!r} is no JSON file: {error}") from None
    return _checked(values)


def _read_archived(archive: str, run: str) -> RunConfig:
    """Read the configuration of a run in an archive, which is often of another machine.

    Its device, and how many clients this takes at once, are left open. A path that is not here is cut down to the name
    of its file, which is then looked for in the current folder.
    """
    from semcom.studies.results.archive import unpacked

    with unpacked(Path(archive)) as folder:
        file = Path(folder) / run / CONFIG
        if not file.is_file():
            raise ConfigError(f"config: {archive} has no run {run}; semcom show {archive} lists some")
        values = json.loads(file.read_text(encoding="utf-8"))
    return _checked({name: _local(value) for name, value in values.items() if name not in MACHINE})


def _local(value: Any) -> Any:
    """Cut paths that are not here down to the names of their files, in a value or inside it."""
    if isinstance(value, dict):
        return {name: _local(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [_local(inner) for inner in value]
    elsewhere = isinstance(value, str) and os.path.isabs(value) and not os.path.exists(value)
    return os.path.basename(value) if elsewhere else value


def _checked(values: Any) -> RunConfig:
    config = from_dict(values)
    check_types(config)
    return config


def _table(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return the table that a JSON file writes as `pairs`. Raises ConfigError for a name that is there twice."""
    table = dict(pairs)
    if len(table) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ConfigError(f"config: {twice!r} is given twice")
    return table


def resolve_over(config: RunConfig, path: str | None, words: Sequence[str]) -> tuple[Resolved, list[str]]:
    """Resolve what flags have made of a stored configuration, without what they leave without effect.

    Args:
        config: the flags over the stored values.
        path: of the stored configuration (None: there is none, and nothing falls away).
        words: the flags.

    Returns:
        the resolved configuration, and the fields that have fallen away.

    Raises:
        ConfigError: anything else is wrong, or a field without effect is among those that are given, or was without
            effect in the file.
    """
    given, fallen = fields_of(words), list[str]()
    while True:
        try:
            return semcom.resolve(config), fallen
        except NoEffect as error:
            field = next((name for name in error.fields if name not in {*given, *fallen}), None)
            if field is None or path is None:
                raise
            _refuse_idle(read_config(path))
            config = _without(config, field)
            fallen.append(field)


def _refuse_idle(stored: RunConfig) -> None:
    """Raise NoEffect where a stored configuration has such a field by itself; what else is wrong, flags may change."""
    try:
        semcom.resolve(dataclasses.replace(stored, contents={}))
    except NoEffect:
        raise
    except ConfigError:
        pass


def fields_of(words: Sequence[str]) -> set[str]:
    """Return the fields that the flags among some words set."""
    flags = [word.partition("=")[0].removeprefix("--").replace("-", "_") for word in words if word.startswith("--")]
    sections: dict[Any, str] = {f.default_factory: f.name for f in dataclasses.fields(RunConfig)}
    shorter = {flag: f"{sections[cls]}.{name}" for cls, names in ALIASES.items() for name, flag in names.items()}
    flags = [shorter.get(f"--{flag}", flag) for flag in flags]
    return {*flags, *(flag.replace(".no_", ".") for flag in flags)}  # --train.no-through-link sets train.through_link


def _without(config: RunConfig, field: str) -> RunConfig:
    """Return a configuration with the default in a field."""
    section, _, name = field.rpartition(".")
    if not section:
        return dataclasses.replace(config, **{name: usual(config, name)})
    part = None if section == "hyper" else getattr(config, section)
    if part is not None and hasattr(part, name):
        part = dataclasses.replace(part, **{name: usual(part, name)})
        return dataclasses.replace(config, **{section: part})
    own = options(config, section)
    return replace_options(config, section, dataclasses.replace(own, **{name: usual(own, name)}))
