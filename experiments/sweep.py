"""Carries out a named experiment: a grid of independent runs, then one tidy table of their results."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pandas as pd

import semcom
from experiments import results, table
from experiments.base import Experiment, set_fields
from experiments.parallel import Runner, carry_out, check_workers, train
from experiments.progress import describe, is_finished, run_folder
from experiments.registry import experiment
from semcom.config import NOT_IDENTITY, ConfigError, RunConfig, RunError, filled, run_hash
from semcom.files import write_atomically


def check_data(configs: Iterable[RunConfig]) -> None:
    """Loads and divides the data of unfinished runs once: what is missing or too little shows before any run starts.

    A dataset that has to be downloaded is so by one process. Raises ConfigError.
    """
    from semcom.data.load import load
    from semcom.data.partitions import partition

    needed = {(c.data, c.partition, c.clients, c.seed) for c in configs if not is_finished(c)}
    for data in {key[0] for key in needed}:
        dataset = load(data)
        for _, split, clients, seed in (key for key in needed if key[0] == data):
            partition(dataset, split, clients, seed)


def sweep(
    name: str,
    *,
    scale: str | None = None,
    jobs: int = 1,
    backend: str = "loky",
    out: Path | str | None = None,
    overrides: Mapping[str, Any] | None = None,
    runner: Runner | None = None,
) -> Path:
    """Runs an experiment's grid and writes its table; runs that are finished already are not run again.

    Each run has its own folder, `out`/<hash of its resolved configuration>. Progress goes to stderr; the table of
    accuracies is printed and stored beside results.parquet as results.md.

    Args:
        name: an experiment of `experiments.registry`.
        scale: smoke, small or paper (None: the cheapest that the experiment has).
        jobs: runs at a time, each on one thread. With 1 they run in this process.
        backend: loky (this machine) or ray.
        out: folder of the results (None: results/<name>-<scale>).
        overrides: dotted field -> value, see `Experiment.grid`.
        runner: what trains one configuration (None: the experiment's own, or `experiments.parallel.train`).

    Returns:
        The path of results.parquet.

    Raises:
        ConfigError: the request is wrong; nothing has run.
        RunError: a run failed. The others have finished and the table is written, with the failed run in it.
    """
    chosen = experiment(name)
    scale, overrides = chosen.scale(scale), overrides or {}
    folder = Path(out) if out is not None else Path("results") / f"{name}-{scale}"
    check_workers(jobs, backend)
    runs = plan(chosen, scale, folder, overrides)
    check_data(runs.values())
    errors = carry_out(runs, jobs=jobs, backend=backend, runner=runner or chosen.runner or train)
    origin = {"experiment": name, "scale": scale, "command": command(name, scale, overrides)}
    rows = [_row(config, origin, errors.get(key)) for key, config in runs.items()]
    return _store(chosen, results.table(rows), folder)


def plan(chosen: Experiment, scale: str, folder: Path, overrides: Mapping[str, Any]) -> dict[str, RunConfig]:
    """Hash -> resolved configuration with its folder in `out`; the longest runs first.

    Raises:
        ConfigError: a configuration is wrong, or two are the same.
    """
    resolved = [semcom.resolve(config) for config in chosen.grid(scale, overrides)]
    runs: dict[str, RunConfig] = {}
    for config in sorted(resolved, key=work, reverse=True):
        key = run_hash(config)
        if key in runs:
            raise ConfigError(f"{chosen.name}: two runs have the same configuration: {describe(config)}")
        runs[key] = set_fields(config, {"out": str((folder / key).absolute())})
    return runs


def work(config: RunConfig) -> float:
    """How long a run takes compared with others of its grid: about the samples that it trains on, times a constant."""
    split, schedule = config.partition, config.train
    if schedule.local_steps is not None:
        visited = float(schedule.local_steps * filled(schedule.batch_size))
    else:
        epochs = filled(schedule.local_epochs)
        mean = sum(epochs) / len(epochs) if isinstance(epochs, tuple) else epochs
        visited = mean * (split.options.ways * (split.options.shots or 1) if split.kind == "shots" else 1)
    return filled(schedule.rounds) * visited * config.clients * filled(schedule.participation)


def command(name: str, scale: str, overrides: Mapping[str, Any]) -> str:
    """The shell command that repeats a sweep, without what holds for one machine only (folders, device, chunk).

    Fields that `semcom sweep` has no flag for make it a call of `sweep` in Python.
    """
    fields = {key: value for key, value in overrides.items() if key not in NOT_IDENTITY}
    if set(fields) <= {"plugins"}:
        plugins = (word for plugin in fields.get("plugins", ()) for word in ("--plugin", plugin))
        return shlex.join(["semcom", "sweep", name, "--scale", scale, *plugins])
    call = f"sweep({name!r}, scale={scale!r}, overrides={fields!r})"
    return shlex.join(["python", "-c", f"from experiments.sweep import sweep; {call}"])


def _row(config: RunConfig, origin: Mapping[str, str], error: str | None) -> dict[str, Any]:
    """A run's row of the table; a summary that cannot be read is a failure too."""
    try:
        return results.row(config, origin, None if error else results.summary(run_folder(config)), error)
    except RunError as unreadable:
        return results.row(config, origin, None, str(unreadable))


def _store(chosen: Experiment, frame: pd.DataFrame, folder: Path) -> Path:
    """Writes results.parquet and results.md and prints the table; RunError if a run failed."""
    frame = frame.sort_values("method", key=lambda arms: arms.map(chosen.arms.index), kind="stable", ignore_index=True)
    path = results.write_table(frame, folder / results.TABLE)
    cells = table.aggregate(frame, chosen.axis)
    write_atomically(folder / "results.md", table.markdown_table(cells, chosen.axis) + "\n")
    print(table.text_table(cells, chosen.axis))
    failed = (frame["status"] == "failed").sum()
    if failed:
        raise RunError(f"{failed} of {len(frame)} runs failed: see {path}; the same command tries them again")
    return path
