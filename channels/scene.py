"""A scene: clients at places in real streets, with the paths on which a base station hears them.

`semcom.channels.raytrace.trace_scene` makes a scene, or another program writes its file. Amplitudes are those of the
ray tracer: the sum over paths of |a|^2 is the path gain, the received over the transmitted power. `read_scene` takes
the name of a scene that ships, or a file.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import lru_cache
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np

SHIPPED = resources.files(__package__) / "scenes"
LEAST_DB = -300.0
"""Gain of no path at all."""


@dataclass(frozen=True, eq=False)
class Scene:
    """Clients in a scene, at times that are seconds of a run. K clients, T times, N antennas, P paths.

    Attributes:
        a: amplitudes at the base station's antennas, complex `[K, T, N, P]`; 0 where there is no path.
        tau: delays, s `[K, T, P]`.
        doppler_hz: shifts of the paths, `[K, T, P]`.
        times_s: from 0 on, ascending, `[T]`.
        places_m: of the clients, `[K, T, 3]`.
        base_m: place of the base station, `[3]`.
        sight: whether there is a line of sight, bool `[K, T]`.
        carrier_hz: carrier frequency.
        map_db: path gain on the ground, `[y, x]`, nan where nothing arrives.
        heights_m: of what stands on the ground, `[y, x]`.
        corner_m: middle of the map's first cell, the lowest on the left, `[2]`.
        cell_m: side of a cell.
        made: what made it, by name: scene, versions, seed, options.
    """

    a: np.ndarray
    tau: np.ndarray
    doppler_hz: np.ndarray
    times_s: np.ndarray
    places_m: np.ndarray
    base_m: np.ndarray
    sight: np.ndarray
    carrier_hz: float
    map_db: np.ndarray
    heights_m: np.ndarray
    corner_m: np.ndarray
    cell_m: float
    made: Mapping[str, Any]

    @property
    def clients(self) -> int:
        """Number of clients, K."""
        return len(self.a)

    def gains_db(self) -> np.ndarray:
        """Compute the path gains, dB `[K, T]`: the mean over antennas of the power of all paths."""
        power = (np.abs(self.a.astype(np.complex128)) ** 2).sum(3).mean(2)
        return 10 * np.log10(np.maximum(power, 10 ** (LEAST_DB / 10)))

    def find_time(self, seconds: float) -> int:
        """Find the index of the last time that is not after `seconds`; who has walked to the end walks back, and so on.

        The Doppler shifts of a time are those of walking on, also on the way back.

        Example:
            >>> from semcom.channels.scene import read_scene
            >>> scene = read_scene("munich-20")
            >>> [scene.find_time(seconds) for seconds in (0.0, 14.0, 15.0, 121.0)]
            [0, 0, 1, 7]
        """
        last = float(self.times_s[-1])
        if last:
            seconds = last - abs(last - seconds % (2 * last))
        return int(np.searchsorted(self.times_s, seconds + 1e-9, side="right")) - 1


def list_scenes() -> list[str]:
    """List the names of the scenes that ship."""
    return sorted(entry.name.removesuffix(".npz") for entry in SHIPPED.iterdir() if entry.name.endswith(".npz"))


def locate_scene(name: str) -> str:
    """Find the file of a scene: one that ships, by its name, or the path itself."""
    return str(SHIPPED / f"{name}.npz") if name in list_scenes() else name


def read_scene(name: Path | str | None) -> Scene:
    """Read a scene that ships, by its name, or a file.

    Raises:
        ValueError: none is named, there is no such scene, or the file holds none.

    Example:
        >>> from semcom.channels.scene import read_scene
        >>> scene = read_scene("munich-20")
        >>> scene.clients, scene.gains_db().shape[0]
        (20, 20)
    """
    if name is None:
        raise ValueError(f"scene: none is given; those that ship are {', '.join(list_scenes())}")
    path = Path(locate_scene(str(name))).expanduser()
    if not path.exists():
        raise ValueError(f"scene: {str(name)!r} is no file, and none of those that ship: {', '.join(list_scenes())}")
    stat = path.stat()
    return _read_file(str(path), (stat.st_mtime_ns, stat.st_size))


@lru_cache(maxsize=4)
def _read_file(path: str, version: tuple[int, int]) -> Scene:
    names = [f.name for f in fields(Scene)]
    try:
        with np.load(path, allow_pickle=False) as file:
            if missing := [name for name in names if name not in file.files]:
                raise ValueError(f"it has no {missing[0]}")
            found: dict[str, Any] = {name: file[name] for name in names}
        made = json.loads(str(found.pop("made")))
        found |= {name: float(found[name]) for name in ("carrier_hz", "cell_m")}
    except Exception as error:  # of a damaged file NumPy and zipfile raise a dozen kinds, some without a word
        why = " ".join(str(error).split()) or type(error).__name__
        raise ValueError(f"scene: {path!r} is no scene ({why})") from None
    scene = Scene(**found, made=made)
    if wrong := _find_fault(scene):
        raise ValueError(f"scene: {path!r} is no scene ({wrong})")
    return scene


def _find_fault(scene: Scene) -> str | None:
    """Find what is wrong with the arrays of a scene; None if nothing is."""
    if scene.a.ndim != 4 or not scene.a.size:
        return f"a has the shape {list(scene.a.shape)}, not [client, time, antenna, path]"
    k, t, _, p = scene.a.shape
    shapes = {"tau": (k, t, p), "doppler_hz": (k, t, p), "times_s": (t,), "places_m": (k, t, 3), "base_m": (3,)}
    shapes |= {"sight": (k, t), "corner_m": (2,), "heights_m": scene.map_db.shape}
    for name, shape in shapes.items():
        array = getattr(scene, name)
        if array.shape != shape:
            return f"{name} has the shape {list(array.shape)}, not {list(shape)}"
        if array.dtype.kind not in "bfiu" or not np.isfinite(array).all():
            return f"{name} is not all finite numbers"
    if scene.a.dtype.kind not in "fc" or not np.isfinite(scene.a).all():
        return "a is not all finite numbers"
    if scene.map_db.ndim != 2 or scene.map_db.dtype.kind != "f":
        return "map_db is no map [y, x]"
    if scene.times_s[0] != 0 or (np.diff(scene.times_s) <= 0).any():
        return "times_s do not ascend from 0"
    if not (0 < scene.carrier_hz < np.inf and 0 < scene.cell_m < np.inf):
        return "carrier_hz and cell_m are not above 0"
    silent = np.argwhere((np.abs(scene.a) ** 2).sum((2, 3)) == 0)
    return f"client {silent[0][0]} has no path with any power at time {silent[0][1]}" if len(silent) else None


def write_scene(scene: Scene, path: Path | str) -> None:
    """Write a scene as a compressed .npz, amplitudes and maps in single precision.

    Args:
        scene: to be written.
        path: of the file; its folder must be there.
    """
    arrays: dict[str, Any] = {f.name: np.asarray(getattr(scene, f.name)) for f in fields(Scene) if f.name != "made"}
    arrays["a"] = arrays["a"].astype(np.complex64)
    arrays |= {name: arrays[name].astype(np.float32) for name in ("doppler_hz", "map_db", "heights_m", "places_m")}
    np.savez_compressed(path, **arrays, made=json.dumps(dict(scene.made)))
