"""A study with known numbers for every kind of figure."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

import semcom
from semcom.config import run_hash
from semcom.plots import Plot, style
from semcom.plots.kinds import KINDS, name_empty, settle_kind
from semcom.plots.panels import draw_panels
from semcom.runs.folder.arrays import write_arrays
from semcom.studies.analysis.study import Study
from tests.studies.folders import TRAFFIC, config, line, scored, write

TOPS = {"fedcl": 0.64, "fedproto": 0.62, "fedavg": 0.4}
SPREAD = {"fedcl": 0.002, "fedproto": 0.0022, "fedavg": 0.0024}
"""Difference of one seed to the next."""
SNR = "channel.snr_db"
CLASSES = (0.2, 0.6, 1.0)


def accuracy(method: str, snr: float, seed: int) -> float:
    """The accuracy of a run: mean over four rounds, from 15 points below it to 15 above, and over three clients."""
    return TOPS.get(method, 0.6) + snr / 1000 + (seed - 1) * SPREAD.get(method, 0.002)


def made(
    folder: Path, methods: tuple[str, ...] = tuple(TOPS), seeds: int = 3, snrs: tuple[float, ...] = (0.0, 9.0)
) -> Study:
    """Write runs of four rounds with three clients. Each keeps its matrices, and features if seed and SNR are 0."""
    for number, method in enumerate(methods):
        for snr in snrs:
            for seed in range(seeds):
                of, top = config(method, seed, snr, clients=3), accuracy(method, snr, seed)
                clients = np.roll([top - 0.1, top, top + 0.1], seed)
                lines = [
                    line(r, {"personal": scored((clients + (r - 2.5) / 10).tolist(), [c * top for c in CLASSES])})
                    for r in range(1, 5)
                ]
                ups = {name: value * (number + 1) for name, value in TRAFFIC.items()}
                out = write(folder / run_hash(of), of, lines, traffic={"up": ups, "down": TRAFFIC})
                write_arrays(out / "arrays.npz", kept(number, seed, features=seed == snr == 0), run_hash(of))
    return semcom.study(folder)


def drawn(numbers: pd.DataFrame | list[dict[str, Any]], plot: Plot) -> Figure:
    with style.ieee():
        return draw_panels(pd.DataFrame(numbers) if isinstance(numbers, list) else numbers, plot)


def kept(number: int, seed: int, features: bool) -> dict[str, Any]:
    """Confusion: of 8 images of each class 6 - number are right, and the others taken for the next class."""
    right = 6 - number % 6
    matrix = right * np.eye(3, dtype=int) + (8 - right) * np.roll(np.eye(3, dtype=int), 1, axis=1)
    found: dict[str, Any] = {"clients": np.arange(3), "confusion/personal": np.stack([matrix] * 3)}
    train = np.roll(np.array([[40, 10, 0], [0, 25, 25], [5, 5, 40]]), seed, axis=0)
    found |= {"counts/train": train, "counts/test": np.full((3, 3), 8)}
    if features:
        label = np.repeat([0, 1, 2], 12)
        noise = np.random.default_rng(number).normal(size=(36, 4))
        found["received/personal"] = noise + 4 * np.eye(3, 4)[label]
        found |= {"samples/label": label, "samples/client": np.arange(36) % 3, "samples/image": np.arange(36)}
    return found


def shown(study: Study, **fields: Any) -> tuple[pd.DataFrame, Figure, Plot]:
    """The numbers of a request, its figure and the settled request."""
    part, plot = settle_kind(study, Plot(**fields))
    cells = name_empty(KINDS.get(str(plot.kind)).numbers(part, plot), plot)
    return cells, drawn(cells, plot), plot
