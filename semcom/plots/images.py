"""Images that come back, or that attackers rebuild: a panel for each method, originals beside what became of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from semcom.config import ConfigError
from semcom.data.dataset import find_picture
from semcom.plots.base import Kind, Plot, Styles
from semcom.plots.points import check_panels, read_kept_arrays, split_panels
from semcom.runs.folder.arrays import BASE, IMAGES, LEAK, PREFIX
from semcom.studies.analysis.study import Study
from semcom.studies.grid import TEST
from semcom.studies.results.run import Stored

ROWS = 4
"""Images of a panel, from as many clients as possible."""
PICTURES = "pictures"
"""Where the pixels are beside the numbers: (panel, image, column or `ORIGINAL`, as a text) -> uint8 `[c, h, w]`."""
ORIGINAL = "original"
LISTENER = "listener"


def compute_images(study: Study, plot: Plot) -> pd.DataFrame:
    """Compute the PSNR of each drawn image, and attach its pixels to the numbers in `attrs`.

    Returns:
        Columns: the panels' field, image, client, class, test_snr_db, psnr (dB).

    Raises:
        ConfigError: no run kept images, a panel has several runs, or no such view.
    """

    def read(run: Stored) -> tuple[pd.DataFrame, dict[object, np.ndarray]]:
        kept, view = read_kept_arrays(run, plot.view, "images", IMAGES)
        shown = _choose_images(kept["originals/client"])
        snrs = kept["originals/snr_db"]
        pictures: dict[object, np.ndarray] = {ORIGINAL: kept["originals/images"][shown]}
        pictures |= {float(snrs[i]): kept[f"images/{view}"][i, shown] for i in np.argsort(snrs, kind="stable")}
        inside = [_frame_picture(kept["originals/images"], kept.get("originals/sides"), at) for at in shown]
        whose = {"client": kept["originals/client"][shown], "class": kept["originals/label"][shown]}
        return _measure(pictures, TEST, whose, inside), pictures

    return _collect(study, plot, read)


def compute_leak(study: Study, plot: Plot) -> pd.DataFrame:
    """Compute the PSNR of each image that attackers have rebuilt, as `compute_images` does.

    Returns:
        Columns: the panels' field, image, client, listener, psnr (dB).

    Raises:
        ConfigError: no run has such images, or a panel has several runs.
    """

    def read(run: Stored) -> tuple[pd.DataFrame, dict[object, np.ndarray]]:
        kept, start, end = run.arrays(), PREFIX[LEAK], "/rebuilt"
        settings = [n.removeprefix(start).removesuffix(end) for n in kept if n.startswith(start) and n.endswith(end)]
        if not settings:
            raise ConfigError(f"results: {run.folder.name} has no rebuilt images; call semcom attack for it first")
        first = f"{start}{BASE if BASE in settings else settings[0]}/"
        pictures: dict[object, np.ndarray] = {ORIGINAL: kept[f"{first}originals"]}
        for setting in settings:  # attacks on other images have no place beside these
            if np.array_equal(kept[f"{start}{setting}/originals"], pictures[ORIGINAL]):
                pictures[setting] = kept[f"{start}{setting}{end}"]
        inside = [
            _frame_picture(pictures[ORIGINAL], kept.get(f"{first}sides"), i) for i in range(len(pictures[ORIGINAL]))
        ]
        return _measure(pictures, LISTENER, {"client": kept[f"{first}client"]}, inside), pictures

    return _collect(study, plot, read)


def _collect(
    study: Study, plot: Plot, read: Callable[[Stored], tuple[pd.DataFrame, dict[object, np.ndarray]]]
) -> pd.DataFrame:
    """Read the numbers and the pictures of one run for each panel."""
    runs = study.runs[study.runs["status"] == "done"]
    check_panels(runs, plot)
    found = {run.hash: run for run in study.stored}
    parts: list[pd.DataFrame] = []
    pictures: dict[tuple[object, int, str], np.ndarray] = {}
    for value, part in split_panels(runs, plot):
        rows, shown = read(found[part["hash"].iloc[0]])  # of several seeds the first one
        rows.insert(0, str(plot.facet), [value] * len(rows))
        parts.append(rows)
        pictures |= {
            (value, i, str(column)): image for column, images in shown.items() for i, image in enumerate(images)
        }
    cells = pd.concat(parts, ignore_index=True)
    cells.attrs[PICTURES] = pictures
    return cells


def _measure(
    pictures: Mapping[object, np.ndarray],
    column: str,
    whose: Mapping[str, np.ndarray],
    inside: Sequence[tuple[slice, ...]],
) -> pd.DataFrame:
    """Compute the PSNR of each picture, in its part of the image; rows by image, then by column."""
    rows = []
    for i, of in enumerate(inside):
        for name in [each for each in pictures if each != ORIGINAL]:
            error = (pictures[name][i].astype(float) - pictures[ORIGINAL][i])[of] / 255
            psnr = -10 * np.log10(max(float((error**2).mean()), 1e-10))
            rows.append({"image": i, **{n: int(v[i]) for n, v in whose.items()}, column: name, "psnr": psnr})
    return pd.DataFrame(rows)


def _frame_picture(images: np.ndarray, sides: np.ndarray | None, at: int) -> tuple[Any, ...]:
    """Find the place of a picture in a kept image, which is square."""
    return find_picture(images.shape[-1], *(images.shape[-2:] if sides is None else sides[at]))


def _choose_images(clients: np.ndarray) -> list[int]:
    """Choose a few images: the first of each client, then the second of each."""
    turn = pd.Series(clients).groupby(clients).cumcount().to_numpy()
    return [int(i) for i in np.lexsort((clients, turn))[:ROWS]]


def draw_images(axes: Axes, cells: pd.DataFrame, plot: Plot, styles: Styles) -> None:
    """Draw a row for each image: the original, and what was made of it in each column."""
    column = TEST if TEST in cells else LISTENER
    pictures, panel = cells.attrs[PICTURES], cells[str(plot.facet)].iloc[0]
    columns, count = cells[column].drop_duplicates().tolist(), cells["image"].nunique()
    for row in range(count):
        for place, what in enumerate([ORIGINAL, *columns]):
            pixels = np.moveaxis(pictures[panel, row, str(what)], 0, -1)
            extent = (place, place + 0.94, count - row - 0.94, count - row)
            grey = pixels.shape[-1] < 3  # of two or four channels those are drawn that make a picture
            shown = pixels[..., 0] if grey else pixels[..., :3]
            axes.imshow(shown, extent=extent, cmap="gray" if grey else None, vmin=0, vmax=255)
    names = [ORIGINAL, *(_name_snr(each) if column == TEST else _name_listener(each) for each in columns)]
    axes.set(xlim=(0, len(names)), ylim=(0, count), aspect="equal")
    axes.set_xticks([i + 0.47 for i in range(len(names))], names)
    axes.set_yticks([])
    axes.grid(visible=False)


def _name_snr(snr_db: float) -> str:
    return "as trained" if np.isnan(snr_db) else f"{snr_db:g} dB"


def _name_place(snr_db: float) -> str:
    return _name_snr(snr_db) if np.isnan(snr_db) else f"at {_name_snr(snr_db)}"


def _name_listener(setting: str) -> str:
    """Name the setting of an attack: that of an eavesdropper by his SNR alone."""
    return setting.removeprefix("eavesdropper-").replace("dB", " dB", 1)


def describe_images(cells: pd.DataFrame, plot: Plot) -> str:
    """Describe the images, with their mean PSNR."""
    column = TEST if TEST in cells else LISTENER
    means = cells.groupby([str(plot.facet), column], sort=False, dropna=False)["psnr"].mean()
    of_each = "; ".join(
        f"{plot.labels.place(str(plot.facet), panel)} "
        f"{_name_place(place) if column == TEST else _name_listener(place)}: {mean:.1f} dB"
        for (panel, place), mean in means.items()
    )
    what = "as they come back" if column == TEST else "as attackers rebuild them"
    return f"Test images {what}, of one run each, bytes. Mean PSNR of those that are shown: {of_each}."


IMAGES_KIND = Kind(
    title="images as they come back, a panel for each method (reconstruction, runs with --keep images)",
    tabled=False,
    numbers=compute_images,
    draw=draw_images,
    caption=describe_images,
    takes=("view",),
    facet="variant",
    height=lambda cells, plot: 0.45 * cells["image"].nunique() + 0.3,
    width=lambda cells, plot: (0.5 * len({column for _, _, column in cells.attrs[PICTURES]}), 0.3),
    columns=2,
    shared=False,
    of_y=False,
    all_tests=True,
)
LEAK_KIND = replace(
    IMAGES_KIND,
    title="images as attackers rebuild them, a panel for each method (runs that semcom attack was tried on)",
    numbers=compute_leak,
    takes=(),
    all_tests=False,
)
