"""Maps of scenes: what stands there, how loud the base station is on the ground, and the clients on their ways."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure

from semcom.channels.scene import Scene

WEAK_DB = -140.0
"""Path gain below which nothing is heard, and nothing drawn."""
STANDS_M = 2.0
"""Height from which on something on the ground is a building."""


def draw_ground(axes: Axes, scene: Scene) -> None:
    """Draw the buildings of a scene, the ways of its clients and the base station, which is at 0."""
    left, low = scene.corner_m - scene.base_m[:2] - scene.cell_m / 2
    rows, columns = scene.heights_m.shape
    extent = (left, left + columns * scene.cell_m, low, low + rows * scene.cell_m)
    built = np.where(scene.heights_m > STANDS_M, 1.0, np.nan)
    axes.imshow(built, ListedColormap(["0.82"]), origin="lower", extent=extent, interpolation="nearest", zorder=0.5)
    for way in scene.places_m - scene.base_m:
        axes.plot(way[:, 0], way[:, 1], color="0.4", linewidth=0.6, zorder=1)
    axes.scatter([0], [0], s=60, marker="*", color="black", zorder=4, label="Base station")
    axes.set(xlim=extent[:2], ylim=extent[2:], xlabel="x (m)", ylabel="y (m)", aspect="equal")
    axes.grid(visible=False)


def draw_scene(scene: Scene, path: Path) -> Path:
    """Draw the radio map of a scene with its clients, and write it as a picture."""
    from semcom.plots.style import ieee

    with ieee():
        figure = Figure(figsize=(4.6, 3.9), layout="constrained")
        axes = figure.subplots()
        draw_ground(axes, scene)
        left, right, low, high = axes.images[0].get_extent()
        shown: dict[str, Any] = {
            "origin": "lower",
            "extent": (left, right, low, high),
            "interpolation": "nearest",
            "zorder": 0,
        }
        heard = axes.imshow(np.where(scene.map_db < WEAK_DB, np.nan, scene.map_db), **shown)
        first = scene.places_m[:, 0] - scene.base_m
        for seen, marker, label in ((True, "o", "In sight"), (False, "^", "Out of sight")):
            x, y, _ = first[scene.sight[:, 0] == seen].T
            axes.scatter(
                x, y, s=16, c="white", marker=marker, edgecolors="black", linewidths=0.6, zorder=3, label=label
            )
        figure.colorbar(heard, ax=axes, label="Path gain (dB)", pad=0.02)
        figure.legend(loc="outside upper center", ncols=3, frameon=False, columnspacing=1.0)
        figure.savefig(path, dpi=200)
    return path
