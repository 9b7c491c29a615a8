"""Runs that another study has finished already, taken over into a sweep: equal configurations give equal results."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from semcom.config import READ, ConfigError, Resolved, RunError
from semcom.files import (
    ARRAYS,
    CHECKPOINT,
    CONFIG,
    ERROR,
    METRICS,
    PREVIOUS,
    ROWS,
    SUMMARY,
    SWEEP,
    TRAINING,
    WEIGHTS,
    resolve_file,
    write_atomically,
)
from semcom.packed import Packed
from semcom.runs.folder.arrays import list_lacking_arrays
from semcom.runs.folder.folder import Folder, check_stored_reads
from semcom.runs.folder.lock import BusyError
from semcom.runs.folder.stored import read_stored_config, write_stored_config
from semcom.runs.folder.summary import write_summary
from semcom.runs.request.sources import list_reads
from semcom.studies.experiment import Train
from semcom.studies.registry import EXPERIMENTS, find_experiment
from semcom.studies.results.archive import open_archive, read_archive
from semcom.studies.results.lock import read_sweep_record
from semcom.studies.results.outcome import has_outcome, locate_run_folder
from semcom.studies.results.run import Stored, read_stored_runs
from semcom.studies.sweep.plan import Plan
from semcom.studies.sweep.request import Request, list_joining_methods


def find_reusable_runs(
    plan: Plan, studies: Sequence[Path | str] | Path | str, train: Train | None = None
) -> dict[str, Stored]:
    """Find those of a sweep's unfinished runs that lie finished in other studies, by hash.

    Args:
        plan: the sweep.
        studies: folders or archives of sweeps. What a training function of its own adds to a run is not in the runs of
            other functions: only studies that train as the sweep does are taken. A run that is to keep arrays is taken
            where it has kept them.
        train: function that carries out the sweep's runs (None: the experiment's own, or `semcom.run`).

    Raises:
        ConfigError: one of them is no sweep's, or trains in another way, or has no finished run of the sweep.
    """
    found: dict[str, Stored] = {}
    for study in _list_studies(studies):
        try:
            place = resolve_file(study)
            folder = open_archive(place)
            _check_training(folder, train or plan.experiment.train)
            runs = {run.hash: run for run in read_stored_runs(folder)[0]}
            fits = partial(_is_reusable, archived=folder is not place)
        except ConfigError as error:
            raise ConfigError(f"reuse: {study}: {error}") from None
        theirs = {key: run for key, run in runs.items() if key in plan.runs and fits(plan.runs[key], run)}
        if not theirs:
            raise ConfigError(f"reuse: {study} has no finished run of this sweep, or not what it keeps")
        found = {**theirs, **found}
    return {key: run for key, run in found.items() if not has_outcome(plan.runs[key])}


def add_reused_variants(name: str | None, request: Request, studies: Sequence[Path | str] | Path | str) -> Request:
    """Add the variants of the studies to a request by which methods of plug-ins join an experiment.

    So these stand beside what is there already. Any other request is returned as it is; before a search, what is no
    study is refused all the same, as its runs are looked for only afterwards.

    Args:
        name: of the experiment (None: a study without a declaration).
        request: as parsed.
        studies: folders or archives of sweeps.

    Raises:
        ConfigError: one of the studies is no sweep's.
    """
    declared = None if name is None else find_experiment(name)
    joins = declared is not None and bool(list_joining_methods(declared, request.methods))
    if not (joins or request.tune):
        return request
    there = {variant for study in _list_studies(studies) for variant in _read_record(study)["variants"].values()}
    if declared is None or not joins:
        return request
    own = [variant.name for variant in declared.compared() if variant.name in there]
    return replace(request, methods=tuple(dict.fromkeys((*own, *(request.methods or ())))))


def _list_studies(studies: Sequence[Path | str] | Path | str) -> Sequence[Path | str]:
    return [studies] if isinstance(studies, Path | str) else studies


def _read_record(study: Path | str) -> dict[str, Any]:
    """Read sweep.json of a folder or an archive. Raises ConfigError where there is none."""
    place = resolve_file(study)
    try:
        held = read_sweep_record(Packed(read_archive(place, SWEEP)) if place.is_file() else place)
    except ConfigError as error:
        raise ConfigError(f"reuse: {study}: {error}") from None
    if held is None:
        raise ConfigError(f"reuse: {study}: it is not of a sweep")
    return held


def _check_training(folder: Path, train: Train | None) -> None:
    """Raise ConfigError where a folder is no sweep's, or its runs were not carried out by a function."""
    held = read_sweep_record(folder)
    if held is None:
        raise ConfigError("it is not of a sweep")
    known = held["experiment"] in EXPERIMENTS.names()
    theirs = find_experiment(held["experiment"]).train if known else None
    if held.get("own_training", theirs is not None) != (train is not None) or theirs is not train:
        raise ConfigError("it is of another training function")


def _is_reusable(wanted: Resolved, run: Stored, archived: bool) -> bool:
    """Check whether a stored run is done, has kept what is wanted of it, and read what lies there now.

    Of a run from an archive, which tells no folder, nobody knows what lay where: one that read files is trained anew.
    An archive that names folders all the same does not make us look there, and a damaged file of it is found.
    """
    try:
        if any(archived or not os.path.isabs(path) for path in list_reads(_read_contents(run.trained))):
            return False
        check_stored_reads(run.folder)
        places = {run.folder, run.trained} if archived else ()
        for file in (place / name for place in places for name in (METRICS, ARRAYS)):
            if file.is_file():
                file.read_bytes()  # or it is damaged
        if "checkpoint" in wanted.keep or ("weights" in wanted.keep and not _has_weights(run.trained)):
            return False
        return run.status == "done" and not (wanted.keep and list_lacking_arrays(run.arrays(), wanted.keep))
    except (RunError, ConfigError, OSError):
        return False


def _read_contents(folder: Path) -> Mapping[str, str]:
    """Read the digests of what a stored run has read."""
    return read_stored_config(folder, "reuse").contents if (folder / CONFIG).is_file() else {}


def _has_weights(folder: Path) -> bool:
    """Check whether a run has kept its weights, all in one file."""
    return (folder / WEIGHTS).is_file() and not any(folder.glob(ROWS.format("*")))


def take_reused_run(config: Resolved, run: Stored) -> None:
    """Copy a finished run into its folder of a sweep, unless a process is running there.

    Its summary, by which it counts as finished, comes after all that belongs to it. Checkpoints stay where they are.
    """
    folder = locate_run_folder(config)
    with suppress(BusyError), Folder(folder, config).open():
        apart = run.trained != run.folder
        if apart:
            _copy_run(run.trained, folder / TRAINING, config)
        _copy_run(run.folder, folder, config)
        write_summary(folder, run.summary or {})
        if apart and (run.trained / SUMMARY).is_file():  # last: with it alone, the training would need a checkpoint
            write_atomically(folder / TRAINING / SUMMARY, (run.trained / SUMMARY).read_bytes())


def _copy_run(source: Path, folder: Path, config: Resolved) -> None:
    """Copy a run's files but its summary, in the place of what an unfinished or failed one has left."""
    for name in (SUMMARY, ERROR, CHECKPOINT, PREVIOUS, WEIGHTS):
        (folder / name).unlink(missing_ok=True)
    contents = _read_contents(source)
    reads = {READ + path: contents[READ + path] for path in list_reads(contents)}  # which the plan cannot know
    write_stored_config(folder, replace(config, out=str(folder), contents={**config.contents, **reads}))
    for name in (METRICS, ARRAYS, *([WEIGHTS] if "weights" in config.keep else [])):
        if (source / name).is_file():
            write_atomically(folder / name, (source / name).read_bytes())
