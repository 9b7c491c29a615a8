"""Fair tuning: a grid for each variant on validation images, then the study with the best values of each.

All variants have the same candidates, seeds and rounds. What counts is the headline on images that were set aside from
the clients' training images, the mean over seeds and over what else the study varies. No image that the study tests on
is trained or validated on in the search. Of equal candidates the first one is chosen.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

import semcom
from semcom.config import ConfigError, RunError
from semcom.files import write_atomically
from semcom.methods.registry import METHODS
from semcom.registry import find_entry
from semcom.runs.folder.summary import read_summary
from semcom.runs.request.section_options import find_options_class
from semcom.screen import say
from semcom.studies.analysis.means import format_markdown
from semcom.studies.experiment import Experiment
from semcom.studies.grid import Axis, read_grid_field
from semcom.studies.overrides import format_plain_value
from semcom.studies.results.lock import read_sweep_record, refuse_another_sweep
from semcom.studies.results.outcome import has_outcome, locate_run_folder, read_left_error
from semcom.studies.sweep.divisions import mark_images
from semcom.studies.sweep.plan import VARIANT, Plan, declare_features, locate_results, make_plan
from semcom.studies.sweep.request import SEED, Request, apply_request, choose_variants, list_joining_methods
from semcom.tasks.metric import read_headline

SEARCH, TUNED = "search", "tuned.md"
"""Folder of the search and file of the choice, in the folder of the study."""
SEARCH_SEEDS = (1000,)
"""Seeds of the search, none of those that studies usually take."""
VALIDATION, ASIDE = "partition.validation", 0.2
"""The field that sets images aside, and its value in the search where the study sets none aside."""


def plan_search(
    name: str | None, scale: str | None, request: Request, plugins: Sequence[str] = (), out: Path | str | None = None
) -> Plan:
    """Plan the search of a study, the grid of `request.tune`; arguments and errors are those of `make_plan`.

    A hyperparameter is searched for the methods that have it, and no field for methods that do not use it; one that
    none of them uses is refused.
    """
    declared, scale, request = _declare_search(name, scale, request, out)
    folder = locate_results(declared, scale, out)
    held = read_sweep_record(folder) or {}
    asked = [variant.name for variant in choose_variants(declared, request.methods)]
    if any(name in held["axes"][VARIANT] and name not in held["own"] for name in asked if "own" in held):
        raise refuse_another_sweep(folder, held)  # they have run untuned there
    methods = [variant.method for variant in choose_variants(declared, [*asked, *_list_searched(declared, folder)])]
    for field in (field for axis in request.tune for field in axis.fields):
        if all(_list_untaken([field], method) for method in methods):
            raise ConfigError(f"{field}: tuning it has no effect, as {', '.join(methods)} do not use it; leave it out")
    axes = [axis for axis in request.axes if axis.fields != SEED]
    seeds = Axis(SEED, tuple((seed,) for seed in SEARCH_SEEDS))
    set_aside = request.set.get(VALIDATION) or declared.scales[scale].base.partition.validation
    aside = {} if set_aside else {VALIDATION: ASIDE}
    axes = [*axes, *request.tune, seeds]
    wider = dataclasses.replace(request, set={**request.set, **aside}, axes=tuple(axes), tune=())
    return make_plan(name, scale, wider, plugins, folder / SEARCH, declared=declared)


def _list_searched(declared: Experiment, folder: Path) -> list[str]:
    """List the variants that the search in a study's folder has, and this process knows."""
    held = read_sweep_record(folder / SEARCH) or {"axes": {VARIANT: []}}
    there = {variant.name for variant in declared.compared()}
    return [name for name in held["axes"][VARIANT] if name in there or name in METHODS]


def _declare_search(
    name: str | None, scale: str | None, request: Request, out: Path | str | None
) -> tuple[Experiment, str, Request]:
    """Find what is searched, as `declare_features` does; no variant has tuned fields that its method does not take.

    Where methods of plug-ins join an experiment, they alone are searched.
    """
    declared, scale, request = declare_features(name, scale, request, out)
    if joining := list_joining_methods(declared, request.methods):
        request = dataclasses.replace(request, methods=tuple(joining))
    fields = [name for axis in request.tune for name in axis.fields]
    grid = declared.scales[scale]
    if name is None:  # with the methods of earlier calls
        searched = _list_searched(declared, locate_results(declared, scale, out))
        declared = dataclasses.replace(declared, variants=tuple(dict.fromkeys([*(request.methods or ()), *searched])))
    own = {
        variant.name: {**grid.own.get(variant.name, {}), **dict.fromkeys(_list_untaken(fields, variant.method))}
        for variant in choose_variants(declared, request.methods if name is not None else None)
    }
    return dataclasses.replace(declared, scales={scale: dataclasses.replace(grid, own=own)}), scale, request


def check_tuning_is_apart(
    search: Plan,
    name: str | None,
    scale: str | None,
    request: Request,
    plugins: Sequence[str] = (),
    out: Path | str | None = None,
) -> None:
    """Check that no test image of a study, whatever is chosen for it, is a training or validation image of its search.

    Both are divided for that, before anything runs.

    Args:
        search: the plan of `plan_search`.
        name, scale, request, plugins, out: as of `plan_search`.

    Raises:
        ConfigError: some image is both, or data cannot be had or divided like that.
    """
    declared, scale, request = _declare_search(name, scale, request, out)
    asked = dataclasses.replace(request, axes=(*request.axes, *request.tune), tune=())
    study = [semcom.resolve(config) for config in apply_request(declared, scale, asked).grid(scale)]
    seen, tests = mark_images(search.runs.values(), ("train", "validation")), mark_images(study, ("test",))
    both = sum(int((marks & seen[data]).sum()) for data, marks in tests.items())
    if both:
        kinds = " and ".join(dict.fromkeys(repr(config.partition.kind) for config in study))
        total = sum(int(marks.sum()) for marks in tests.values())
        raise ConfigError(
            f"tune: the search would train or validate on {both:,} of the {total:,} test images of the study, as "
            f"{kinds} draws tests for each seed; set partition.test=own, or divide by a file of semcom split"
        )


def plan_tuned(
    search: Plan,
    name: str | None,
    scale: str | None,
    request: Request,
    plugins: Sequence[str] = (),
    out: Path | str | None = None,
) -> Plan:
    """Choose the best candidate of each variant after its search, say so, and plan the study with these.

    The table of all candidates is printed, and stored as tuned.md in the study's folder. A candidate of which a run
    diverged is not chosen.

    Args:
        search: the plan of `plan_search`, carried out.
        name, scale, request, plugins, out: as of `plan_search`.

    Raises:
        ConfigError: as `make_plan`.
        RunError: a run of the search failed otherwise, or all candidates of a variant did.
    """
    fields = [name for axis in request.tune for name in axis.fields]
    scores, shown = read_tuning_candidates(search, fields)
    scores = {variant: _select_asked(of, request.tune) for variant, of in scores.items()}
    # Of equal scores `max` takes the first, as the documentation promises.
    chosen = {variant: max(of, key=of.__getitem__) for variant, of in scores.items()}
    lost = [variant for variant, of in scores.items() if of[chosen[variant]] == -math.inf]
    if lost:
        raise RunError(f"tune: all candidates of {lost[0]} diverged; give others")
    methods = {variant: search.runs[key].method for key, variant in search.variants.items()}
    own = {variant: _name_values(fields, values, methods[variant]) for variant, values in chosen.items()}
    plan = make_plan(name, scale, dataclasses.replace(request, own=own), plugins, out)
    rows = [
        [variant, *map(format_plain_value, values), text, "chosen" if values == chosen[variant] else ""]
        for (variant, values), text in shown.items()
    ]
    text = format_markdown(pd.DataFrame(rows, columns=["variant", *fields, "on validation", ""])) + "\n"
    write_atomically(plan.folder / TUNED, text)
    say(text)
    return plan


Values = tuple[Any, ...]


def read_tuning_candidates(
    search: Plan, fields: Sequence[str]
) -> tuple[dict[str, dict[Values, float]], dict[tuple[str, Values], str]]:
    """Read the scores of a search that has been carried out.

    Args:
        search: its plan.
        fields: what is tuned.

    Returns:
        variant -> values of the fields -> score, more is better, -inf where a run diverged; and each score as a text.

    Raises:
        RunError: a run failed otherwise.
    """
    found: dict[tuple[str, Values], list[float]] = {}
    sign, metric = 1.0, None
    for key, variant in search.variants.items():
        config = search.runs[key]
        untaken = _list_untaken(fields, config.method)
        values = tuple(None if name in untaken else read_grid_field(config, name) for name in fields)
        scores = found.setdefault((variant, values), [])
        if not has_outcome(config):
            error = read_left_error(config) or "it did not run"
            if "non-finite" not in error:
                raise RunError(f"tune: a run of the search failed: {error}; the same command tries it again")
            scores.append(-math.inf)
            continue
        summary = read_summary(locate_run_folder(config))
        assert summary is not None
        metric = read_headline(summary)
        sign, key = 1.0 if metric.higher else -1.0, metric.key("validation")
        if key not in (view := next(iter(summary["views"].values()))):
            raise RunError(f"tune: a run of the search tested no client with validation images, and has no {key}")
        scores.append(sign * view[key])
    best: dict[str, dict[Values, float]] = {}
    for (variant, values), scores in found.items():
        # One diverged run makes the mean -inf, so that its candidate loses to all others.
        best.setdefault(variant, {})[values] = sum(scores) / len(scores)
    shown = {
        (variant, values): metric.state(sign * score) if metric and score > -math.inf else "diverged"
        for variant, of in best.items()
        for values, score in of.items()
    }
    return best, shown


def _select_asked(scores: Mapping[Values, float], axes: Sequence[Axis]) -> dict[Values, float]:
    """Select the candidates of this call; the folder of the search may hold others of earlier ones."""
    fields = [name for axis in axes for name in axis.fields]

    def fits(values: Values, axis: Axis) -> bool:
        held = dict(zip(fields, values, strict=True))  # None: not taken by the method, or left to its default
        return any(all(held[n] in (v, None) or v is None for n, v in point.items()) for point in axis.points())

    asked = {values: score for values, score in scores.items() if all(fits(values, axis) for axis in axes)}
    return asked or dict(scores)  # a variant with a value of its own has no other


def _list_untaken(fields: Sequence[str], method: str) -> list[str]:
    """List the fields that a method ignores: hyperparameters of other methods, and fields that it does not use."""
    known = {f"hyper.{field.name}" for field in dataclasses.fields(find_options_class("method", method))}
    ignored = find_entry(METHODS, method).unused
    return [name for name in fields if name in ignored or (name.startswith("hyper.") and name not in known)]


def _name_values(fields: Sequence[str], values: Values, method: str) -> Mapping[str, Any]:
    """Pair fields with values, without the fields that a method ignores."""
    untaken = _list_untaken(fields, method)
    return {name: value for name, value in zip(fields, values, strict=True) if name not in untaken}
