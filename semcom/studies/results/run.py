"""The runs of a study as they lie in their folders: finished, running, failed, and pending ones."""

from __future__ import annotations

import functools
import logging
import math
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import pandas as pd

from semcom.config import LATER, ConfigError, Resolved, RunConfig, RunError, Schedule, list_earlier_hashes, run_hash
from semcom.config.identity import flatten_table
from semcom.escape import escape_texts
from semcom.files import ARRAYS, CONFIG, ERROR, METRICS, SWEEP, TABLE
from semcom.runs.folder.arrays import Arrays, read_arrays
from semcom.runs.folder.folder import SHOWN
from semcom.runs.folder.lines import DamagedRun, check_metrics, read_metrics
from semcom.runs.folder.lock import LOCK, is_lock_held
from semcom.runs.folder.schema import find_lines_fault
from semcom.runs.folder.stored import locate_training, read_stored_config
from semcom.runs.folder.summary import read_summary
from semcom.runs.request.section_options import OWNERS
from semcom.studies.grid import TEST, TEST_SNR
from semcom.studies.results.lock import OWNER, parse_sweep_record
from semcom.studies.results.outcome import read_first_line
from semcom.studies.results.table import (
    is_empty,
    list_configuration_columns,
    list_table_fields,
    read_table,
)
from semcom.tasks.metric import Metric, map_metric_curves, name_metric_curve, read_task_metrics
from semcom.tasks.registry import list_metrics

LOG = logging.getLogger(__name__)
RATIO = "model.bandwidth_ratio"
"""Field that asks for a number of features; a resolved run has these in its place."""
_FORMER_OPTION = re.compile(r"\bmethod\.(?=[a-z])")
"""How warnings of older versions begin the name of a hyperparameter."""
STATE = ("status", "error", "variant")
"""Columns of a sweep's table that say more of a run than its folder."""
Status = Literal["done", "unfinished", "failed", "pending"]
"""done: it has left its summary; unfinished: it is running or was interrupted; pending: it has no folder yet."""


@dataclass(frozen=True)
class Stored:
    """One run of a study, as a whole or at one of the SNRs that it was tested at.

    Attributes:
        hash: of its configuration.
        folder: where it lies, or will.
        status: how far it has come.
        error: one line for a failed run, None for any other.
        variant: its name in the study; the method's where the study gives it no other.
        fields: its configuration by dotted names on the command line; empty where that is not known yet.
        participants: clients that take part in a round; None where that is not known.
        summary: as in summary.json; None for a run that is not done.
        test_snr_db: the SNR of the test in dB that it is looked at; None for the run as a whole, and where there is no
            one SNR, as without noise or where it differs between clients.
        damaged: whether it counts as failed because one of its files has changed since it was written.
    """

    hash: str
    folder: Path
    status: Status
    error: str | None
    variant: str
    fields: Mapping[str, Any]
    participants: int | None
    summary: Mapping[str, Any] | None
    test_snr_db: float | None = None
    damaged: bool = False

    @property
    def trained(self) -> Path:
        """The folder of its training: its own one, or one inside that."""
        return locate_training(self.folder)

    def lines(self) -> list[dict[str, Any]]:
        """Read the lines of metrics.jsonl so far; that of a last stage, whose round is T + 1, comes last.

        Raises:
            DamagedRun: they have changed since the run wrote them; only for versions that stored no digest.
        """
        if self.damaged:
            return []
        found, summary = read_metrics(self.trained), self.summary or {}
        old = "rounds" in summary and found and "metrics_digest" not in summary
        if old and (fault := find_lines_fault(found, summary)) is not None:
            raise DamagedRun(self.trained / METRICS, fault)
        return [*escape_texts(found), *([summary["finish"]] if "finish" in summary else [])]

    @functools.cached_property
    def accuracies(self) -> list[dict[str, Any]]:
        """Its lines with no more than the round and the accuracy of each view, read once: the lines are much larger."""
        found = []
        for line in self.lines():
            views = {name: {"accuracy": each["accuracy"]} for name, each in line.get("views", {}).items()}
            found.append({"round": line["round"], "views": views})
        return found

    @functools.cached_property
    def flat(self) -> dict[str, Any]:
        """Its summary by dotted names, and the name of its headline view; empty for a run that is not done."""
        return {**flatten_table(self.summary or {}), "view": self.headline}

    def is_running(self) -> bool:
        """Check whether a process trains it just now."""
        return is_lock_held(self.folder / LOCK)

    def warnings(self) -> list[str]:
        """List what it has warned of so far, each with its round."""
        if self.summary is not None:
            return list(self.summary.get("warnings", []))
        return [f"round {line['round']}: {text}" for line in self.lines() for text in line.get("warnings", {}).values()]

    def arrays(self) -> Arrays:
        """Read the arrays that the run kept on request; empty without any.

        Raises:
            RunError: the file is damaged, or of another run.
        """
        return read_arrays(self.trained / ARRAYS, self.hash)

    @property
    def metrics(self) -> tuple[Metric, ...]:
        """The metrics of its task, the headline's first; of one that is not done, those of a task that is known."""
        if self.summary is not None:
            return read_task_metrics(self.summary)
        beside = str(self.fields.get("train.metrics") or "")
        return list_metrics(str(self.fields.get("task", "classification")), filter(None, beside.split(",")))

    @property
    def headline(self) -> str | None:
        """Name of its headline view, the first one; None where it has none, as a run that is not done."""
        return next(iter((self.summary or {}).get("views", {})), None)

    def view(self, name: str | None = None) -> Mapping[str, Any] | None:
        """Look up the numbers of a view (None: the first one, the headline); None where it has no such.

        At a test SNR other than the first one these are those that are known there.
        """
        views = (self.summary or {}).get("views", {})
        found = views.get(self.headline if name is None else name)
        if found is None:
            return None
        snr = None if self.test_snr_db is None else f"{self.test_snr_db:g}"
        curves = map_metric_curves(found)
        there = {key: found[curve][snr] for curve, key in curves.items() if snr in found[curve]}
        whole = {key: value for key, value in found.items() if key not in curves}
        return {**whole, **there} if self.is_first_test else there

    def knows(self, metric: str) -> bool:
        """Check whether a number may be known at its test SNR: all are at the first one, and few at the others."""
        views = (self.summary or {}).get("views", {}).values()
        return self.is_first_test or any(name_metric_curve(metric) in numbers for numbers in views)

    @property
    def snr_received_db(self) -> dict[str, Any]:
        """The received SNRs in dB by direction, that of tests at the first test SNR; None where it is not known.

        Earlier versions had one number over all tests, which is none of them.
        """
        found = dict((self.summary or {}).get("snr_received_db", {}))
        return found if len(self.test_snrs) < 2 or "test_at" in found else {**found, "test": None}

    def field(self, name: str) -> Any:
        """Look up a field of its configuration, or its hash, variant, status or test SNR; None where it has none."""
        own = {"hash": self.hash, "variant": self.variant, "status": self.status, TEST: self.test_snr_db}
        return own.get(name, self.fields.get(name))

    def with_ratio(self) -> Stored:
        """Copy the run with its ratio k/n among the fields, to three digits; None if it is not known."""
        ratio = (self.summary or {}).get("bandwidth_ratio")
        return replace(self, fields={**self.fields, RATIO: None if ratio is None else float(f"{ratio:.3g}")})

    @property
    def test_snrs(self) -> list[float]:
        """The SNRs in dB that it was tested at, the one of all its numbers first; empty where there is no list."""
        given = self.fields.get(TEST_SNR)
        return [] if given is None else [float(snr) for snr in str(given).split(",")]

    @property
    def is_first_test(self) -> bool:
        """Check whether all numbers of the run are known at this test SNR, as they are at the first one."""
        return self.test_snr_db is None or self.test_snr_db in (self.test_snrs or [self.test_snr_db])[:1]

    def at_tests(self) -> tuple[Stored, ...]:
        """Split a run by the SNRs that it was tested at; without a list of them it was tested at that of its training.

        What is one of them already stays as it is.
        """
        if self.test_snr_db is not None:
            return (self,)
        noisy = (self.summary or {}).get("snr_received_db", {}).get("test", math.nan) is not None
        trained = self.fields.get("channel.snr_db")
        try:
            one = float(trained) if noisy and trained is not None else None
        except ValueError:  # several values, or a range
            one = None
        return tuple(replace(self, test_snr_db=snr) for snr in self.test_snrs or (one,))


def locate_run_config(study: Path, run: Stored) -> Path:
    """Name the configuration of a run as `semcom train --config` takes it.

    Args:
        study: the folder or the archive of the study, or ARCHIVE.zip/RUN.
        run: one of its runs.
    """
    if study.is_file():
        return study / run.folder.name
    return study if study.parent.is_file() else run.folder / CONFIG


def read_stored_runs(folder: Path) -> tuple[list[Stored], dict[str, Any]]:
    """Read the runs of a study, each once, and the content of its sweep.json; empty without it.

    Those of a sweep are the runs that its sweep.json lists; which others lie in its folder is added as `unlisted`.

    Args:
        folder: of a run, of a sweep (finished or not), or one that holds folders of runs.

    Raises:
        ConfigError: there is no run in it, or the same run twice.
    """
    if (folder / CONFIG).is_file():
        return [_read_folder(folder, {}, {}, lambda place, row: _build_pending(place, {}, row), {})], {}
    if not folder.is_dir():
        raise ConfigError(f"study: {folder} is no folder; give that of a run or of a sweep, or one that holds runs")
    record, table = escape_texts(_read_sweep_record(folder)), _read_sweep_table(folder)
    listed = _list_rows(table, STATE)
    variants = read_variants(record)
    if any(folder.glob(f"{OWNER}*")):  # a sweep is running, and tries again what the table says has failed
        listed = {key: {**row, "error": None} for key, row in listed.items()}
    inside = sorted(path.parent for path in folder.glob(f"*/{CONFIG}"))
    if variants:
        listed = {key: row for key, row in listed.items() if key in variants}
        record["unlisted"] = [path.name for path in inside if path.name not in variants]
        inside = [path for path in inside if path.name in variants]
    whole = functools.cache(lambda: _list_rows(table, (*list_configuration_columns(table), *STATE)))

    def build(place: Path, row: Mapping[str, Any]) -> Stored:
        """Build a run whose configuration is in the table alone, which is read for such runs only."""
        return _build_pending(place, variants, {**whole().get(place.name, {}), **row})

    seen: dict[Any, Any] = {}
    # Folders are named by hashes, the order of which has no meaning.
    found = sorted((_read_folder(path, variants, listed, build, seen) for path in inside), key=lambda run: run.variant)
    named = {run.hash: run for run in found}
    if len(named) < len(found):
        twice = next(run for run in found if named[run.hash] is not run)
        raise ConfigError(f"study: {twice.folder} and {named[twice.hash].folder} hold the same run; move one away")
    # The sweep's order, in which its declaration has the variants; folders that it does not know come last.
    order = dict.fromkeys([*listed, *variants, *named])
    runs = [named.get(key) or build(folder / key, listed.get(key, {})) for key in order]
    if not runs:
        raise ConfigError(f"study: {folder} holds neither a run nor folders of runs; is it the right folder?")
    return _fill_later_options(runs), record


def list_damaged_runs(runs: Sequence[Stored], record: Mapping[str, Any]) -> list[str]:
    """Say in lines which runs of a study are damaged, and which others lie in its folder.

    Args:
        runs: of the study.
        record: the content of sweep.json, with the `unlisted` runs, see `read_stored_runs`.
    """
    damaged = [str(run.error) for run in runs if run.damaged]
    lines = [*damaged[:SHOWN], *([f"{len(damaged) - SHOWN} more runs are damaged"] if len(damaged) > SHOWN else [])]
    if names := record.get("unlisted"):
        shown = ", ".join(names[:SHOWN]) + (", ..." if len(names) > SHOWN else "")
        lines.append(f"runs that {SWEEP} does not list, as of an earlier plug-in, are left out: {shown}")
    return lines


def describe_missing_runs(runs: Sequence[Stored]) -> str:
    """Describe how many runs, by state, are missing from means; empty if all or none are."""
    counts = Counter(run.status for run in runs if run.status != "done")
    states = ", ".join(f"{count} {status}" for status, count in counts.items())
    return f"means are without {counts.total()} of {len(runs)} runs: {states}" if 0 < counts.total() < len(runs) else ""


def _fill_later_options(runs: list[Stored]) -> list[Stored]:
    """Make runs of several versions alike: with the options that only the newer of them have written down.

    An option belongs to a method or to a kind of link. Whether that takes it is read off the other runs: to ask it
    would be to import it.
    """
    for name, before in LATER.items():
        column = name.replace(".options.", ".")
        section = column.partition(".")[0]
        owner = next(iter(OWNERS.get(section, OWNERS["hyper"])))
        takers = {run.fields.get(owner) for run in runs if column in run.fields}
        runs = [
            replace(run, fields={**run.fields, column: ",".join(before) if isinstance(before, tuple) else before})
            if column not in run.fields and run.fields.get(owner) in takers
            else run
            for run in runs
        ]
    return runs


def read_variants(record: Mapping[str, Any]) -> dict[str, str]:
    """Look up the variant of each run of a sweep by its hash in sweep.json; none where it does not say."""
    variants = record.get("variants")
    return {str(key): str(name) for key, name in variants.items()} if isinstance(variants, dict) else {}


def _read_sweep_record(folder: Path) -> dict[str, Any]:
    """Read sweep.json; empty without it. Raises ConfigError if it cannot be read."""
    try:
        return parse_sweep_record(folder / SWEEP)
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        remedy = "move it away, and the study is read without it"
        raise ConfigError(f"study: {folder / SWEEP} cannot be read ({error}); {remedy}") from None


def _read_sweep_table(folder: Path) -> pd.DataFrame:
    """Read the table that a sweep has left; empty where it has left none yet, or a damaged one."""
    try:
        return read_table(folder) if (folder / TABLE).exists() else pd.DataFrame({"hash": []})
    except ConfigError as error:
        LOG.warning("%s; it is left out", error)
        return pd.DataFrame({"hash": []})


def _list_rows(frame: pd.DataFrame, names: Sequence[str]) -> dict[str, dict[str, Any]]:
    """List some columns of the rows of a sweep's table by their hash, without empty cells."""
    rows = frame[list(dict.fromkeys(name for name in (*names, "hash") if name in frame))].to_dict("records")
    found = {row["hash"]: {name: value for name, value in row.items() if not is_empty(value)} for row in rows}
    return escape_texts(found)


def _read_folder(
    folder: Path,
    variants: Mapping[str, str],
    listed: Mapping[str, Mapping[str, Any]],
    build: Callable[[Path, Mapping[str, Any]], Stored],
    seen: dict[Any, Any],
) -> Stored:
    """Read the run whose config.json lies in a folder."""
    try:
        config = read_stored_config(folder, "study", seen)
    except ConfigError as error:
        if folder.name not in variants:
            raise
        damage = DamagedRun(folder / CONFIG, str(error))
        return replace(build(folder, listed.get(folder.name, {})), **_describe_damage(damage))
    if config.train.rounds is None or config.train.participation is None:
        raise ConfigError(f"study: {folder / CONFIG} is a request, and not of a run: it leaves train.rounds open")
    key = run_hash(config)
    if folder.name != key and folder.name in list_earlier_hashes(config):
        key = folder.name
        LOG.info("%s: of a version in which a value of its configuration meant something else", folder)
    wrong = folder.name in variants and folder.name != key
    found = _describe_damage(DamagedRun(folder / CONFIG, f"it is of run {key}")) if wrong else None
    key = folder.name if wrong else key
    row = listed.get(key, {})
    name = variants.get(key) or row.get("variant") or config.method
    found, fields = found or _read_status(folder, key, row), escape_texts(list_table_fields(config))
    return Stored(
        key, folder, variant=escape_texts(name), fields=fields, participants=_count_participants(config), **found
    )


def _build_pending(folder: Path, variants: Mapping[str, str], row: Mapping[str, Any]) -> Stored:
    """Build a run without config.json: a pending run, or a run with its configuration in the sweep's table.

    A training function of an experiment may write only a summary.
    """
    known = {name: value for name, value in row.items() if name not in ("status", "error", "hash", "variant")}
    found = _read_status(folder, folder.name, row)
    name = variants.get(folder.name) or row.get("variant") or row["method"]
    return Stored(folder.name, folder, variant=name, fields=known, participants=None, **found)


def _describe_damage(damage: Exception) -> dict[str, Any]:
    return {"status": "failed", "error": str(damage), "summary": None, "damaged": True}


def _read_status(folder: Path, key: str, row: Mapping[str, Any]) -> dict[str, Any]:
    """Read status, error and summary of a run; a sweep may know of a failure that left nothing in the folder."""
    found: dict[str, Any] = {"status": "unfinished" if folder.is_dir() else "pending", "error": None, "summary": None}
    try:
        summary = read_summary(folder, key)
        if summary is None:
            check_metrics(folder, None)
    except RunError as damage:
        return _describe_damage(damage)
    if summary is not None:
        summary = escape_texts(summary)
        # Warnings of older versions advise options by former names, which nobody could set now.
        summary["warnings"] = [_FORMER_OPTION.sub("hyper.", text) for text in summary.get("warnings", [])]
        return {**found, "status": "done", "summary": summary}
    # A sweep removes the errors of runs that it tries again.
    if error := read_first_line(folder / ERROR) or row.get("error"):
        return {**found, "status": "failed", "error": escape_texts(error)}
    return found


def _count_participants(config: RunConfig) -> int:
    """Count the clients that take part in a round of a stored configuration, which has no open fields."""
    schedule = Schedule(**vars(config.train))
    return Resolved(**{**vars(config), "train": schedule}).participants
