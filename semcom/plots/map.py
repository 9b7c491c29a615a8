"""Maps of scenes: what stands there, and the clients on their ways, coloured by what they have learnt."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure

from semcom.channels.scene import Scene, list_scenes, read_scene
from semcom.config import ConfigError
from semcom.files import digest_of_file
from semcom.plots.base import Kind, Plot, Styles
from semcom.plots.points import average_table
from semcom.plots.radio import draw_places_key
from semcom.plots.style import ieee, percent
from semcom.runs.folder.stored import read_stored_config
from semcom.runs.request.trust import check_trusted_file
from semcom.studies.analysis.study import Study
from semcom.studies.names import metric_label
from semcom.studies.results.run import Stored

STREETS = "scene"
"""Column of the numbers that names the scene or its file. CSV files leave it out."""
AROUND_M = 30.0
"""Ground around the ways that is drawn."""
SIGHT = (("In sight", True, "o"), ("Out of sight", False, "^"))
"""Marks of clients, as the first time of a scene has them."""
STANDS_M = 2.0
"""Height from which on something on the ground is a building."""
WEAK_DB = -140.0
"""Path gain below which nothing is heard, and nothing drawn."""


def draw_ground(axes: Axes, scene: Scene) -> None:
    """Draw the buildings of a scene, the ways of its clients and the base station, which is at 0."""
    built = np.where(scene.heights_m > STANDS_M, 1.0, np.nan)
    axes.imshow(built, ListedColormap(["0.82"]), zorder=0.5, **_span(scene))
    for way in scene.places_m - scene.base_m:
        axes.plot(way[:, 0], way[:, 1], color="0.4", linewidth=0.6, zorder=1)
    axes.scatter([0], [0], s=60, marker="*", color="black", zorder=4, label="Base station")
    axes.set(xlabel="x (m)", ylabel="y (m)", aspect="equal")
    axes.grid(visible=False)


def _span(scene: Scene) -> dict[str, Any]:
    """Make the arguments that put a picture of the map of a scene where it belongs."""
    left, low = scene.corner_m - scene.base_m[:2] - scene.cell_m / 2
    rows, columns = scene.heights_m.shape
    extent = (left, left + columns * scene.cell_m, low, low + rows * scene.cell_m)
    return {"origin": "lower", "extent": extent, "interpolation": "nearest"}


def _mark_clients(axes: Axes, scene: Scene, colours: pd.Series, **look: Any) -> None:
    """Mark clients at the first time of a scene, by their colours."""
    places, seen = scene.places_m[:, 0] - scene.base_m, scene.sight[:, 0]
    for label, sight, marker in SIGHT:
        of = colours[seen[colours.index] == sight]
        x, y = places[of.index, :2].T
        axes.scatter(x, y, c=of.tolist(), marker=marker, edgecolors="black", zorder=3, label=label, **look)


def draw_scene(scene: Scene, path: Path) -> Path:
    """Draw the radio map of a scene with its clients, and write it as a picture."""
    with ieee():
        figure = Figure(figsize=(4.6, 3.9), layout="constrained")
        axes = figure.subplots()
        draw_ground(axes, scene)
        heard = axes.imshow(np.where(scene.map_db < WEAK_DB, np.nan, scene.map_db), zorder=0, **_span(scene))
        _mark_clients(axes, scene, pd.Series(["white"] * scene.clients), s=16, linewidths=0.6)
        figure.colorbar(heard, ax=axes, label="Path gain (dB)", pad=0.02)
        figure.legend(loc="outside upper center", ncols=3, frameon=False, columnspacing=1.0)
        figure.savefig(path, dpi=200)
    return path


def compute_map(study: Study, plot: Plot) -> pd.DataFrame:
    """Compute the number of each client, averaged over seeds, in which it has the same place.

    Raises:
        ConfigError: the runs have no scene, or several; as `Study.mean`.
    """
    return average_table(study, study.clients, plot).assign(**{STREETS: locate_streets(study)})


def locate_streets(study: Study) -> Path | str:
    """Find the scene of the runs: the name of one that ships, or its file, which must be what it was for them.

    Raises:
        ConfigError: the runs have no scene, or several; the file is not given or trusted, or has changed.
    """
    scenes = {_locate_scene_of_run(run) for run in study.stored if run.field("network.kind") == "scene"}
    if len(scenes) != 1:
        told = f"the runs have {len(scenes)}" if scenes else "no run has one"
        raise ConfigError(f"kind: a map is that of one scene; {told} (network.kind scene)")
    return scenes.pop()


def _locate_scene_of_run(run: Stored) -> Path | str:
    """Find the scene of a run as `locate_streets` does."""
    name = str(run.field("network.scene"))
    if name in list_scenes():
        return name
    stored = read_stored_config(run.trained, "plot")
    path = str(stored.network.options["scene"])
    check_trusted_file("network.scene", path)
    if stored.contents.get(path) != digest_of_file(Path(path)):
        raise ConfigError(f"network.scene: {path!r} is not what it was for the run")
    return Path(path)  # no text, of which figures show the file's name alone


def draw_map(axes: Axes, cells: pd.DataFrame, plot: Plot, styles: Styles) -> None:
    """Draw the clients in their streets, coloured by their number."""
    try:
        scene = read_scene(str(cells[STREETS].iloc[0]))
    except ValueError as error:
        raise ConfigError(str(error)) from None
    draw_ground(axes, scene)
    ways = np.concatenate([(scene.places_m - scene.base_m).reshape(-1, 3), np.zeros((1, 3))])[:, :2]
    middle, half = (ways.min(0) + ways.max(0)) / 2, np.ptp(ways, axis=0).max() / 2 + AROUND_M
    axes.set(xlim=(middle[0] - half, middle[0] + half), ylim=(middle[1] - half, middle[1] + half))
    _mark_clients(axes, scene, cells.set_index("client")["mean"], s=16, linewidths=0.4)


def draw_map_key(figure: Figure, cells: pd.DataFrame, plot: Plot) -> None:
    """Explain the colours and the marks of all maps, on which the base station is drawn first."""
    percent(draw_places_key(figure, cells["mean"], metric_label(plot.metric), first=1).ax.yaxis, plot.metric)


def describe_map(cells: pd.DataFrame, plot: Plot) -> str:
    """Describe the marks."""
    low, high = int(cells["n"].min()), int(cells["n"].max())
    seeds = "of one seed" if high == 1 else f"mean over {low if low == high else f'{low} to {high}'} seeds"
    return f"Clients at the beginning of their ways, coloured by their {plot.metric.label}, {seeds}."


MAP = Kind(
    title="clients in the streets of a scene, coloured by accuracy, snr_db, arrived or airtime_s (network.kind scene)",
    numbers=compute_map,
    draw=draw_map,
    caption=describe_map,
    takes=("y",),
    x="client",
    facet="variant",
    height=lambda cells, plot: 2.8,
    tabled=False,
    finish=draw_map_key,
)
