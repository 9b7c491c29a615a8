"""`semcom scene`: clients in the streets of a city, ray-traced, as a file; and the map of such a file."""

from __future__ import annotations

from dataclasses import dataclass, fields

import semcom
from semcom.channels.raytrace import BASES, Trace
from semcom.channels.scene import Scene, list_scenes, read_scene
from semcom.cli import flags
from semcom.config import ConfigError
from semcom.config.options import spell_option
from semcom.files import resolve_file
from semcom.screen import say


@dataclass(frozen=True)
class SceneFlags(Trace):
    """Place clients in the streets of a city, trace the paths to a base station, and write them as a file.

    `semcom train METHOD --network.kind scene --network.scene OUT` lives there. NAME is a scene of Sionna RT, or the
    path of one in Mitsuba's format; with --plot alone a file that was written, or a scene that ships.
    """

    out: str | None = None
    """File that is written, an .npz."""
    plot: str | None = None
    """Picture of the map that is drawn, such as map.png."""


def carry_out_scene(words: list[str]) -> None:
    """Carry out `semcom scene [NAME]`. Raises ConfigError for a request that is wrong, or cannot be met here."""
    early = flags.read_early_flags(words)
    wanted = flags.parse_flags(SceneFlags(), f"semcom scene {early.name or 'NAME'}", early.rest)
    name = early.name
    if name is None:
        raise ConfigError(f"scene: none is given; known are {', '.join([*BASES, *list_scenes()])}, or give a path")
    if wanted.out is None and wanted.plot is None:
        raise ConfigError("out: no file is named; give the .npz that is to be written, or --plot PICTURE")
    traced = wanted.out is not None
    own = {f.name: getattr(wanted, f.name) for f in fields(Trace) if f.name != "scene"}
    idle = [name for name, value in own.items() if value != getattr(Trace, name)]
    if idle and not traced:
        raise ConfigError(f"{spell_option(idle[0])}: it is for a scene that is traced; give --out, or leave it out")
    try:
        found = semcom.scene(name, **own, out=wanted.out) if traced else read_scene(name)
    except ValueError as error:
        raise ConfigError(str(error)) from None
    say(describe_scene(found))
    if wanted.out is not None:
        say(f"scene: {wanted.out}")
    if wanted.plot is not None:
        from semcom.plots.map import draw_scene

        say(f"figure: {draw_scene(found, resolve_file(wanted.plot))}")


def describe_scene(scene: Scene) -> str:
    """Describe a scene in a line."""
    gains, walks = scene.gains_db(), len(scene.times_s) > 1
    times = f"{len(scene.times_s)} times in {scene.times_s[-1]:g} s" if walks else "one time"
    return (
        f"{scene.made.get('scene', 'a scene')}: {scene.clients} clients at {times}, {scene.sight.mean():.0%} in sight, "
        f"path gains from {gains.min():.0f} to {gains.max():.0f} dB at {scene.carrier_hz / 1e9:g} GHz, "
        f"{scene.a.shape[2]} antenna{'s' if scene.a.shape[2] > 1 else ''}"
    )
