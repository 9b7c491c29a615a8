"""The sweep of a named experiment: a grid of independent runs, then one tidy table of their results."""

from __future__ import annotations

import json
import os
import platform
import shlex
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path
from typing import Any

import pandas as pd
from filelock import FileLock, Timeout

import semcom
from channels.options import POSITIVE
from experiments import results, table
from experiments.base import Experiment, Train, set_fields
from experiments.cost import work
from experiments.parallel import carry_out, check_workers
from experiments.progress import describe, is_finished, run_folder
from experiments.registry import experiment
from semcom.config import NOT_IDENTITY, ConfigError, RunConfig, RunError, run_hash
from semcom.config.checks import require
from semcom.files import REPORT, SWEEP, TABLE, refuse_file, write_atomically
from semcom.runs.folder import LOCK, read_summary

OWNER = ".owner"
"""File of a sweep's folder that says which process is at work in it."""


def check_data(configs: Iterable[RunConfig]) -> None:
    """Load and divide the data of unfinished runs once: what is missing or too little shows before any run starts.

    A dataset that has to be downloaded is so by one process.

    Raises:
        ConfigError: data cannot be had, or a partition of them.
    """
    from semcom.data.load import read
    from semcom.data.partitions import partition

    needed: dict[str, dict[str, RunConfig]] = {}  # by what is equal: the parts need not be hashable
    for c in configs:
        if not is_finished(c):
            needed.setdefault(repr(c.data), {})[repr((c.partition, c.sharers, c.seed))] = c
    for same_data in needed.values():
        dataset = read(next(iter(same_data.values())).data)
        for c in same_data.values():
            partition(dataset, c.partition, c.sharers, c.seed)


def sweep(
    name: str,
    *,
    scale: str | None = None,
    jobs: int = 1,
    backend: str = "loky",
    out: Path | str | None = None,
    overrides: Mapping[str, Any] | None = None,
    train: Train | None = None,
    limit_minutes: float | None = None,
) -> Path:
    """Carry out an experiment's grid and write its table; runs that are finished already are not run again.

    Each run has its own folder, `out`/<hash of its resolved configuration>. Progress goes to stderr; the table of
    accuracies is printed and stored beside results.parquet as results.md. A folder belongs to one sweep, which
    sweep.json names: to one experiment with its scale and overrides.

    Args:
        name: an experiment of `experiments.registry`.
        scale: one of the experiment's scales (None: the first one, see `Experiment.offered`).
        jobs: largest number of runs at a time, each on one thread. With 1 they run in this process.
        backend: loky (this machine) or ray.
        out: folder of the results (None: results/<name>-<scale>).
        overrides: dotted field -> value, see `Experiment.grid`.
        train: function that carries out one run (None: the experiment's own, or `semcom.run`).
        limit_minutes: time after which a run is stopped; it counts as failed, and the same call goes on where it
            stopped (None: none).

    Returns:
        The path of results.parquet.

    Raises:
        ConfigError: the request is wrong, or the folder is another sweep's; nothing has run.
        RunError: a run failed. The others have finished and the table is written, with the failed run in it.
    """
    chosen = experiment(name)
    scale, overrides = chosen.scale(scale), overrides or {}
    folder = Path(out).expanduser() if out is not None else Path("results") / f"{name}-{scale}"
    origin = {"experiment": name, "scale": scale, "command": command(name, scale, overrides)}
    check_workers(jobs, backend)
    require("limit-minutes", limit_minutes, POSITIVE)
    check_folder(folder, origin)
    runs = plan(chosen, scale, folder, overrides)
    jobs = max(1, min(jobs, sum(not is_finished(config) for config in runs.values())))
    if jobs > 1 and backend == "loky":
        from semcom.runs.limits import check_processes  # imports torch

        check_processes("jobs", jobs)
    check_data(runs.values())
    with _alone_in(folder):
        check_folder(folder, origin)  # another sweep may have had it in the meantime
        write_atomically(folder / SWEEP, json.dumps(origin, indent=2) + "\n")
        carry = train or chosen.train or semcom.run
        errors = carry_out(runs, jobs=jobs, backend=backend, train=carry, limit_minutes=limit_minutes)
        rows = [_row(config, origin, errors.get(key)) for key, config in runs.items()]
        return _store(chosen, results.table(rows), folder)


@contextmanager
def _alone_in(folder: Path) -> Iterator[None]:
    """Keep other sweeps out of a folder; the operating system drops the lock with the process.

    Raises:
        ConfigError: another process is at work in it; nothing has been written.
    """
    owner = folder / OWNER
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = FileLock(folder / LOCK, timeout=0)
        lock.acquire()
    except Timeout:
        whose = owner.read_text(encoding="utf-8").strip() if owner.is_file() else "another process"
        raise ConfigError(f"out: {whose} is at work in {folder}; wait for it, or give another folder") from None
    except OSError as error:
        raise ConfigError(f"out: {folder} cannot be written to: {error.strerror}") from None
    try:
        now = datetime.now().isoformat(sep=" ", timespec="minutes")
        with suppress(OSError):
            owner.write_text(f"process {os.getpid()} of {platform.node() or 'this machine'} (since {now})\n")
        yield
    finally:
        owner.unlink(missing_ok=True)
        lock.release()


def check_folder(folder: Path, origin: Mapping[str, str]) -> None:
    """Check that a folder may hold the results of a sweep: there is none, or it is this sweep's already.

    Args:
        folder: the folder.
        origin: experiment, scale and command of the sweep.

    Raises:
        ConfigError: it is a file, or holds another sweep's results.
    """
    refuse_file(folder)
    path = folder / SWEEP
    if not path.exists():
        if (folder / TABLE).exists():
            raise ConfigError(f"out: {folder} holds {TABLE} without a {SWEEP}; give another folder")
        return
    try:
        held = json.loads(path.read_text(encoding="utf-8"))
        same, its_command = held == origin, held["command"]
    except (ValueError, KeyError, TypeError):
        raise ConfigError(f"out: {path} does not name a sweep; give another folder") from None
    if not same:
        raise ConfigError(f"out: {folder} holds another sweep ({its_command}); give another folder")


def plan(chosen: Experiment, scale: str, folder: Path, overrides: Mapping[str, Any]) -> dict[str, RunConfig]:
    """Return hash -> resolved configuration with its folder in `out`; the longest runs first.

    Raises:
        ConfigError: a configuration is wrong, two are the same, or two would be averaged as seeds of one run though
            they differ in another field.
    """
    resolved = [semcom.resolve(config) for config in chosen.grid(scale, overrides)]
    runs: dict[str, RunConfig] = {}
    for config in sorted(resolved, key=work, reverse=True):
        key = run_hash(config)
        if key in runs:
            raise ConfigError(f"{chosen.name}: two runs have the same configuration: {describe(config)}")
        runs[key] = set_fields(config, {"out": str((folder / key).absolute())})
    table.check_seeds_alone(results.table([results.row(config, {}, None, None) for config in resolved]), chosen.axis)
    return runs


def command(name: str, scale: str, overrides: Mapping[str, Any]) -> str:
    """Return the shell command that repeats a sweep, without what holds for one machine only (folders, device, chunk).

    Fields that `semcom sweep` has no flag for make it a call of `sweep` in Python.
    """
    fields = {key: overrides[key] for key in sorted(overrides) if key not in NOT_IDENTITY}
    if set(fields) <= {"plugins"}:
        plugins = (word for plugin in fields.get("plugins", ()) for word in ("--plugin", plugin))
        return shlex.join(["semcom", "sweep", name, "--scale", scale, *plugins])
    call = f"sweep({name!r}, scale={scale!r}, overrides={fields!r})"
    return shlex.join(["python", "-c", f"from experiments.sweep import sweep; {call}"])


def _row(config: RunConfig, origin: Mapping[str, str], error: str | None) -> dict[str, Any]:
    """Return a run's row of the table; a summary that cannot be read is a failure too."""
    try:
        return results.row(config, origin, None if error else read_summary(run_folder(config)), error)
    except RunError as damaged:
        return results.row(config, origin, None, str(damaged))


def _store(chosen: Experiment, frame: pd.DataFrame, folder: Path) -> Path:
    """Write results.parquet and results.md and print the table; RunError if a run failed."""
    order = chosen.methods.index
    frame = frame.sort_values("method", key=lambda names: names.map(order), kind="stable", ignore_index=True)
    path = results.write_table(frame, folder / TABLE)
    cells = table.aggregate(frame, chosen.axis)
    write_atomically(folder / REPORT, table.markdown_table(cells, chosen.axis) + "\n")
    print(table.text_table(cells, chosen.axis))
    failed = (frame["status"] == "failed").sum()
    if failed:
        raise RunError(f"{failed} of {len(frame)} runs failed: see {path}; the same command tries them again")
    return path
