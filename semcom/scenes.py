"""Scenes that are made for runs: `network.scene` names one, see `semcom.channels.scene`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from semcom.channels.raytrace import Trace, trace_scene
from semcom.channels.scene import Scene, write_scene
from semcom.config import ConfigError
from semcom.files import resolve_file


def scene(name: str = "munich", *, out: Path | str | None = None, **options: Any) -> Scene:
    """Trace the paths between a base station and clients in the streets of a city, and write them as a file.

    It needs the extra `rt` (Sionna RT). `network.scene` takes the file, and the names of scenes that ship.

    Args:
        name: a scene of Sionna RT (munich, etoile, florence, simple_street_canyon), or the path of one
            in Mitsuba's format.
        out: the .npz that is written (None: none is).
        options: fields of `semcom.channels.raytrace.Trace`, such as `clients=20, seed=0, walk=1.4, times=5`.

    Returns:
        the scene; `semcom.channels.scene.read_scene` reads one.

    Raises:
        ConfigError: an option is wrong, the ray tracer is not there, or too few places are heard.

    Example:
        >>> import semcom
        >>> semcom.scene("munich", clients=0)
        Traceback (most recent call last):
            ...
        semcom.config.errors.ConfigError: clients: 0 is not a whole number of at least 1
    """
    try:
        path = None if out is None else _check_file(resolve_file(out))
        found = trace_scene(Trace(scene=name, **options))
    except (TypeError, ValueError) as error:  # the former of an option that is none
        raise ConfigError(str(error)) from None
    if path is not None:
        write_scene(found, path)
    return found


def _check_file(path: Path) -> Path:
    if path.suffix != ".npz":
        raise ValueError(f"out: {str(path)!r} does not end in .npz; give the path of the file that is to be written")
    if not path.parent.is_dir():
        raise ValueError(f"out: there is no folder {str(path.parent)!r}")
    return path
