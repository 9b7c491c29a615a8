"""A study: the runs of a folder, their tables, and the statements that these support.

docs/studies.md shows each of them and explains its numbers.
"""

from __future__ import annotations

import html
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import combinations
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pandas as pd

from semcom.config import ConfigError
from semcom.files import resolve_file
from semcom.runs.result.accuracy import LAST
from semcom.studies.analysis import curves, efficiency, ranking
from semcom.studies.analysis.compare import (
    Cells,
    Views,
    check_views,
    choose_view,
    compare_pairs,
    group_runs_to_compare,
    read_compared_value,
)
from semcom.studies.analysis.comparison import Comparison, Comparisons
from semcom.studies.analysis.frames import TABLES
from semcom.studies.analysis.means import compute_means, cut_intervals
from semcom.studies.analysis.selection import find_axes, order_runs, parse_selection_field, select_runs, tabulate_keys
from semcom.studies.grid import TEST, TEST_SNR
from semcom.studies.names import Labels, is_in_joule
from semcom.studies.results.archive import open_archive
from semcom.studies.results.run import RATIO, Stored, describe_missing_runs, list_damaged_runs, read_stored_runs
from semcom.studies.results.table import list_configuration_columns, make_table
from semcom.tasks.metric import ACCURACY, SHORT, Metric

T = TypeVar("T")
LOG = logging.getLogger(__name__)


def study(folder: Path | str) -> Study:
    """Read the study of a folder: finished runs with all their numbers, and others with how far they have come.

    Lines tell which runs are damaged and which are no part of it; with the first mean or comparison another one tells
    how many runs it is without.

    Args:
        folder: of a sweep, which may still be running, of one run, or one that holds folders of runs; or the archive
            that `pack` has made of one, or ARCHIVE/HASH for one run of it.

    Raises:
        ConfigError: there is no run in it, or the same run twice; or a file that is no archive.

    Example:
        >>> import semcom
        >>> table = semcom.sweep(
        ...     methods=("local", "fedavg"), seeds=(0, 1), set={"clients": 2, "train.rounds": 1}, out="results/two"
        ... )
        Accuracy ...
        >>> found = semcom.study("results/two")
        >>> found.variants, len(found.runs)
        (['local', 'fedavg'], 4)
    """
    found = read_study(folder)
    for line in list_damaged_runs(found.stored, found.record):
        LOG.warning("%s: %s", folder, line)
    return found


def read_study(folder: Path | str) -> Study:
    """Read a study as `study` does, without a word on runs that are damaged or no part of it."""
    found, record = read_stored_runs(open_archive(resolve_file(folder)))
    return Study(found, find_axes(found, record), record)


class Study:
    """The runs of a study, as tidy tables and as answers.

    Every table (`runs`, `results`, `rounds`, `clients`, `classes`, `confusion`, `traffic`) begins with the columns
    hash, method, variant, seed and the axes. Accuracies are fractions of 1; of another task, the columns and numbers
    that are called accuracy here are those of its headline (`metric`), such as psnr. A table is made when it is first
    asked for.

    Where runs were tested at several SNRs, `test_snr_db` is an axis like any other. `results` has a row for each of
    its values; what is known at a run's first test SNR only (`rounds`, `clients`, `classes`, `confusion`) has that one.

    Args:
        found: the runs.
        axes: fields that vary, by their dotted names on the command line.
        record: the content of sweep.json: experiment, scale, command and more (None: there is none).
    """

    def __init__(self, found: Sequence[Stored], axes: Sequence[str], record: Mapping[str, Any] | None = None) -> None:
        self.axes, self.record = tuple(axes), {"told": [], **(record or {})}
        self.tests = order_runs([test for run in found for test in run.at_tests()], self.axes)
        self.stored = tuple({test.hash: replace(test, test_snr_db=None) for test in self.tests}.values())

    def _table(self, name: str) -> pd.DataFrame:
        rows, columns = TABLES[name]
        columns = tuple(self.find_metric(column) for column in columns)
        of_run = name in ("runs", "traffic")
        tests = self.stored if of_run else [run for run in self.tests if name == "results" or run.is_first_test]
        front = tabulate_keys(tests, [axis for axis in self.axes if axis != TEST or not of_run])
        found = make_table(list(rows(tests)), ("hash", *columns))
        found = found.astype({TEST: float}) if TEST in found else found
        by = ["hash", TEST] if name == "results" and TEST in front else ["hash"]
        return front.merge(found[[*by, *(name for name in found if name not in front)]], on=by)

    @cached_property
    def metric(self) -> Metric:
        """The metric that the runs report of themselves, such as accuracy. Raises ConfigError for runs of two tasks."""
        found = {run.metrics[0]: run.folder.name for run in self._known_runs}
        if len(found) > 1:
            names = " and ".join(f"{metric.label} (run {name})" for metric, name in found.items())
            raise ConfigError(
                f"task: runs of several tasks, judged by {names}, have no number in common; give one --at"
            )
        return next(iter(found), ACCURACY)

    @cached_property
    def labels(self) -> Labels:
        """The names that its runs give to their methods and numbers; a method with several has them all."""
        methods: dict[str, dict[str, None]] = {}
        for run in self.stored:
            if run.summary and "label" in run.summary:
                method = str(run.summary["method"])
                for name in {method, run.variant if run.variant.startswith(f"{method} ") else method}:
                    methods.setdefault(name, {})[run.summary["label"]] = None
        metrics = dict.fromkeys(metric for run in self._known_runs for metric in run.metrics)
        return Labels({name: " / ".join(labels) for name, labels in methods.items()}, tuple(metrics))

    @property
    def _known_runs(self) -> list[Stored]:
        """The runs of which the task is known: finished ones, or else all that have a configuration."""
        return [run for run in self.stored if run.summary] or [run for run in self.stored if run.fields]

    def find_metric(self, name: str) -> str:
        """Find the name of a number: of another task than classification, its own for accuracy, worst10 and such.

        Raises ConfigError for one by which several tasks of the runs mean different numbers.
        """
        long = {short: full for full, short in SHORT.items()}.get(name, name)
        alike = {"accuracy", "accuracy_std", *SHORT} - {metric.name for metric in self.labels.metrics}
        if self.metric != ACCURACY and long in alike and name not in {metric.name for metric in self.labels.metrics}:
            long = self.metric.name if long == "accuracy" else self.metric.key(long.removeprefix("accuracy_"))
        return self.labels.metric(SHORT.get(long, long)).name

    def __repr__(self) -> str:
        counts = self.runs["status"].value_counts()
        done = ", ".join(f"{n} {status}" for status, n in counts.items())
        varied = f"; varied: {', '.join(self.axes)}" if self.axes else ""
        return f"Study of {len(self.stored)} runs ({done}) of {', '.join(self.variants)}{varied}"

    def _repr_html_(self) -> str:
        """Show the study in a notebook: its description and its means over seeds."""
        done = any(run.status == "done" for run in self.stored)
        return f"<p>{html.escape(repr(self))}</p>{self.mean().to_html(index=False) if done else ''}"

    # -- tables ------------------------------------------------------------------------------------------------------

    @cached_property
    def runs(self) -> pd.DataFrame:
        """A row per run, done or not: status, error, folder, view (the headline), accuracy, configuration, summary."""
        return self._table("runs")

    @cached_property
    def results(self) -> pd.DataFrame:
        """A row per finished run, view and test SNR: accuracy, accuracy_std, worst10, jain, best, last ..."""
        return self._table("results")

    @cached_property
    def rounds(self) -> pd.DataFrame:
        """A row per run, round and view, of unfinished runs too: loss, accuracy ...; no view where none was tested."""
        return self._table("rounds")

    @cached_property
    def clients(self) -> pd.DataFrame:
        """A row per finished run, view and tested client: accuracy; with kept matrices, its images by class."""
        return self._table("clients")

    @cached_property
    def classes(self) -> pd.DataFrame:
        """A row per finished run, view and class: accuracy over all clients."""
        return self._table("classes")

    @cached_property
    def confusion(self) -> pd.DataFrame:
        """A row per run that kept it, view, true and predicted class: test images. Raises ConfigError if none did."""
        return self._table("confusion")

    @cached_property
    def traffic(self) -> pd.DataFrame:
        """A row per finished run and direction: traffic per participating client and round, and the run's totals."""
        return self._table("traffic")

    def of_runs(self, rows: Sequence[Mapping[str, Any]]) -> pd.DataFrame:
        """Tabulate rows that name their runs by `hash`, each with the run's variant and configuration.

        A column that a row has itself keeps its value. Raises ConfigError where there is no row.
        """
        if not rows:
            raise ConfigError("results: none of these runs has the numbers of this figure")
        found = pd.DataFrame(rows)
        names = ("variant", *list_configuration_columns(self.runs))
        return found.merge(self.runs[["hash", *dict.fromkeys(n for n in names if n not in found)]], on="hash")

    # -- selection ---------------------------------------------------------------------------------------------------

    @property
    def variants(self) -> list[str]:
        """The names of the variants, in their order."""
        return list(dict.fromkeys(run.variant for run in self.stored))

    def where(self, at: Mapping[str, Any]) -> Study:
        """Select the part of a study in which fields have given values.

        Args:
            at: dotted field, or method, variant, seed, status or test_snr_db -> its value, or a list of values.

        Raises:
            ConfigError: there is no such field, or no run with such a value.
        """
        return Study(select_runs(self.tests, at, self.axes), self.axes, self.record)

    def named(self, asked: str, names: Sequence[str]) -> tuple[str, ...]:
        """Spell names of fields as columns do, such as hyper.scg_lr for hyper.scg-lr.

        Args:
            asked: the argument that names them, for errors.
            names: method, variant, seed, test_snr_db, or any field of a configuration, be it an axis or not.

        Raises:
            ConfigError: there is no such field.
        """
        fields = tuple(map(parse_selection_field, names))
        known = {"method", "variant", "seed", TEST}.union(*(run.fields for run in self.stored))
        for name in fields:
            if name not in known:
                there = ", ".join(("method", "variant", "seed", *self.axes))
                raise ConfigError(f"{asked}: {name!r} is no field of the study; give one, such as {there}")
        return fields

    def along(self, fields: Sequence[str]) -> Study:
        """Copy the study with further fields among its axes, such as a field with the same value in all runs.

        `model.bandwidth_ratio`, which a request may leave open, is that of the run.
        """
        known = ("hash", "method", "variant", "seed", *self.axes)
        further = dict.fromkeys(name for name in fields if name not in known)
        tests = [run.with_ratio() for run in self.tests] if RATIO in further else self.tests
        return Study(tests, (*self.axes, *further), self.record)

    # -- statistics --------------------------------------------------------------------------------------------------

    def compare(self, first: str, second: str, *, view: Views = None, metric: str = "accuracy") -> Comparison:
        """Compute the difference of two variants, first minus second, with its 95 % interval; see docs/studies.md.

        Args:
            first: a variant.
            second: another one.
            view: name of a view (None: the headline of each run); or variant -> view, where those that are not named
                have their headline.
            metric: number of a view, such as accuracy, worst10 or last; without a view, also one of the run, such as
                clusters.knn_purity or seconds.train.

        Raises:
            ConfigError: no such variant, view or metric, no seed that both have finished, or several points.
        """
        found = self.compare_all([first, second], view=view, metric=metric)
        if len(found) > 1:
            fields = [n for n in self.axes if len({str(each.point[n]) for each in found}) > 1]
            raise ConfigError(f"at: {len(found)} points differ in {', '.join(fields)}; give one, or use compare_all")
        return found[0]

    def compare_all(
        self, variants: Sequence[str] | None = None, *, view: Views = None, metric: str = "accuracy"
    ) -> Comparisons:
        """Compute the differences of all pairs of variants (None: of all) at all points, with Holm's correction.

        Args and errors are those of `compare`; there may be several points.
        """
        metric = self.find_metric(metric)
        names = self._known(self.variants if variants is None else variants)
        check_views(view, names)
        found = compare_pairs(self._cells(metric), self.axes, list(combinations(names, 2)), view, metric, self.labels)
        return self._tell_missing_runs(found)

    def gains(self, over: str, *, view: Views = None, metric: str = "accuracy") -> Comparisons:
        """Compute the difference of each other variant to `over` at all points, with Holm's correction over all.

        Args:
            over: the variant that is subtracted.
            view: as of `compare`.
            metric: as of `compare`.

        Raises:
            ConfigError: as `compare_all`.
        """
        metric = self.find_metric(metric)
        first, *others = self._known([over, *(name for name in self.variants if name != over)])
        check_views(view, [first, *others])
        found = compare_pairs(
            self._cells(metric), self.axes, [(other, first) for other in others], view, metric, self.labels
        )
        return self._tell_missing_runs(found)

    def mean(self, by: Sequence[str] | None = None, *, view: Views = None, metric: str = "accuracy") -> pd.DataFrame:
        """Average over seeds with 95 % t-intervals, see `means.compute_means`: mean, low, high, n, interval.

        Intervals of percentages are cut at 0 and 1.

        Args:
            by: columns that tell apart what is not averaged (None: variant and the axes).
            view: as of `compare`.
            metric: as of `compare`.

        Raises:
            ConfigError: as `compare`, no such column, or runs that differ in another field would be averaged.
        """
        metric = self.find_metric(metric)
        columns = ["variant", *self.axes] if by is None else list(by)
        frame = self._tabulate_values(view, metric)
        missing = [name for name in columns if name not in frame]
        if missing:
            raise ConfigError(f"by: {missing[0]!r} is no column of the study; there are {', '.join(frame)}")
        found = cut_intervals(compute_means(frame, columns, "value"), self.labels.metric(metric))
        return self._tell_missing_runs(found)

    def deviate(self, by: Sequence[str], *, view: Views = None, metric: str = "accuracy") -> pd.Series:
        """Compute the standard deviation over seeds of each row of `mean`, whose arguments and errors it has."""
        frame = self._tabulate_values(view, self.find_metric(metric))
        return frame.groupby(list(by), sort=False, dropna=False)["value"].std().reset_index(drop=True)

    def rank(self, *, view: Views = None, metric: str = "accuracy") -> pd.DataFrame:
        """Order the variants at each point, and find which may be called best and second: `rank_variants`.

        Args and errors are those of `compare`; there may be several points. Nothing is called so by numbers of which it
        is not known that more is better, and the largest comes first.
        """
        metric = self.find_metric(metric)
        found = ranking.rank_variants(self._cells(metric), self.axes, view, metric)
        if not self.labels.metric(metric).higher and not found.empty:
            found = found.assign(mark="")
        return found if found.empty else cut_intervals(found, self.labels.metric(metric))

    def marked(self, by: Sequence[str] | None = None, *, view: Views = None, metric: str = "accuracy") -> pd.DataFrame:
        """Compute `mean` with the column `mark`: best or second where `rank` supports it, and empty elsewhere.

        Args and errors are those of `mean`. Nothing is marked of numbers of which it is not known that more is better.
        """
        metric = self.find_metric(metric)
        means = self.mean(by, view=view, metric=metric)
        columns = ["variant", *self.axes] if by is None else list(by)
        ranked = {"variant", "method", *self.axes}
        if not self.labels.metric(metric).higher or means.empty or not set(columns) <= ranked:
            return means.assign(mark="")
        methods = {run.variant: run.fields.get("method") for run in self.stored}
        ranks = self.rank(view=view, metric=metric)
        return ranking.mark_ranks(means, ranks.assign(method=ranks["variant"].map(methods)), columns)

    # -- efficiency and curves ---------------------------------------------------------------------------------------

    def pareto(self, cost: str = "uses", *, view: Views = None) -> pd.DataFrame:
        """Average accuracy and cost over seeds, and find the efficient variants: `find_efficient_variants`.

        Args:
            cost: floats, uses, bits, airtime_s, energy_j, time_s, samples or rounds, over the whole run.
            view: as of `compare`.

        Raises:
            ConfigError: as `compare`, or no such cost.
        """
        metric = self.metric
        frame = self._done(
            metric.name,
            value=lambda run: read_compared_value(run, choose_view(view, run.variant), metric.name),
            cost=lambda run: efficiency.read_cost(run, cost),
        )
        found = efficiency.find_efficient_variants(frame, self.axes, metric.higher)
        return cut_intervals(found, metric, "value").rename(columns={"value": metric.name})

    def until(self, target: float, cost: str = "uses", *, view: str | None = None, window: int = 1) -> pd.DataFrame:
        """Find the cost at which the accuracy, averaged over seeds, first reaches a target.

        See `compute_cost_until_target`.

        Args:
            target: accuracy, a fraction of 1; of another task a value of its headline.
            cost: as of `pareto`.
            view: as of `compare`.
            window: evaluations that the curves are averaged over first, see `smooth`.

        Raises:
            ConfigError: as `pareto`, or a target that is no fraction of 1.
        """
        if self.metric.share and not 0 < target <= 1:
            raise ConfigError(f"target: {target} is no {self.metric.label}; give a fraction of 1, such as 0.6")
        done = {run.hash: run for run in self.stored if run.status == "done"}
        headline = {key: view or run.headline for key, run in done.items()}
        curve = self.smooth(window).rename(columns={self.metric.name: "value"})
        curve = curve[curve["view"] == curve["hash"].map(headline)]
        curve = curve.assign(spent=self.spent(curve, cost))
        return efficiency.compute_cost_until_target(curve, self.axes, target, self.metric.higher)

    @property
    def in_joule(self) -> bool:
        """Check whether the energies of any run are in joule, see `names.is_in_joule`."""
        return any(is_in_joule(run.field("network.kind"), run.field("air.symbol_energy")) for run in self.stored)

    def spent(self, rounds: pd.DataFrame, cost: str) -> pd.Series:
        """Compute the cost of each run up to each of its `rounds`, rows of that table; NaN for unfinished runs.

        A run that costs c in T rounds costs c r / T up to round r; its time is the sum of that of its rounds. A last
        stage, round T + 1, counts as T, as what it costs is not counted.

        Raises:
            ConfigError: there is no such cost.
        """
        done = {run.hash: run for run in self.stored if run.status == "done"}
        whole, length = (
            rounds["hash"].map({key: efficiency.read_cost(run, name) for key, run in done.items()}).astype(float)
            for name in (cost, "rounds")
        )
        if cost != "time_s" or "round_s" not in self.rounds:
            return whole * np.minimum(rounds["round"] / length, 1)
        each = self.rounds.drop_duplicates(["hash", "round"]).set_index(["hash", "round"])["round_s"].fillna(0.0)
        so_far = each.groupby("hash").cumsum().reindex(pd.MultiIndex.from_frame(rounds[["hash", "round"]]))
        return so_far.set_axis(rounds.index).where(whole.notna())

    def smooth(self, window: int = LAST, metric: str = "accuracy") -> pd.DataFrame:
        """Select the evaluated `rounds`, with a number averaged over `window` evaluations: `smooth_curves`."""
        return curves.smooth_curves(self.rounds, window, self.find_metric(metric))

    def _tell_missing_runs(self, found: T) -> T:
        """Return `found`, and log once for a study and its parts how many runs are missing from it."""
        told: list[str] = self.record.setdefault("told", [])
        if not told and (line := describe_missing_runs(self.stored)):
            told.append(line)
            LOG.warning("%s", line)
        return found

    def _known(self, names: Sequence[str]) -> list[str]:
        for name in names:
            if name not in self.variants:
                raise ConfigError(f"compare: {name!r} is not in the study; there are {', '.join(self.variants)}")
        if len(set(names)) < max(2, len(names)):
            raise ConfigError(f"compare: {', '.join(names)} is no pair; give two variants or more, each once")
        return list(names)

    def _knowing(self, metric: str) -> list[Stored]:
        """List the finished runs, at the test SNRs at which a number is known."""
        done = [run for run in self.tests if run.status == "done"]
        known = [run for run in done if run.knows(metric)]
        if done and not known:
            first = done[0].test_snrs[0]
            raise ConfigError(f"metric: {metric!r} is known at the first test SNR only; give {TEST_SNR}={first:g}")
        return known

    def _cells(self, metric: str) -> Cells:
        return group_runs_to_compare(self._knowing(metric), self.axes)

    def _tabulate_values(self, view: Views, metric: str) -> pd.DataFrame:
        """Tabulate the keys of the finished runs that have a metric, with its value in a view."""
        check_views(view, self.variants)
        return self._done(metric, value=lambda run: read_compared_value(run, choose_view(view, run.variant), metric))

    def _done(self, metric: str, **numbers: Callable[[Stored], float]) -> pd.DataFrame:
        """Tabulate the keys of the finished runs that have a metric, with some numbers of each."""
        done = self._knowing(metric)
        columns = {name: [of(run) for run in done] for name, of in numbers.items()}
        return tabulate_keys(done, self.axes).assign(**columns)
