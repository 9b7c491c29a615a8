"""Renders a figure from stored results: PDF, PNG, the plotted numbers as CSV, and a page with table and caption."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING

from experiments.base import SCALES
from experiments.registry import experiment
from figures.base import Drawing
from figures.registry import drawing
from semcom.config import ConfigError
from semcom.files import write_atomically

if TYPE_CHECKING:
    import pandas as pd


def render(name: str, *, results: Path | str | None = None, out: Path | str | None = None) -> list[Path]:
    """Draws a figure from the table of a sweep; nothing is trained.

    Args:
        name: a figure of `figures.registry`.
        results: folder of a sweep, or its results.parquet (None: results/<experiment>-<scale> with the largest scale
            that is there).
        out: folder of the files (None: figures/rendered/<scale>).

    Returns:
        <name>.pdf, <name>.png (300 dpi), <name>.csv (the plotted numbers), <name>.md (table, caption, command).

    Raises:
        ConfigError: no such figure, no results, results of another experiment, or none that finished.
    """
    chosen = drawing(name)
    frame = _read(chosen, Path(results) if results is not None else _largest_scale(chosen.experiment))
    numbers = chosen.numbers(frame)
    if numbers.empty:
        raise ConfigError(
            f"results: no run of {chosen.experiment} finished; repeat it with: {frame['command'].iloc[0]}"
        )
    folder = Path(out) if out is not None else Path("figures") / "rendered" / str(frame["scale"].iloc[0])
    return _write(chosen, frame, numbers, folder)


def _largest_scale(name: str) -> Path:
    """The default folder of an experiment's results. ConfigError, with the command to run, if there is none."""
    folders = [Path("results") / f"{name}-{scale}" for scale in reversed(SCALES)]
    for folder in folders:
        if (folder / "results.parquet").is_file():
            return folder
    raise ConfigError(f"results: there are none in results/{name}-*; run first: {_sweep_command(name)}")


def _sweep_command(name: str) -> str:
    """The command that makes an experiment's results at its cheapest scale."""
    return f"semcom sweep {name} --scale {experiment(name).scale()}"


def _read(chosen: Drawing, path: Path) -> pd.DataFrame:
    """The table at `path`, which must be that of the figure's experiment."""
    from experiments.results import read_table

    if not path.exists() or (path.is_dir() and not (path / "results.parquet").is_file()):
        command = f"{_sweep_command(chosen.experiment)} --out {shlex.quote(str(path))}"
        raise ConfigError(f"results: {path} has no results.parquet; run first: {command}")
    frame = read_table(path)
    found = ", ".join(frame["experiment"].unique())
    if found != chosen.experiment:
        raise ConfigError(f"results: {path} is of {found or 'no run'}; {chosen.name} shows {chosen.experiment}")
    return frame


def _write(chosen: Drawing, frame: pd.DataFrame, numbers: pd.DataFrame, folder: Path) -> list[Path]:
    """Draws the numbers and writes the four files, each all or nothing."""
    from matplotlib.figure import Figure

    from figures import page, style

    with style.ieee():
        figure = Figure()
        chosen.draw(figure.add_subplot(), numbers)
        contents = {kind: style.to_bytes(figure, kind) for kind in ("pdf", "png")}
    contents["csv"] = numbers.to_csv(index=False, lineterminator="\n").encode()
    contents["md"] = page.page(chosen, frame, numbers).encode()
    return [write_atomically(folder / f"{chosen.name}.{kind}", data) for kind, data in contents.items()]
