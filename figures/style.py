"""The one look of all figures: an IEEE column, readable in greyscale, no LaTeX."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import resources
from typing import Any

import matplotlib as mpl
import matplotlib.style
from matplotlib.figure import Figure

LABELS = {
    "local": "Local",
    "fedavg": "FedAvg",
    "fedavg_ft": "FedAvg + FT",
    "fedprox": "FedProx",
    "fedprox_ft": "FedProx + FT",
    "moon": "MOON",
    "pfedme": "pFedMe",
    "ditto": "Ditto",
    "perfedavg": "Per-FedAvg",
    "fedrep": "FedRep",
    "fedper": "FedPer",
    "lg_fedavg": "LG-FedAvg",
    "fedbabu": "FedBABU",
    "fedamp": "FedAMP",
    "fedala": "FedALA",
    "fedproto": "FedProto",
    "fedpac": "FedPAC",
    "fedgh": "FedGH",
    "fedcrc": "FedCRC",
    "fedcrl": "FedCRL",
    "fedcosr": "FedCoSR",
    "repper": "RepPer",
    "fedcl": "FedCL",
}
"""Method -> its name in the papers; any other is shown by its own name."""


@contextmanager
def ieee() -> Iterator[None]:
    """Use matplotlib's defaults with `ieee.mplstyle`, whatever the user's own settings; they come back at the end."""
    with resources.as_file(resources.files("figures") / "ieee.mplstyle") as path, mpl.rc_context():
        matplotlib.style.use(["default", str(path)])
        yield


def line_styles(count: int) -> list[dict[str, Any]]:
    """Return the first `count` line styles (color, linestyle, marker), repeated when there are more lines than styles.

    Markers of every second line are hollow.
    """
    cycle = list(mpl.rcParams["axes.prop_cycle"])
    styles = [dict(cycle[i % len(cycle)]) for i in range(count)]
    return [style | ({"markerfacecolor": "white"} if i % 2 else {}) for i, style in enumerate(styles)]


def to_bytes(figure: Figure, kind: str) -> bytes:
    """Return the figure as a file's content; the same figure gives the same bytes.

    Args:
        figure: drawn under `ieee`.
        kind: pdf or png (300 dpi).
    """
    buffer = io.BytesIO()
    figure.savefig(buffer, format=kind, metadata={"CreationDate": None} if kind == "pdf" else None)
    return buffer.getvalue()
