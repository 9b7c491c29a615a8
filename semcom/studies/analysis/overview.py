"""The progress of a study and its results so far: the numbers behind `semcom show`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import pandas as pd

from semcom.config import NOT_IDENTITY, ChannelConfig, ConfigError, DataConfig, PartitionConfig, RunConfig
from semcom.data.registry import DATASETS
from semcom.escape import escape_texts
from semcom.files import CONFIG, resolve_file
from semcom.runs.folder.lock import LOCK
from semcom.runs.folder.stored import read_stored_config
from semcom.runs.request.plugins import list_loaded_plugins, locate_plugin
from semcom.runs.result.accuracy import compute_headlines
from semcom.studies.analysis.defaults import list_default_fields
from semcom.studies.analysis.study import Study, read_study
from semcom.studies.results.failures import (
    Failure,
    Repeat,
    build_repeat,
    find_varied_fields,
    format_run_label,
    format_run_labels,
    read_repeat,
)
from semcom.studies.results.lock import list_lock_holders, read_sweep_record
from semcom.studies.results.run import Stored, locate_run_config
from semcom.studies.results.table import list_table_fields

State = Literal["running", "stopped", "failed", "done", "pending"]
"""running: a process trains it; stopped: it was interrupted, and can go on; pending: it has not begun."""
STATES: tuple[State, ...] = ("done", "running", "stopped", "failed", "pending")
TRAFFIC = ("floats", "uses")
"""Traffic that is shown of a study."""


@dataclass(frozen=True)
class Course:
    """A run and how far it has come."""

    run: Stored
    """The run."""
    label: str
    """Its label among the runs."""
    state: State
    """Its state."""
    round: int
    """Rounds that it has done."""
    rounds: int | None
    """T: rounds that it will do; None where that is not known."""
    views: Mapping[str, Mapping[str, Any]]
    """View -> its numbers as in a summary (`compute_headlines`), from the evaluations so far."""

    @property
    def first(self) -> Mapping[str, Any]:
        """The numbers of the first view, whose headline is the run's; empty before the first evaluation."""
        return next(iter(self.views.values()), {})


@dataclass(frozen=True)
class Overview:
    """A study as it stands."""

    folder: Path
    """The folder that was asked for."""
    study: Study
    """Its runs."""
    command: str | None
    """The command of the sweep; None where the folder is not a sweep's."""
    workers: tuple[str, ...]
    """The processes that carry out the sweep, in words."""
    courses: tuple[Course, ...]
    """The runs, in the order of the study."""
    own: bool
    """Whether the sweep trains by a function of the experiment's own."""
    of_run: bool
    """Whether it is the folder of one run."""

    def counts(self) -> dict[State, int]:
        """Count the runs of each state."""
        found = Counter(course.state for course in self.courses)
        return {state: found[state] for state in STATES if found[state]}

    def has_ended(self) -> bool:
        """Check that no run and no worker is running."""
        return not self.workers and not any(course.state == "running" for course in self.courses)

    def varied(self) -> dict[str, list[Any]]:
        """List the values of each field that varies, the variants first."""
        known = [{"method": c.run.variant, **_read_keys(c.run, self.study)} for c in self.courses if c.run.fields]
        names = find_varied_fields(known)
        return {name: list(dict.fromkeys(keys[name] for keys in known)) for name in names}

    def failures(self) -> list[Failure]:
        """List the failed runs."""
        failed = [course for course in self.courses if course.state == "failed"]
        return [
            Failure(c.label, c.run.folder, c.run.error or "", self.own, locate_run_config(self.folder, c.run))
            for c in failed
        ]

    def repeat(self) -> Repeat | None:
        """Build the command that repeats the folder's run, or the whole sweep if it has a training function of its own.

        A finished run is repeated in another folder, an unfinished run goes on in its own. None without a stored
        configuration.
        """
        (run,) = (course.run for course in self.courses)
        if self.own or not (run.folder / CONFIG).is_file():
            return read_repeat(self.command)
        goes_on = self.folder.is_dir() and run.status != "done"
        out = None if goes_on else f"repeated/{run.hash}"
        return build_repeat(locate_run_config(self.folder, run), run.folder, out)

    def warnings(self) -> dict[str, int]:
        """Count the runs that gave each warning."""
        return dict(Counter(text for course in self.courses for text in course.run.warnings()))

    def air(self) -> pd.DataFrame:
        """Average received SNR in dB and traffic per participating client and round over the seeds of each point.

        A row per variant at a value of each axis; NaN for numbers that were not sent or not measured. A number that no
        point has, such as the SNR of runs without a radio, is left out.
        """
        done = [run for run in self.study.stored if run.summary]
        names = [
            format_run_label(run.variant, {axis: run.fields.get(axis) for axis in self.study.axes}) for run in done
        ]
        frame = pd.DataFrame(map(_read_air, done), names, dtype=float)
        return frame.groupby(level=0, sort=False).mean().dropna(axis=1, how="all")


def read_overview(folder: Path | str) -> Overview:
    """Read the progress of the runs of a folder: of a run, of a sweep, or of a folder that holds folders of runs.

    Raises:
        ConfigError: there is no run in it, or the same run twice.
    """
    folder = resolve_file(folder)
    study = read_study(folder)
    place = study.stored[0].folder
    of_run = (folder / CONFIG).is_file() or folder.name == place.name
    sweep, running = _read_sweep_record(place.parent), tuple(list_lock_holders(place.parent))
    named = format_run_labels({run.hash: (run.variant, _read_keys(run, study)) for run in study.stored})
    courses = tuple(_read_progress(run, named[run.hash], bool(running)) for run in study.stored)
    own = bool(sweep.get("own_training"))
    return Overview(folder, study, sweep.get("command"), running, courses, own, of_run)


def _read_keys(run: Stored, study: Study) -> dict[str, Any]:
    return {name: run.fields.get(name) for name in (*study.axes, "seed")}


def _read_sweep_record(folder: Path) -> Mapping[str, Any]:
    """Read sweep.json; empty for a folder of no sweep."""
    try:
        return escape_texts(read_sweep_record(folder) or {})
    except ConfigError:
        return {}


def _read_progress(run: Stored, name: str, swept: bool) -> Course:
    """Read the progress of a run. In a running sweep, a run without a lock trains by a function that takes none."""
    lines = run.lines()
    state: State = "stopped"
    if run.status != "unfinished":
        state = run.status
    elif run.is_running() or (swept and not (run.folder / LOCK).exists()):
        state = "running"
    rounds = run.fields.get("train.rounds")
    done = (run.summary or {}).get("rounds", lines[-1]["round"] if lines else 0)
    views = compute_headlines(lines, run.metrics[0]) if run.summary is None else run.summary.get("views", {})
    return Course(run, name, state, done, None if rounds is None else int(rounds), views)


def _read_air(run: Stored) -> dict[str, float | None]:
    """Read the measured SNRs of a run in dB, that of tests at the first test SNR, and its traffic."""
    summary, snr = run.summary or {}, run.snr_received_db
    found = {f"SNR {name.removeprefix('train_')}": snr.get(name) for name in ("train_up", "train_down", "test")}
    traffic = summary.get("traffic", {})
    return found | {f"{name} {way}": traffic.get(way, {}).get(name) for name in TRAFFIC for way in ("up", "down")}


def list_changed_settings(run: Stored) -> dict[str, Any]:
    """List the fields, with values, in which a run differs from the default run of its method.

    What the data, the partition and the link are called is among them where it is not the default; their options are
    compared with the defaults of these. Where these cannot be had, all are, as of a plug-in: to look executes none.
    """
    plain = list_table_fields(RunConfig())
    try:
        config = read_stored_config(run.folder, "show")
        usual = list_default_fields(_make_default_run(config))
    except ConfigError:
        usual = plain
    kinds = ("data.name", "partition.kind", "channel.kind", "plugins", "finish.kind")
    usual |= {name: plain.get(name) for name in kinds}
    left_out = {"method", *NOT_IDENTITY}
    return {n: value for n, value in run.fields.items() if n not in left_out and value != usual.get(n)}


def _make_default_run(config: RunConfig) -> RunConfig:
    """Build the default run with the method, the data, the partition and the link of another run.

    A dataset with the same defaults replaces a path, whose present content would be digested.
    """
    loaded = set(list_loaded_plugins())
    return replace(
        RunConfig(config.method, plugins=tuple(p for p in config.plugins if locate_plugin(p) in loaded), device="cpu"),
        data=DataConfig(name=config.data.name if config.data.name in DATASETS else "cifar10"),
        partition=PartitionConfig(kind=config.partition.kind),
        channel=ChannelConfig(kind=config.channel.kind),
        finish=replace(RunConfig().finish, kind=config.finish.kind),
    )
