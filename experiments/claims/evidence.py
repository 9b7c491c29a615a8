"""Read the numbers of finished studies as a source of comparisons for claims."""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from copy import copy
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pandas as pd

from semcom.config import ConfigError
from semcom.config.identity import flatten_table
from semcom.studies.analysis.compare import read_compared_value
from semcom.studies.analysis.curves import SPANS, average_curve_within, measure_curve_roughness, measure_curve_speed
from semcom.studies.analysis.guessing import is_guess
from semcom.studies.analysis.selection import make_comparable
from semcom.studies.analysis.study import Study, study
from semcom.studies.cost import PUBLISHED
from semcom.studies.experiment import Experiment
from semcom.studies.names import NUMBERS
from semcom.studies.overrides import format_plain_value
from semcom.studies.registry import EXPERIMENTS, find_experiment
from semcom.studies.results.run import Stored
from semcom_papers.experiments import papers
from semcom_papers.experiments.catalogue import RESULTS as COMMITTED
from semcom_papers.experiments.claims.claim import Values
from semcom_papers.experiments.measures.class_groups import GROUPS

LOG = logging.getLogger(__name__)
END = "last"
"""The accuracy after the last round, or after the stage that follows it."""
SCALES = ("paper", "small")
"""Scales with results that count as evidence, the better first."""
PERCENT = ("accuracy", "accuracy_std", "worst10", END)
"""Metrics of a view that are fractions of 1."""
RATES: Mapping[str, str] = {
    "fedcosr-table2": "fedcosr-table2-rates",
    "fedcosr-table3": "fedcosr-table3-rates",
}
"""Item -> study with rates searched on validation images, which replaces the item's runs at the points that it has."""
TWINS: Mapping[str, str] = {
    "fedcrl-table2": "fedcosr-table2",
    "fedcrl-table3": "fedcosr-table3",
    "fedcrl-curves": "fedcosr-fig5",
    "fedcrl-tsne": "fedcosr-fig9",
}
"""Item -> item with the same runs, but for the name of one method."""
EVIDENCE = frozenset({"own rates", "devices", "guessing"})
"""Changes of the rule that concern the numbers themselves."""
OWN_NUMBERS = ("predictor_distance", "floats_formula")
"""Numbers that experiments leave in summaries under the names of their metrics."""
Part = tuple[str, str]
"""One of `papers.PARTS` and its value."""
Key = tuple[str, tuple[Any, ...], Part | None]
"""Item, the values of its study's axes, and the part of its runs (None: whole runs)."""


class Evidence:
    """The studies of one or several items as a `claim.Source`.

    Args:
        studies: item -> scale and study.
        better: item -> study whose runs replace the item's own at the points that it has.

    Attributes:
        places: point -> its fields.
        scales: scales of the studies.
        changes: the `rule.CHANGES` in force, as far as they are about evidence.
        stands: field -> note on the values that stand for the paper's at these scales.
        ended: items with a method that is tested only once, after a last stage. Accuracies of all their methods are
            those at the end: a mean over earlier rounds would not be comparable.
    """

    changes: frozenset[str] = frozenset()

    def __init__(
        self, studies: Mapping[str, tuple[str, Study]], better: Mapping[str, tuple[str, Study]] = MappingProxyType({})
    ) -> None:
        self._studies = studies, better  # their archives stay open as long as these live
        self._seen: dict[Hashable, Any] = {}
        self.scales = tuple(dict.fromkeys(scale for scale, _ in studies.values()))
        self.places: dict[Key, dict[str, tuple[str, ...]]] = {}
        self.stands: dict[str, str] = {}
        self.ended = {
            item for item, (_, each) in studies.items() if any("finish" in (run.summary or {}) for run in each.stored)
        }
        self._runs: dict[Key, list[Stored]] = {}
        self._own: dict[Key, list[Stored]] = {}
        for item, (scale, each) in studies.items():
            reduced = _map_reduced_values(item, scale)
            self.stands |= {field: _word_reduced_values(field, values, scale) for field, values in reduced.items()}
            axes = _find_axes(item, scale, each)
            own = _group_runs(better[item][1], axes) if item in better else {}
            for point, of in _group_runs(each, axes).items():
                with_own = own.get(point, [])
                names = {run.variant for run in with_own}
                rest = [run for run in of if run.variant not in names]
                self._add(item, point, of, [*with_own, *rest], reduced)

    def under(self, changes: frozenset[str]) -> Evidence:
        """Copy the evidence with other changes of the rule."""
        made = copy(self)
        made.changes = changes
        return made

    def is_dash(self, method: str, key: Key, metric: str) -> bool:
        """Check whether a run of a method guesses at a point, so that the method does not count there."""
        return metric != "floats" and "guessing" in self.changes and self._once(self._guesses, method, key)

    def _add(
        self,
        item: str,
        point: tuple[Any, ...],
        runs: list[Stored],
        own: list[Stored],
        reduced: Mapping[str, Mapping[str, str]],
    ) -> None:
        shared = {name: reduced.get(name, {}).get(value, value) for name, value in _collect_common_fields(runs).items()}
        for part in (None, *dict.fromkeys(part for run in runs for part in _list_parts(run))):
            key = (item, point, part)
            self._runs[key], self._own[key] = runs, own
            self.places[key] = {name: (value,) for name, value in [*shared.items(), *([part] if part else [])]}

    def value(self, method: str, key: Key, metric: str, beside: tuple[Key, ...] = ()) -> Values:
        """Look up a number of a method at a point by seed: accuracies in percent; empty if unknown.

        With the change "devices" the index has the device too, so that only runs of one device pair. `beside`: as of
        `Source`.
        """
        if method == "averaged":
            return self._once(self._average, key, metric, beside or (key,))
        return self._once(self._find_value, method, key, metric)

    def _once(self, find: Callable[..., Any], *asked: Hashable) -> Any:
        """Call a method of this evidence, or return what it has found before under the same changes."""
        name = (find.__name__, self.changes & EVIDENCE, *asked)
        if name not in self._seen:
            self._seen[name] = find(*asked)
        return self._seen[name]

    def _guesses(self, method: str, key: Key) -> bool:
        view, metric = _find_view(method), END if key[0] in self.ended else "accuracy"
        return any(_is_guess(run, view, metric) for run in self._of(method, key))

    def _find_value(self, method: str, key: Key, metric: str) -> Values:
        view = _find_view(method)
        metric = END if metric == "accuracy" and key[2] is None and key[0] in self.ended else metric
        found = {self._name_seed(run): read_evidence_number(run, view, metric, key[2]) for run in self._of(method, key)}
        known = {seed: value for seed, value in found.items() if value is not None}
        return Values(list(known.values()), list(known))

    def _average(self, key: Key, metric: str, beside: tuple[Key, ...]) -> Values:
        """Average the declared methods that guess at none of some points, by seed."""
        there = {run.variant for run in self._find_runs(key)}
        if set(_list_declared(key[0])) - there:  # an average over fewer methods is another number
            return Values()
        gone = set(self.list_guessing(sorted(there), beside, metric))
        each = [self.value(name, key, metric) for name in sorted(there - gone)]
        if not each:
            return Values()
        whole = pd.concat([pd.Series(of.numbers, of.index) for of in each], axis=1).dropna().mean(axis=1)
        return Values(whole.to_numpy(), list(whole.index))

    def _name_seed(self, run: Stored) -> str:
        """Name the properties that two paired runs share."""
        device = (run.summary or {}).get("device", "") if "devices" in self.changes else ""
        return f"{run.fields.get('seed', 0)} {device}"

    def list_guessing(self, methods: Sequence[str], keys: Sequence[Any], metric: str) -> list[str]:
        """List the methods that guess at one of some points, so that they do not count there."""
        return [name for name in methods if any(self.is_dash(name, key, metric) for key in keys)]

    def warned(self, methods: Sequence[str], keys: Sequence[Any]) -> tuple[int, int, str]:
        """Count the runs of methods at points that warned, and all of these runs; give the first warning."""
        found = {run.hash: run.warnings() for key in keys for name in methods for run in self._of(name, key)}
        first = [texts[0] for texts in found.values() if texts]
        return len(first), len(found), first[0] if first else ""

    def _find_runs(self, key: Key) -> list[Stored]:
        """Find the runs of a point: with searched rates if these count and exist."""
        return (self._own if "own rates" in self.changes else self._runs)[key]

    def _of(self, name: str, key: Key) -> list[Stored]:
        """Find the runs of a variant, or of the method and settings behind a name of the papers."""
        return self._once(self._find_of, name, key)

    def _find_of(self, name: str, key: Key) -> list[Stored]:
        runs = self._find_runs(key)
        named = [run for run in runs if run.variant == name]
        if named or name not in papers.OWN:
            return named
        method, settings = papers.OWN[name]
        wanted = {field: value for field, value in settings.items() if field != "view"}
        plain = {field: make_comparable(value) for field, value in wanted.items()}
        return [
            run
            for run in runs
            if run.fields.get("method") == method
            and (plain or run.variant == method)
            and all(make_comparable(run.fields.get(field)) == value for field, value in plain.items())
        ]


def _find_axes(item: str, scale: str, found: Study) -> list[str]:
    """Find the fields that distinguish the points of a study: the axes that its experiment declares.

    Fields that only differ because variants have their own settings are left out, as methods would share no point.
    They are kept in a study that was extended by further fields, where declared axes do not distinguish all runs.
    """
    known = _look_up_experiment(item)
    declared = [f for axis in known.axes(scale) for f in axis.fields] if known and scale in known.scales else []
    axes = [name for name in found.axes if name in declared] if declared else list(found.axes)
    done = [run for run in found.stored if run.status == "done"]
    seen = [(run.variant, run.fields.get("seed"), *(repr(run.fields.get(name)) for name in axes)) for run in done]
    return axes if len(set(seen)) == len(seen) else list(found.axes)


def _group_runs(found: Study, axes: Sequence[str]) -> dict[tuple[Any, ...], list[Stored]]:
    points: dict[tuple[Any, ...], list[Stored]] = {}
    for run in found.stored:
        if run.status == "done":
            points.setdefault(tuple(run.fields.get(name) for name in axes), []).append(run)
    return points


def _look_up_experiment(item: str) -> Experiment | None:
    return find_experiment(item) if item in EXPERIMENTS.names() else None


def _list_declared(item: str) -> list[str]:
    known = _look_up_experiment(item)
    return [variant.name for variant in known.compared()] if known else []


def _collect_common_fields(runs: Sequence[Stored]) -> dict[str, str]:
    """Collect the fields that all runs of a point share, spelled as in claims."""
    first = runs[0].fields
    shared = {name: v for name, v in first.items() if all(run.fields.get(name) == v for run in runs)}
    return {name: format_plain_value(value) for name, value in shared.items()}


def _map_reduced_values(item: str, scale: str) -> dict[str, dict[str, str]]:
    """Map fields to values at a scale -> the paper's values that these stand for, spelled as in claims."""
    known = _look_up_experiment(item)
    found = known.reduced.get(scale, {}) if known else {}
    return {
        name: {format_plain_value(k): format_plain_value(v) for k, v in values.items()}
        for name, values in found.items()
    }


def _word_reduced_values(field: str, values: Mapping[str, str], scale: str) -> str:
    """Word the reduced values of a field: "at small train.local_epochs 5 stands for 10, 10 for 20"."""
    first, *others = values.items()
    return f"at {scale} {field} {first[0]} stands for {first[1]}" + "".join(f", {k} for {v}" for k, v in others)


def _find_view(method: str) -> str | None:
    """Find the view by which a paper tells its method (None: the first one)."""
    return dict(papers.OWN.get(method, (None, {}))[1]).get("view")


def _is_guess(run: Stored, view: str | None, metric: str) -> bool:
    """Check whether the accuracy that is compared is that of guessing."""
    joined = _find_joined(run)
    of = joined or (run.summary or {}).get("views", {}).get(view or run.headline, {})
    accuracy = joined.get("accuracy") if joined else read_compared_value(run, view, metric)
    classes = PUBLISHED.get(str(run.fields.get("data.name")), (0, 0, None))[2]
    return accuracy is not None and is_guess(accuracy, of.get("clients", []), classes)


def _find_joined(run: Stored) -> Mapping[str, Any]:
    """Find the numbers of clients that join at the end: with the global model, or with own heads; {} without any."""
    joined = (run.summary or {}).get("new_clients", {})
    return joined.get("global", joined.get("head", {}))


def _list_parts(run: Stored) -> Iterator[Part]:
    """List the parts of a run that its summary has numbers of."""
    summary = run.summary or {}
    for group in GROUPS:
        if group in summary.get("groups", {}):
            yield "class_size", group
            yield "class_rank", group
    for i in range(len(summary.get("new_clients", {}).get("head", {}).get("clients", []))):
        yield "new_client", str(i)
    for span in SPANS:
        yield "round", span


def read_evidence_number(run: Stored, view: str | None, metric: str, part: Part | None = None) -> float | None:
    """Read a number of a run, or of a part of it; None if the run has none. Accuracies and shares are in percent.

    In a run with clients that join at the end, accuracy is theirs: of the global model, or with their own heads if
    their classes differ.
    """
    if part is not None:
        return _read_number_of_part(run, view, metric, *part)
    summary, headline = run.summary or {}, view or run.headline
    found: float | None
    if metric in ("accuracy", END) and (joined := _find_joined(run)):
        found = 100 * joined["accuracy"]
    elif metric in PERCENT:
        found = 100 * read_compared_value(run, view, metric)
    elif metric == "roughness":
        found = measure_curve_roughness(run.accuracies, headline)
    elif metric == "speed":
        accuracy = read_compared_value(run, view, "accuracy")
        found = measure_curve_speed(run.accuracies, headline, accuracy, int(summary["rounds"]))
    elif metric == "floats":
        ways = summary.get("traffic", {}).values()
        found = sum(counts["floats"] for counts in ways) if ways else None
    else:
        found = flatten_table({**summary.get("clusters", {}), **{k: summary.get(k) for k in OWN_NUMBERS}}).get(metric)
        if found is not None and getattr(NUMBERS.get(f"clusters.{metric}"), "share", False):
            found = 100 * float(found)
    return None if found is None else float(found)


def _read_number_of_part(run: Stored, view: str | None, metric: str, field: str, part: str) -> float | None:
    """Read a number of a third of the classes, of a new client with its own head, or of a part of the training."""
    summary = run.summary or {}
    if field == "round":
        lines, rounds = run.accuracies, int(summary["rounds"])
        return average_curve_within(lines, view or run.headline, part, rounds) if metric == "accuracy" else None
    if field == "new_client":
        each = summary.get("new_clients", {}).get("head", {}).get("clients", [])
        return 100 * each[int(part)] if int(part) < len(each) and metric == "accuracy_of_each" else None
    share = metric in ("accuracy", "class_accuracy")
    found = summary.get("groups", {}).get(part, {}).get("accuracy" if share else metric)
    return None if found is None else (100 if share else 1) * float(found)


Read = Callable[[str, str, Path], Study | None]
"""Function that reads the stored study of an item at a scale."""


def list_studied(items: Sequence[str], changes: frozenset[str]) -> list[str]:
    """List the items that provide the runs of some items: with the change "own rates" their twins."""
    return [TWINS.get(item, item) if "own rates" in changes else item for item in items]


def read_evidence(
    items: Sequence[str], folder: Path, changes: frozenset[str] = frozenset(), read: Read | None = None
) -> Evidence | None:
    """Read the results of items at the scale at which most of them have any; None without results.

    Unreadable results are skipped with a warning. With the change "own rates" the results of twins replace an item's,
    and runs with searched rates those with the common rate.

    Args:
        items: names of experiments.
        folder: folders and archives of sweeps, <item>-<scale>; those of a checkout are looked at after it.
        changes: the `rule.CHANGES` in force.
        read: reads a study (None: `find_study`); a cached function reads each study once.
    """
    studied = list_studied(items, changes)

    def read_all(scale: str, names: Mapping[str, str]) -> dict[str, tuple[str, Study]]:
        found = {item: (read or find_study)(name, scale, folder) for item, name in names.items()}
        return {item: (scale, each) for item, each in found.items() if each}

    at_scale = {scale: read_all(scale, {item: item for item in studied}) for scale in SCALES}
    scale = max(SCALES, key=lambda name: len(at_scale[name]))  # the better one of those with as many
    if not at_scale[scale]:
        return None
    own = {item: RATES[item] for item in studied if item in RATES and "own rates" in changes}
    return Evidence(at_scale[scale], read_all(scale, own)).under(changes)


def find_study(item: str, scale: str, folder: Path) -> Study | None:
    """Find the first study of an item at a scale with a finished run; None without one."""
    for path in (folder / f"{item}-{scale}", *(root / f"{item}-{scale}.zip" for root in (folder, COMMITTED))):
        try:
            found = study(path) if path.exists() else None
        except ConfigError as error:
            LOG.warning("%s", error)
            continue
        if found is not None and any(run.status == "done" for run in found.stored):
            return found
    return None


def format_sweep_command(item: str, asked: Mapping[str, Sequence[str]] | None = None) -> str | None:
    """Write the command that makes the results of an item; None for an unknown experiment.

    Args:
        item: name of an experiment.
        asked: field -> values that its runs need, such as those of a claim: scale `small` may lack them.
    """
    known = _look_up_experiment(item)
    if known is None:
        return None
    scales = known.offered()
    offered = [name for name in reversed(SCALES) if name in scales] or scales[-1:]
    scale = next((name for name in offered if _has_values(known, name, asked or {})), offered[0])
    return f"semcom sweep {item} --scale {scale}"


def _has_values(known: Experiment, scale: str, asked: Mapping[str, Sequence[str]]) -> bool:
    """Check whether the fields that vary at a scale take one of their asked values there."""
    reduced, values = _map_reduced_values(known.name, scale), dict[str, set[str]]()
    for field, value in (place for axis in known.axes(scale) for point in axis.points() for place in point.items()):
        shown = format_plain_value(value)
        values.setdefault(field, set()).add(reduced.get(field, {}).get(shown, shown))
    return all(values[field] & set(wanted) for field, wanted in asked.items() if field in values)
