"""The numbers of finished studies, as a source that claims can be held against."""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from copy import copy
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pandas as pd

from experiments import papers
from experiments.catalogue import RESULTS as COMMITTED
from experiments.measures.class_groups import GROUPS
from semcom.config import ConfigError
from semcom.studies.analysis.compare import read_compared_value
from semcom.studies.analysis.curves import SPANS, average_curve_within, measure_curve_roughness, measure_curve_speed
from semcom.studies.analysis.guessing import is_guess
from semcom.studies.analysis.selection import make_comparable
from semcom.studies.analysis.study import Study, study
from semcom.studies.experiment import Experiment
from semcom.studies.names import NUMBERS
from semcom.studies.overrides import format_plain_value
from semcom.studies.registry import EXPERIMENTS, find_experiment
from semcom.studies.results.run import Stored
from semcom.studies.results.table import flatten_row

LOG = logging.getLogger(__name__)
END = "last"
"""The accuracy after the last round, or after the stage that follows it."""
SCALES = ("paper", "small")
"""Scales whose results are evidence, the better first; a smoke test is none."""
PERCENT = ("accuracy", "accuracy_std", "worst10", END)
"""Metrics of a view that are parts of 1."""
RATES: Mapping[str, str] = {
    "fedcosr-table2": "fedcosr-table2-rates",
    "fedcosr-table3": "fedcosr-table3-rates",
}
"""Item -> the study whose runs stand for its own at the points that they have: rates sought on validation images."""
TWINS: Mapping[str, str] = {
    "fedcrl-table2": "fedcosr-table2",
    "fedcrl-table3": "fedcosr-table3",
    "fedcrl-curves": "fedcosr-fig5",
}
"""Item -> the one that is the same with another name for one method."""
CLASSES: Mapping[str, int] = {"cifar10": 10, "cifar100": 100, "cinic10": 10, "emnist": 47, "mnist": 10}
"""Classes of the papers' datasets."""
EVIDENCE = frozenset({"own rates", "devices", "guessing"})
"""Changes of the rule that are about what its numbers are."""
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
        better: item -> the study whose runs stand for its own at the points that it has.

    Attributes:
        places: point -> its fields.
        scales: the scales of the studies.
        changes: those of the rule's second edition that are about evidence, of `rule.CHANGES`.
        stands: field -> what of it stands for the paper's values at these scales, in words.
        ended: items of which some method is tested only once, after a last stage: the accuracies of all their methods
            are those of the end, as a mean over earlier rounds would be held against that one.
    """

    changes: frozenset[str] = frozenset()

    def __init__(
        self, studies: Mapping[str, tuple[str, Study]], better: Mapping[str, tuple[str, Study]] = MappingProxyType({})
    ) -> None:
        self._studies = studies, better  # which hold what archives have been unpacked into
        self._seen: dict[Hashable, Any] = {}
        self.scales = tuple(dict.fromkeys(scale for scale, _ in studies.values()))
        self.places: dict[Key, dict[str, tuple[str, ...]]] = {}
        self.stands: dict[str, str] = {}
        self.ended = {item for item, (_, each) in studies.items() if any(map(_has_last_stage, each.stored))}
        self._runs: dict[Key, list[Stored]] = {}
        self._own: dict[Key, list[Stored]] = {}
        for item, (scale, each) in studies.items():
            reduced = _reduced(item, scale)
            self.stands |= {field: _in_words(field, values, scale) for field, values in reduced.items()}
            axes = _find_axes(item, scale, each)
            own = _group_runs(better[item][1], axes) if item in better else {}
            for point, of in _group_runs(each, axes).items():
                with_own = own.get(point, [])
                names = {run.variant for run in with_own}
                rest = [run for run in of if run.variant not in names]
                self._add(item, point, of, [*with_own, *rest], reduced)

    def under(self, changes: frozenset[str]) -> Evidence:
        """Return the same evidence under some changes of the rule."""
        made = copy(self)
        made.changes = changes
        return made

    def is_dash(self, method: str, key: Key, metric: str) -> bool:
        """Return whether a run of a method guesses at a point, so that it counts for nothing there."""
        return metric != "floats" and "guessing" in self.changes and self._once(self._guesses, method, key)

    def _add(
        self,
        item: str,
        point: tuple[Any, ...],
        runs: list[Stored],
        own: list[Stored],
        reduced: Mapping[str, Mapping[str, str]],
    ) -> None:
        """Add the runs of a point, and those with rates of their own, as a whole and part by part."""
        shared = {name: reduced.get(name, {}).get(value, value) for name, value in _common(runs).items()}
        for part in (None, *dict.fromkeys(part for run in runs for part in _list_parts(run))):
            key = (item, point, part)
            self._runs[key], self._own[key] = runs, own
            self.places[key] = {name: (value,) for name, value in [*shared.items(), *([part] if part else [])]}

    def value(self, method: str, key: Key, metric: str) -> pd.Series:
        """Return a number of a method at a point, by seed: accuracies in percent; empty where it is not known.

        The seeds are those of one kind of device where only such runs are pairs.
        """
        return self._once(self._find_value, method, key, metric)

    def _once(self, find: Callable[..., Any], *asked: Hashable) -> Any:
        """Return what a method of this evidence finds, which is looked for once under the same changes."""
        name = (find.__name__, self.changes & EVIDENCE, *asked)
        if name not in self._seen:
            self._seen[name] = find(*asked)
        return self._seen[name]

    def _guesses(self, method: str, key: Key) -> bool:
        return any(map(_is_guess, self._of(method, key)))

    def _find_value(self, method: str, key: Key, metric: str) -> pd.Series:
        if method == "averaged":
            there = {run.variant for run in self._find_runs(key)}
            if set(_declared(key[0])) - there:  # of all methods, or it is another average
                return pd.Series(dtype=float)
            each = [self.value(name, key, metric) for name in sorted(there) if not self.is_dash(name, key, metric)]
            return pd.concat(each, axis=1).dropna().mean(axis=1) if each else pd.Series(dtype=float)
        view = dict(papers.OWN.get(method, (None, {}))[1]).get("view")
        metric = END if metric == "accuracy" and key[2] is None and key[0] in self.ended else metric
        found = {self._name_seed(run): read_number(run, view, metric, key[2]) for run in self._of(method, key)}
        return pd.Series({seed: value for seed, value in found.items() if value is not None}, dtype=float)

    def _name_seed(self, run: Stored) -> str:
        """Return what two runs have in common that are a pair."""
        device = (run.summary or {}).get("device", "") if "devices" in self.changes else ""
        return f"{run.fields.get('seed', 0)} {device}"

    def list_guessing(self, methods: Sequence[str], keys: Sequence[Any], metric: str) -> list[str]:
        """Return those of some methods that count for nothing at one of some points, as a run guesses there."""
        return [name for name in methods if any(self.is_dash(name, key, metric) for key in keys)]

    def warned(self, methods: Sequence[str], keys: Sequence[Any]) -> tuple[int, int, str]:
        """Return how many of the runs of methods at points warned, of how many, and the first warning."""
        found = {run.hash: run.warnings() for key in keys for name in methods for run in self._of(name, key)}
        said = [texts[0] for texts in found.values() if texts]
        return len(said), len(found), said[0] if said else ""

    def _find_runs(self, key: Key) -> list[Stored]:
        """Return the runs of a point: those with rates of their own where these count and are there."""
        return (self._own if "own rates" in self.changes else self._runs)[key]

    def _of(self, name: str, key: Key) -> list[Stored]:
        """Return the runs of a variant, or of what a name of the papers stands for."""
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
    """Return the fields by whose values the points of a study are told apart.

    They are the axes that the experiment declares. Fields that differ because some variants have settings of their own
    are none: the methods would not meet at any point. They are, where a study has been extended by fields of its own.
    """
    known = _experiment(item)
    declared = [f for axis in known.axes(scale) for f in axis.fields] if known and scale in known.scales else []
    axes = [name for name in found.axes if name in declared] if declared else list(found.axes)
    done = [run for run in found.stored if run.status == "done"]
    seen = [(run.variant, run.fields.get("seed"), *(repr(run.fields.get(name)) for name in axes)) for run in done]
    return axes if len(set(seen)) == len(seen) else list(found.axes)


def _group_runs(found: Study, axes: Sequence[str]) -> dict[tuple[Any, ...], list[Stored]]:
    """Return the finished runs of a study by the values of some fields."""
    points: dict[tuple[Any, ...], list[Stored]] = {}
    for run in found.stored:
        if run.status == "done":
            points.setdefault(tuple(run.fields.get(name) for name in axes), []).append(run)
    return points


def _experiment(item: str) -> Experiment | None:
    """Return the experiment of a name; None where there is no such."""
    return find_experiment(item) if item in EXPERIMENTS.names() else None


def _declared(item: str) -> list[str]:
    """Return the names of an experiment's variants; none where there is no such experiment."""
    known = _experiment(item)
    return [variant.name for variant in known.compared()] if known else []


def _common(runs: Sequence[Stored]) -> dict[str, str]:
    """Return the fields that all runs of a point share, as claims spell their values."""
    first = runs[0].fields
    shared = {name: v for name, v in first.items() if all(run.fields.get(name) == v for run in runs)}
    return {name: format_plain_value(value) for name, value in shared.items()}


def _reduced(item: str, scale: str) -> dict[str, dict[str, str]]:
    """Return field -> value at a scale -> the paper's value that it stands for, as claims spell them."""
    known = _experiment(item)
    found = known.reduced.get(scale, {}) if known else {}
    return {
        name: {format_plain_value(k): format_plain_value(v) for k, v in values.items()}
        for name, values in found.items()
    }


def _in_words(field: str, values: Mapping[str, str], scale: str) -> str:
    """Return what stands for what at a scale, such as "at small train.local_epochs 5 stands for 10, 10 for 20"."""
    first, *others = values.items()
    return f"at {scale} {field} {first[0]} stands for {first[1]}" + "".join(f", {k} for {v}" for k, v in others)


def _is_guess(run: Stored) -> bool:
    """Return whether a run's headline is that of guessing."""
    clients = (run.summary or {}).get("views", {}).get(run.headline, {}).get("clients", [])
    classes = CLASSES.get(str(run.fields.get("data.name")))
    return is_guess(read_compared_value(run, None, "accuracy"), clients, classes)


def _has_last_stage(run: Stored) -> bool:
    """Return whether a run was tested after a stage that follows its last round."""
    return "finish" in (run.summary or {})


def _list_parts(run: Stored) -> Iterator[Part]:
    """Yield the parts of a run of which its summary has numbers."""
    summary = run.summary or {}
    for group in GROUPS:
        if group in summary.get("groups", {}):
            yield "class_size", group
            yield "class_rank", group
    for i in range(len(summary.get("new_clients", {}).get("head", {}).get("clients", []))):
        yield "new_client", str(i)
    for span in SPANS:
        yield "round", span


def read_number(run: Stored, view: str | None, metric: str, part: Part | None = None) -> float | None:
    """Return a number of a run, or of a part of it; None where it has no such.

    Accuracies and other shares are in percent. Where clients join at the end, accuracy is theirs, with the model as it
    is, or with heads of their own where its classes are others.
    """
    if part is not None:
        return _read_number_of_part(run, view, metric, *part)
    summary, headline = run.summary or {}, view or run.headline
    joined = summary.get("new_clients", {})
    found: float | None
    if metric in ("accuracy", END) and joined:
        found = 100 * joined.get("global", joined.get("head", {}))["accuracy"]
    elif metric in PERCENT:
        found = 100 * read_compared_value(run, view, metric)
    elif metric == "roughness":
        found = measure_curve_roughness(run.lines(), headline)
    elif metric == "speed":
        found = measure_curve_speed(
            run.lines(), headline, read_compared_value(run, view, "accuracy"), int(summary["rounds"])
        )
    elif metric == "floats":
        ways = summary.get("traffic", {}).values()
        found = sum(counts["floats"] for counts in ways) if ways else None
    else:
        found = flatten_row({**summary.get("clusters", {}), **{k: summary.get(k) for k in OWN_NUMBERS}}).get(metric)
        if found is not None and getattr(NUMBERS.get(f"clusters.{metric}"), "share", False):
            found = 100 * float(found)
    return None if found is None else float(found)


def _read_number_of_part(run: Stored, view: str | None, metric: str, field: str, part: str) -> float | None:
    """Return a number of a part of a run.

    That of its third of the classes in `groups` of the summary, the accuracy of a new client with a head of its own, or
    the mean accuracy of a part of the training.
    """
    summary = run.summary or {}
    if field == "round":
        lines, rounds = run.lines(), int(summary["rounds"])
        return average_curve_within(lines, view or run.headline, part, rounds) if metric == "accuracy" else None
    if field == "new_client":
        each = summary.get("new_clients", {}).get("head", {}).get("clients", [])
        return 100 * each[int(part)] if int(part) < len(each) and metric == "accuracy_of_each" else None
    share = metric in ("accuracy", "class_accuracy")
    found = summary.get("groups", {}).get(part, {}).get("accuracy" if share else metric)
    return None if found is None else (100 if share else 1) * float(found)


Read = Callable[[str, str, Path], Study | None]
"""Reads the stored study of an item at a scale."""


def list_studied(items: Sequence[str], changes: frozenset[str]) -> list[str]:
    """Return the items whose runs stand for those of some items: a twin's, with the change "own rates"."""
    return [TWINS.get(item, item) if "own rates" in changes else item for item in items]


def read_evidence(
    items: Sequence[str], folder: Path, changes: frozenset[str] = frozenset(), read: Read | None = None
) -> Evidence | None:
    """Return the results of items, all of one scale, the one at which most have any; None where none has.

    Results that cannot be read are passed over, with a warning. With the change "own rates" a twin's results stand for
    an item's, and runs with rates of their own for those with the common one, where there are any.

    Args:
        items: names of experiments.
        folder: that holds folders and archives of sweeps, <item>-<scale>; after it those of the package are looked at.
        changes: of `rule.CHANGES`, those that are made.
        read: reads a study (None: `find_study`); one that remembers them reads each once.
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
    """Return the first study of an item at a scale with a run that is done; None where there is none."""
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
    """Return the command that makes the results of an item; None where no experiment has its name.

    Args:
        item: name of an experiment.
        asked: field -> values that its runs are to have, such as those of a claim: scale `small` may lack them.
    """
    known = _experiment(item)
    if known is None:
        return None
    scales = known.offered()
    offered = [name for name in reversed(SCALES) if name in scales] or scales[-1:]
    scale = next((name for name in offered if _has_values(known, name, asked or {})), offered[0])
    return f"semcom sweep {item} --scale {scale}"


def _has_values(known: Experiment, scale: str, asked: Mapping[str, Sequence[str]]) -> bool:
    """Return whether each of the fields asked for that varies at a scale takes one of its values there."""
    reduced, values = _reduced(known.name, scale), dict[str, set[str]]()
    for field, value in (place for axis in known.axes(scale) for point in axis.points() for place in point.items()):
        shown = format_plain_value(value)
        values.setdefault(field, set()).add(reduced.get(field, {}).get(shown, shown))
    return all(values[field] & set(wanted) for field, wanted in asked.items() if field in values)
