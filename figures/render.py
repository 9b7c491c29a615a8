"""Rendering of a figure as PDF and PNG, with the plotted numbers as CSV and a page of caption and table."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING

from experiments.registry import EXPERIMENTS, experiment
from figures.base import AnyFigure, Drawing, Measured
from figures.registry import drawing
from semcom.config import ConfigError
from semcom.files import TABLE, refuse_file, write_atomically

if TYPE_CHECKING:
    import pandas as pd

RENDERED = Path("figures") / "rendered"


def render(name: str, *, results: Path | str | None = None, out: Path | str | None = None) -> list[Path]:
    """Draw a figure; nothing is trained.

    Args:
        name: a figure of `figures.registry`.
        results: folder of a sweep, or its results.parquet (None: results/<experiment>-<scale> with the largest scale
            that is there, or the last one declared of scales with names of their own). A figure that measures its own
            numbers takes none.
        out: folder of the files (None: figures/rendered/<scale>, or figures/rendered for one that measures itself).

    Returns:
        <name>.pdf, <name>.png (300 dpi), <name>.csv (the plotted numbers), <name>.md (table, caption, command).

    Raises:
        ConfigError: no such figure, no results, results of another experiment or of a figure that takes none, none
            that finished, runs that differ in a field which the figure does not show, or an `out` that is a file.
    """
    from figures import page

    chosen = drawing(name)
    out = None if out is None else Path(out).expanduser()
    if out is not None:
        refuse_file(out)
    if isinstance(chosen, Measured):
        if results is not None:
            raise ConfigError(f"results: {name} measures its own numbers; leave {str(results)!r} out")
        numbers = chosen.numbers()
        return _write(chosen, numbers, page.measured(chosen, numbers), out or RENDERED)
    frame = _read(chosen, Path(results) if results is not None else _largest_scale(chosen.experiment))
    numbers = chosen.numbers(frame)
    if numbers.empty:
        raise ConfigError(
            f"results: no run of {chosen.experiment} finished; repeat it with: {frame['command'].iloc[0]}"
        )
    folder = out or RENDERED / str(frame["scale"].iloc[0])
    return _write(chosen, numbers, page.page(chosen, frame, numbers), folder)


def _largest_scale(name: str) -> Path:
    """Return the default folder of an experiment's results. ConfigError, with the command to run, if there is none."""
    folders = [Path("results") / f"{name}-{scale}" for scale in reversed(experiment(name).offered())]
    for folder in folders:
        if (folder / TABLE).is_file():
            return folder
    raise ConfigError(f"results: there are none in results/{name}-*; run first: {_sweep_command(name)}")


def _sweep_command(name: str) -> str:
    """Return the command that makes an experiment's results at its cheapest scale."""
    plugin = EXPERIMENTS.source(name)
    more = f" --plugin {shlex.quote(plugin)}" if plugin else ""
    return f"semcom sweep {name} --scale {experiment(name).scale()}{more}"


def _read(chosen: Drawing, path: Path) -> pd.DataFrame:
    """Return the table at `path`, which must be that of the figure's experiment."""
    from experiments.results import read_table

    if not path.exists() or (path.is_dir() and not (path / TABLE).is_file()):
        command = f"{_sweep_command(chosen.experiment)} --out {shlex.quote(str(path))}"
        raise ConfigError(f"results: {path} has no {TABLE}; run first: {command}")
    frame = read_table(path)
    found = ", ".join(frame["experiment"].unique())
    if found != chosen.experiment:
        raise ConfigError(f"results: {path} is of {found or 'no run'}; {chosen.name} shows {chosen.experiment}")
    return frame


def _write(chosen: AnyFigure, numbers: pd.DataFrame, text: str, folder: Path) -> list[Path]:
    """Draw the numbers and write the four files, the page's text among them, each all or nothing."""
    from matplotlib.figure import Figure

    from figures import style

    with style.ieee():
        figure = Figure()
        chosen.draw(figure.add_subplot(), numbers)
        contents = {kind: style.to_bytes(figure, kind) for kind in ("pdf", "png")}
    contents["csv"] = numbers.to_csv(index=False, lineterminator="\n").encode()
    contents["md"] = text.encode()
    return [write_atomically(folder / f"{chosen.name}.{kind}", data) for kind, data in contents.items()]
