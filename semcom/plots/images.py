"""Reconstructed images: a panel for each method, with the original and the received image at each test SNR."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from semcom.plots.base import Kind, Plot, Styles
from semcom.plots.points import check_panels, read_kept_arrays
from semcom.runs.folder.arrays import IMAGES
from semcom.studies.analysis.study import Study
from semcom.studies.grid import TEST

ROWS = 4
"""Images of a panel, from as many clients as possible."""
PICTURES = "pictures"
"""Where the pixels are beside the numbers: (panel, image, SNR or `ORIGINAL`) -> uint8 `[channels, height, width]`."""
ORIGINAL = "original"


def compute_images(study: Study, plot: Plot) -> pd.DataFrame:
    """Compute the PSNR of each drawn image, and attach its pixels to the numbers in `attrs`.

    Returns:
        Columns: the panels' field, image, client, class, test_snr_db, psnr (dB).

    Raises:
        ConfigError: no run kept images, a panel has several runs, or no such view.
    """
    runs = study.runs[study.runs["status"] == "done"]
    check_panels(runs, plot)
    found = {run.hash: run for run in study.stored}
    rows, pictures = [], {}
    for value, part in runs.groupby(plot.facet, sort=False):
        run = found[part["hash"].iloc[0]]  # of several seeds the first one
        kept, view = read_kept_arrays(run, plot.view, "images", IMAGES)
        name = f"images/{view}"
        shown = _choose_images(kept["originals/client"])
        originals, snrs = kept["originals/images"], kept["originals/snr_db"]
        for i, at in enumerate(shown):
            place = {"image": i, "client": int(kept["originals/client"][at]), "class": int(kept["originals/label"][at])}
            pictures[value, i, ORIGINAL] = originals[at]
            inside = _frame_picture(kept, at)
            for test, snr in sorted(enumerate(snrs), key=lambda pair: pair[1]):
                pictures[value, i, f"{snr:g}"] = kept[name][test, at]
                error = (kept[name][test, at].astype(float) - originals[at])[inside] / 255
                psnr = -10 * np.log10(max(float((error**2).mean()), 1e-10))
                rows.append({str(plot.facet): value, **place, TEST: float(snr), "psnr": psnr})
    cells = pd.DataFrame(rows)
    cells.attrs[PICTURES] = pictures
    return cells


def _frame_picture(kept: dict[str, np.ndarray], at: int) -> tuple[slice, ...]:
    """Find the place of the picture in a kept image: in its middle, with a border around a smaller picture."""
    whole = kept["originals/images"].shape[-2:]
    sides = kept["originals/sides"][at] if "originals/sides" in kept else whole
    starts = [(size - side) // 2 for size, side in zip(whole, sides, strict=True)]
    return slice(None), *(slice(start, start + side) for start, side in zip(starts, sides, strict=True))


def _choose_images(clients: np.ndarray) -> list[int]:
    """Choose a few images: the first of each client, then the second of each."""
    turn = pd.Series(clients).groupby(clients).cumcount().to_numpy()
    return [int(i) for i in np.lexsort((clients, turn))[:ROWS]]


def draw_images(axes: Axes, cells: pd.DataFrame, plot: Plot, styles: Styles) -> None:
    """Draw a row for each image: the original, and the received image at each SNR."""
    pictures, panel = cells.attrs[PICTURES], cells[str(plot.facet)].iloc[0]
    snrs, count = list(dict.fromkeys(cells[TEST])), cells["image"].nunique()
    for row in range(count):
        for column, what in enumerate([ORIGINAL, *(f"{snr:g}" for snr in snrs)]):
            pixels = np.moveaxis(pictures[panel, row, what], 0, -1)
            place = (column, column + 0.94, count - row - 0.94, count - row)
            grey = pixels.shape[-1] == 1
            axes.imshow(
                pixels[..., 0] if grey else pixels, extent=place, cmap="gray" if grey else None, vmin=0, vmax=255
            )
    names = [ORIGINAL, *("as trained" if np.isnan(snr) else f"{snr:g} dB" for snr in snrs)]
    axes.set(xlim=(0, len(names)), ylim=(0, count), aspect="equal")
    axes.set_xticks([i + 0.47 for i in range(len(names))], names)
    axes.set_yticks([])
    axes.grid(visible=False)


def describe_images(cells: pd.DataFrame, plot: Plot) -> str:
    """Describe the images, with their mean PSNR."""
    means = cells.groupby([str(plot.facet), TEST], sort=False, dropna=False)["psnr"].mean()
    of_each = "; ".join(
        f"{plot.labels.place(str(plot.facet), panel)} at {snr:g} dB: {mean:.1f} dB"
        for (panel, snr), mean in means.items()
    )
    return f"Test images as they come back, of one run each, bytes. Mean PSNR of those that are shown: {of_each}."


IMAGES_KIND = Kind(
    title="images as they come back, a panel for each method (reconstruction, runs with --keep images)",
    tabled=False,
    numbers=compute_images,
    draw=draw_images,
    caption=describe_images,
    facet="variant",
    height=lambda cells, plot: 0.45 * cells["image"].nunique() + 0.3,
    width=lambda cells, plot: (0.5 * (1 + cells[TEST].nunique(dropna=False)), 0.3),
    columns=2,
    shared=False,
    of_y=False,
    all_tests=True,
)
