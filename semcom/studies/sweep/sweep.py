"""The sweep of an experiment: a grid of independent runs, then one tidy table of their results."""

from __future__ import annotations

import sys
import zipfile
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from statistics import mean
from typing import Any

import semcom
from semcom.config import ConfigError, RunConfig, RunError
from semcom.files import ARRAYS, CHECKPOINT, REPORT, SWEEP, TABLE, WEIGHTS, write_atomically
from semcom.runs.folder.arrays import list_lacking_arrays
from semcom.runs.folder.folder import check_stored_reads
from semcom.runs.folder.stored import locate_training
from semcom.runs.folder.summary import format_summary, read_summary
from semcom.runs.request.inputs import TRAINING, check_reaches_processes, digest_training
from semcom.runs.request.plugins import load_plugins
from semcom.screen import say
from semcom.studies.analysis.sheet import make_sheet
from semcom.studies.analysis.study import study
from semcom.studies.experiment import Train
from semcom.studies.overrides import format_duration, format_override_values
from semcom.studies.registry import find_own_train
from semcom.studies.results import table
from semcom.studies.results.failures import Failure, report_failures
from semcom.studies.results.lock import Shard, lock_folder, parse_shard, read_sweep_record, refuse_another_sweep
from semcom.studies.results.outcome import has_outcome, locate_run_folder, read_left_error
from semcom.studies.sweep.divisions import check_sweep_data
from semcom.studies.sweep.plan import Plan, make_plan
from semcom.studies.sweep.pool import carry_out_in_pool, check_workers
from semcom.studies.sweep.request import format_call, parse_request
from semcom.studies.sweep.reuse import add_reused_variants, find_reusable_runs, take_reused_run
from semcom.studies.sweep.tune import check_tuning_is_apart, plan_search, plan_tuned


def sweep(
    name: str | None = None,
    *,
    scale: str | None = None,
    methods: Iterable[str] | str | None = None,
    seeds: Iterable[int] | int | None = None,
    set: Mapping[str, Any] | None = None,
    vary: Mapping[str | tuple[str, ...], Any] | None = None,
    tune: Mapping[str | tuple[str, ...], Any] | None = None,
    plugins: Sequence[str] = (),
    shard: str | None = None,
    jobs: int | None = None,
    backend: str = "loky",
    gpus_per_run: float | None = None,
    out: Path | str | None = None,
    train: Train | None = None,
    limit_minutes: float | None = None,
    reuse: Sequence[Path | str] | Path | str = (),
    track: Sequence[str] | str = (),
    keep: Sequence[str] | str = (),
    data_root: Path | str | None = None,
    device: str | None = None,
    dry_run: bool = False,
) -> Path | None:
    """Carry out a grid of runs and write its table; runs that are finished already are not run again.

    Each run has its own folder, `out`/<hash of its resolved configuration>. Progress goes to stderr; the table of
    accuracies is printed and stored beside results.parquet as results.md. A folder belongs to one sweep, which
    sweep.json names; with more values of its axes it becomes that of the larger grid.

    Args:
        name: an experiment of `semcom.studies.registry`, or the Python file that registers one (None: a study of
            `methods` and the default run).
        scale: one of the experiment's scales (None: the first one, see `Experiment.offered`).
        methods: names of the variants that run (None: all); a method of a plug-in joins them, beside the variants of
            the studies in `reuse`, and has the plug-in and what is set to itself. Of a study without a name, methods.
        seeds: values of the field `seed` (None: those of the experiment).
        set: dotted field -> its value in all runs.
        vary: dotted field, or a tuple of joint ones, -> values, in the place of those of the experiment or beside them.
        tune: the same, of which the best values of each variant are chosen on validation images first; the search lies
            in `out`/search, the choice in `out`/tuned.md.
        plugins: Python files or modules that all runs load.
        shard: the part of the grid that is carried out, such as "3/16" (None: all of it).
        jobs: largest number of runs at a time, each on one thread (None: with loky 1, with ray as many as fit). With
            loky, one at a time runs in this process.
        backend: loky (this machine) or ray (a cluster, see docs/cluster.md).
        gpus_per_run: GPUs that ray keeps for each run, or a part of one (None: none, and runs see no GPU).
        out: folder of the results (None: results/<name>-<scale>; a study without a name needs one).
        train: function that carries out one run (None: the experiment's own, or `semcom.run`).
        limit_minutes: time after which a run is stopped; it counts as failed, and the same call goes on where it
            stopped (None: none).
        reuse: folders or archives of other studies, whose finished runs are taken over where this one has them too.
        track: trackers that get all rounds of each run, as of `semcom.run`.
        keep: parts that each run keeps beside its numbers, as `RunConfig.keep`.
        data_root: folder of the datasets (None: the user's cache folder).
        device: device of all runs, as `RunConfig.device`.
        dry_run: whether the sweep, or its search, is only described and its data checked; nothing is trained.

    Returns:
        The path of results.parquet; None after a dry run, and after a shard while others have runs that have not ended.

    Raises:
        ConfigError: the request is wrong, or the folder is another sweep's; nothing has run.
        RunError: a run failed. The others have finished and the table is written, with the failed run in it.

    Example:
        >>> import semcom
        >>> table = semcom.sweep(
        ...     methods=("local", "fedavg"), seeds=(0, 1), set={"clients": 2, "train.rounds": 1}, out="results/two"
        ... )
        Accuracy ...
        >>> table.name
        'results.parquet'
    """
    load_plugins(plugins)  # first, since what is asked for may be theirs
    part = None if shard is None else parse_shard(shard)
    check_workers(jobs, backend, gpus_per_run, limit_minutes, track)
    of_all = {"keep": (keep,) if isinstance(keep, str) else tuple(keep), "data.root": data_root, "device": device}
    of_all = {name: str(value) if isinstance(value, Path) else value for name, value in of_all.items() if value}
    if twice := of_all.keys() & (set or {}).keys():
        raise ConfigError(f"{min(twice)}: it is given twice; leave it out of set=")
    how: dict[str, Any] = {"jobs": jobs, "backend": backend, "gpus_per_run": gpus_per_run, "train": train}
    how |= {"limit_minutes": limit_minutes, "reuse": reuse, "track": track}
    request = parse_request(methods, seeds, {**(set or {}), **of_all}, vary, tune)
    request = replace(request, words=format_call(name, scale, request, plugins, out))
    request = add_reused_variants(name, request, reuse)
    asked = (name, scale, request, plugins, out)
    plan = plan_search(*asked) if tune else make_plan(*asked)
    if dry_run:
        show_plan(plan, part, jobs, reuse, asked if tune else None)
        return None
    return execute_sweep(carry_out_search(plan, asked, part, how) if tune else plan, part, **how)


def show_plan(
    plan: Plan,
    shard: Shard | None = None,
    jobs: int | None = None,
    reuse: Sequence[Path | str] | Path | str = (),
    searched: tuple[Any, ...] | None = None,
) -> None:
    """Print a preview of a planned sweep, or of its search, then fetch its data and check that every run finds them.

    Args:
        plan, shard, jobs, reuse: as of `preview_sweep`.
        searched: of a search, the arguments of `semcom.studies.sweep.tune.plan_search`.

    Raises:
        ConfigError: a shard of a search is asked for; see `preview_sweep`,
            `semcom.studies.sweep.divisions.check_sweep_data` and `semcom.studies.sweep.tune.check_tuning_is_apart`.
    """
    if searched is not None:
        _require_whole_search(shard)
    say(preview_sweep(plan, shard, jobs or 1, () if searched else reuse))
    check_sweep_data(plan.runs.values())
    if searched is not None:
        check_tuning_is_apart(plan, *searched)


def carry_out_search(
    search: Plan, asked: tuple[Any, ...], shard: Shard | None = None, how: Mapping[str, Any] | None = None
) -> Plan:
    """Carry out the search of a study and plan the study with what it chooses.

    Args:
        search: as planned.
        asked: the arguments of `semcom.studies.sweep.tune.plan_search`.
        shard: None, as a choice needs the whole search.
        how: arguments of `execute_sweep`.

    Raises:
        ConfigError: a shard is asked for; see `semcom.studies.sweep.tune.check_tuning_is_apart`.
        RunError: see `semcom.studies.sweep.tune.plan_tuned`.
    """
    _require_whole_search(shard)
    check_tuning_is_apart(search, *asked)
    with suppress(RunError):  # runs that diverged are no candidates, and any other failure is told with the choice
        execute_sweep(search, **{**(how or {}), "reuse": ()})  # studies to reuse have other seeds
    return plan_tuned(search, *asked)


def _require_whole_search(shard: Shard | None) -> None:
    if shard is not None:
        raise ConfigError(f"shard: {shard} of a study that is tuned cannot choose; leave one of shard and tune out")


def execute_sweep(
    plan: Plan,
    shard: Shard | None = None,
    *,
    jobs: int | None = None,
    backend: str = "loky",
    gpus_per_run: float | None = None,
    train: Train | None = None,
    limit_minutes: float | None = None,
    reuse: Sequence[Path | str] | Path | str = (),
    track: Sequence[str] | str = (),
) -> Path | None:
    """Carry out a planned sweep, or a part of it; arguments, result and errors are those of `sweep`."""
    share = dict(plan.runs) if shard is None else shard.of(plan.runs)
    carry, own = _choose_training(plan, train, track)
    plan = _mark_training(plan, train)
    found = find_reusable_runs(plan, reuse, train)
    # Finished runs too: a result counts only while the files that it read are unchanged.
    for config in share.values():
        check_stored_reads(locate_run_folder(config))
    left = [config for key, config in share.items() if key not in found and not has_outcome(config)]
    if not own:
        _tell_of_what_lacks([config for config in share.values() if config.keep and has_outcome(config)])
    jobs = _check_processes(left, jobs, backend, own)
    # A division that no run can get is found now, not hours later when its run begins.
    check_sweep_data(left)
    with lock_folder(plan.folder, shard, partial(_settle_record, plan)) as check_lock:
        # Copying writes into folders of runs, so no other sweep may be in them.
        for key in found.keys() & share.keys():
            take_reused_run(share[key], found[key])
        found.clear()  # archives need not be open for as long as the runs take
        errors = carry_out_in_pool(
            share,
            jobs=jobs,
            backend=backend,
            gpus_per_run=gpus_per_run,
            train=carry,
            limit_minutes=limit_minutes,
            labels=plan.labels,
        )
        others = [config for key, config in plan.runs.items() if key not in share]
        missing = [c for c in others if not has_outcome(c) and read_left_error(c) is None]
        if shard is None or not missing:
            # Without the lock's file another sweep may have begun, and write this table too.
            check_lock()
            return _store_table(plan, errors, own)
    if errors:
        _print_failures(plan, errors, own)
        raise RunError(f"{len(errors)} of {len(share)} runs of shard {shard} failed; the same command tries them again")
    say(f"shard {shard}: its {len(share)} runs are done; the table comes with the last of {len(missing)} others")
    return None


def _tell_of_what_lacks(done: Sequence[RunConfig]) -> None:
    """Tell of finished runs that lack arrays or models which are to be kept: a sweep has nothing to make them of."""
    lacking: dict[str, list[str]] = {}
    for config in done:
        names: list[str] = []
        with suppress(OSError, zipfile.BadZipFile), zipfile.ZipFile(locate_run_folder(config) / ARRAYS) as file:
            names = file.namelist()
        models = {"checkpoint": CHECKPOINT} if "checkpoint" in config.keep else {"weights": WEIGHTS}
        folder = locate_training(locate_run_folder(config))
        lacks = [what for what, name in models.items() if what in config.keep and not (folder / name).exists()]
        if lacks := lacks + list_lacking_arrays(dict.fromkeys(names), config.keep):
            lacking[locate_run_folder(config).name] = lacks
    if lacking:
        what = ", ".join(dict.fromkeys(each for lacks in lacking.values() for each in lacks))
        where = f"{len(lacking)}: {', '.join([*lacking][:3])}{' ...' * (len(lacking) > 3)}"
        say(f"keep: finished runs have not kept {what} ({where}); remove their folders to train them again")


def _choose_training(plan: Plan, train: Train | None, track: Sequence[str] | str) -> tuple[Train, bool]:
    """Choose the function that carries out a run, and say whether it is another one than `semcom.run`."""
    carry = train or find_own_train(plan.experiment) or semcom.run
    own = carry is not semcom.run
    if not track:
        return carry, own
    if own:
        raise ConfigError("track: the runs are trained by a function of their own, which tells no tracker")
    return partial(semcom.run, track=track), own


def _mark_training(plan: Plan, train: Train | None) -> Plan:
    """Note in the record whose code trains, and warn where it has changed."""
    code = digest_training(train, plan.record["plugins"]).get(TRAINING)
    own = bool(plan.experiment.train or (train and train is not semcom.run))
    if plan.held and plan.held.get("own_training", own) != own:
        whose = "semcom.run" if own else "a function of their own"
        raise ConfigError(f"train: runs in {plan.folder} were trained by {whose}; train all so, or name another out")
    if code and plan.held and plan.held.get("training_code", code) != code:
        say(f"train: its code has changed since runs in {plan.folder} were trained; what is done stays as it is")
    mark = {"own_training": own} | ({"training_code": code} if code else {})
    return replace(plan, record={**plan.record, **mark})


def _check_processes(left: Sequence[RunConfig], jobs: int | None, backend: str, own: bool) -> int | None:
    """Check that runs reach their processes, and that these fit; return the number of jobs, of loky no idle ones."""
    elsewhere = "backend" if backend == "ray" else "jobs" if (jobs or 1) > 1 else ""
    for config in left if elsewhere and not own else ():
        check_reaches_processes(elsewhere, config)
    if backend != "loky":
        return jobs
    # A process without a run would still import torch, and count against the memory.
    jobs = max(1, min(jobs or 1, len(left)))
    if jobs > 1:
        from semcom.runs.request.limits import check_process_limits  # imports torch

        check_process_limits("jobs", jobs)
    return jobs


def preview_sweep(
    plan: Plan, shard: Shard | None = None, jobs: int = 1, reuse: Sequence[Path | str] | Path | str = ()
) -> str:
    """Describe a sweep before it begins: its number of runs, what varies, and the time that finished runs took.

    Nothing is written, loaded or trained.

    Args:
        plan: the sweep.
        shard: the part of it that is counted (None: all of it).
        jobs: largest number of runs at a time.
        reuse: folders or archives of other studies, whose finished runs would be taken over.

    Raises:
        ConfigError: a study to reuse is none.
    """
    share = dict(plan.runs) if shard is None else shard.of(plan.runs)
    finished = {key for key, config in share.items() if has_outcome(config)}
    reused = find_reusable_runs(plan, reuse).keys() & share.keys()
    pending = share.keys() - finished - reused
    counts = {"finished": len(finished), "reusable": len(reused), "pending": len(pending)}
    part = f"shard {shard}: " if shard else ""
    lines = [f"{part}{len(share)} runs: " + ", ".join(f"{n} {state}" for state, n in counts.items())]
    lines.append(f"methods: {', '.join(dict.fromkeys(plan.variants.values()))}")
    for axis in plan.experiment.axes(plan.scale):
        if len(axis.values) > 1:
            lines.append(f"{','.join(axis.fields)}: {format_override_values(axis.entries())}")
    return "\n".join([*lines, *([_estimate_time(plan, pending, jobs)] if pending else [])])


def _estimate_time(plan: Plan, pending: Collection[str], jobs: int) -> str:
    """Estimate the time of pending runs by the mean of the finished ones, of the same variant where there are any."""
    took: dict[str, list[float]] = {}
    for key, config in plan.runs.items():
        took.setdefault(plan.variants[key], []).extend(_list_seconds(config))
    known = [seconds for each in took.values() for seconds in each]
    if not known:
        return "time: not known before a run of this folder has finished"
    total = sum(mean(took[plan.variants[key]] or known) for key in pending)
    wall = format_duration(total / min(jobs, len(pending)))
    return f"time: about {wall} with --jobs {jobs}; finished runs took {format_duration(mean(known))} on average"


def _list_seconds(config: RunConfig) -> list[float]:
    """Read the seconds that all sections of a run took; empty where it has not finished, or has not measured them."""
    found = read_summary(locate_run_folder(config)) if has_outcome(config) else None
    sections = [value for name, value in (found or {}).get("seconds", {}).items() if "/" not in name]
    return [sum(sections)] if sections else []


def _settle_record(plan: Plan, others: bool) -> None:
    """Write sweep.json where it does not say what is planned.

    Raises:
        ConfigError: the folder has become another sweep's, or shards of the sweep that it holds are running.
    """
    held = read_sweep_record(plan.folder)
    if held is not None and held not in (plan.held, plan.record):
        raise refuse_another_sweep(plan.folder, held)
    before = held or {}
    same = before.get("variants") == plan.variants
    if same and before.get("training_code") == plan.record.get("training_code"):
        return
    if others and not same:
        raise ConfigError(f"out: shards of fewer runs are running in {plan.folder}; wait for them")
    write_atomically(plan.folder / SWEEP, format_summary(plan.record))


def _make_row(plan: Plan, key: str, error: str | None) -> dict[str, Any]:
    """Build a run's row of the table; a summary that cannot be read is a failure too."""
    config = plan.runs[key]
    error = error or (None if has_outcome(config) else read_left_error(config))
    try:
        return plan.row(key, None if error else read_summary(locate_run_folder(config)), error)
    except RunError as damaged:
        return plan.row(key, None, str(damaged))


def _store_table(plan: Plan, errors: Mapping[str, str], own: bool) -> Path:
    """Write results.parquet and results.md and print the table; RunError if a run failed (`_print_failures`)."""
    frame = table.make_table([_make_row(plan, key, errors.get(key)) for key in plan.variants])
    path = table.write_table(frame, plan.folder / TABLE)
    if any(has_outcome(config) for config in plan.runs.values()):
        found = study(plan.folder)
        columns, rows = plan.experiment.columns(plan.scale), plan.experiment.rows(plan.scale)
        text = make_sheet(found, ("variant", *rows), columns).markdown()
        write_atomically(plan.folder / REPORT, text)
        say(text, end="")
    failed = frame[frame["status"] == "failed"].set_index("hash")["error"].to_dict()
    if failed:
        _print_failures(plan, failed, own)
        raise RunError(f"{len(failed)} of {len(frame)} runs failed: see {path}; the same command tries them again")
    return path


def _print_failures(plan: Plan, errors: Mapping[str, str], own: bool) -> None:
    """Print what is known of failed runs on stderr; those that were not started have been counted there before."""
    begun = {key: error for key, error in errors.items() if (plan.folder / key).is_dir()}
    found = [Failure(plan.labels[key], plan.folder / key, error, own) for key, error in begun.items()]
    if found:
        say(report_failures(found), stream=sys.stderr)
