"""config.json of a run: written, and read from files of others too."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from semcom.config import ConfigError, RunConfig, from_dict, to_dict
from semcom.config.checks import check_config_types
from semcom.files import CONFIG, SWEEP, TRAINING, format_json, open_file, write_atomically
from semcom.packed import Packed

LARGEST = 64 << 20
"""Bytes of the largest config.json: that of a million clients with a rate each."""


def write_stored_config(folder: Path, config: RunConfig) -> Path:
    """Write config.json, and return its path. Raises OSError if it could not be written."""
    return write_atomically(folder / CONFIG, format_config(config))


def format_config(config: RunConfig) -> str:
    """Format the content of config.json."""
    return format_json(to_dict(config), indent=2) + "\n"


def read_stored_config(path: Path | str, asked: str, seen: dict[Any, Any] | None = None) -> RunConfig:
    """Read a stored configuration: a config.json, or that of a run's folder.

    Args:
        path: of the file or the folder.
        asked: purpose, the first word of the error about a file that cannot be read.
        seen: as of `from_dict`.

    Raises:
        ConfigError: there is none, or it is no configuration.
    """
    place = path if isinstance(path, Packed) else Path(path)
    place = place / CONFIG if place.is_dir() else place
    path = str(place) if isinstance(path, Packed) else os.path.join(path, CONFIG) if os.path.isdir(path) else str(path)
    try:
        with open_file(place) as file:
            content = file.read(LARGEST + 1)
        if len(content) > LARGEST:
            raise ConfigError(f"{asked}: {path!r} has more than {LARGEST >> 20} MiB, and is no configuration")
        values = json.loads(content.decode(), object_pairs_hook=_parse_json_table)
    except OSError as error:
        of_study = os.path.exists(os.path.join(os.path.dirname(path), SWEEP))
        hint = "; give the folder of one run of this study" if of_study else ""
        raise ConfigError(f"{asked}: {path!r} cannot be read: {error.strerror}{hint}") from None
    except ConfigError:
        raise
    except (ValueError, RecursionError) as error:  # of a path with NUL, of bytes that are no text, or of JSON
        raise ConfigError(f"{asked}: {path!r} is no JSON file: {error}") from None
    try:
        config = from_dict(values, seen)
        check_config_types(config, seen)
    except ConfigError as error:
        raise ConfigError(f"{error} (in {path!r})") from None
    return config


def _parse_json_table(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Build a table from the `pairs` of a JSON file. Raises ConfigError for a name that is there twice."""
    table = dict(pairs)
    if len(table) < len(pairs):
        names = [name for name, _ in pairs]
        raise ConfigError(f"config: {next(name for name in names if names.count(name) > 1)!r} is given twice")
    return table


def locate_training(folder: Path) -> Path:
    """Locate the training of a run: its own folder, or one inside."""
    apart = folder / TRAINING
    return apart if (apart / CONFIG).is_file() else folder
