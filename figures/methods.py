"""All methods side by side: a row per method, a mark per partition, from the best to the worst."""

from __future__ import annotations

import pandas as pd
from matplotlib.axes import Axes

from experiments.table import aggregate, over_seeds
from figures.base import Drawing
from figures.style import LABELS, line_styles

KIND = "partition.kind"
NAMES = {"pathological": "2 classes per client", "dirichlet": "Dirichlet 0.1"}
"""Partition -> name of its marks."""
ROW = 0.15
"""Height of a method's row in inches."""


def numbers(frame: pd.DataFrame) -> pd.DataFrame:
    """Return per method and partition: accuracy (fraction of 1) and its spreads; see `experiments.table.aggregate`."""
    cells = aggregate(frame, KIND)
    cells = cells[cells["seeds"] > 0].astype({"accuracy": float})
    order = cells.groupby("variant")["accuracy"].mean().sort_values().index
    place = cells["variant"].map({variant: i for i, variant in enumerate(order)})
    return cells.assign(place=place).sort_values([KIND, "place"], ascending=[False, True]).reset_index(drop=True)


def draw(axes: Axes, cells: pd.DataFrame) -> None:
    """Draw a mark per method and partition; bars are the spread over clients."""
    kinds = list(cells[KIND].unique())
    rows = cells.drop_duplicates("variant").sort_values("place")
    for i, (kind, style) in enumerate(zip(kinds, line_styles(len(kinds)), strict=True)):
        row = cells[cells[KIND] == kind]
        shift = 0.16 * (1 - 2 * i / max(1, len(kinds) - 1))
        axes.errorbar(
            row["accuracy"],
            row["place"] + shift,
            xerr=row["std_over_clients"],
            label=NAMES.get(kind, kind),
            elinewidth=0.4,
            **{**style, "linestyle": "none"},
        )
    axes.figure.set_size_inches(3.5, 0.9 + ROW * len(rows))  # type: ignore[union-attr]
    axes.set_yticks(rows["place"], [LABELS.get(variant, variant) for variant in rows["variant"]])
    axes.set_ylim(-0.8, len(rows) - 0.2)
    axes.set_xlabel("Accuracy (%)")
    axes.xaxis.set_major_formatter(lambda fraction, _: f"{100 * fraction:.4g}")
    axes.legend(loc="lower right")


def caption(cells: pd.DataFrame) -> str:
    """Return a text that tells what the marks and bars are."""
    seeds = int(cells["seeds"].max())
    if over_seeds(cells):
        spread = f"{seeds} seeds; bars are the standard deviation over clients, the table's ± is that over seeds"
    else:
        spread = "one seed; bars, and the table's ±, are the standard deviation over clients"
    return (
        f"Test accuracy of each method's first view, mean over clients, {spread}. "
        "Methods are sorted by the mean of both partitions."
    )


ARMS_SMALL = Drawing("arms-small", "arms-small", KIND, numbers, draw, caption)
"""The table of all methods as a picture."""
