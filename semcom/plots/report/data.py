"""The numbers behind a report's curves, as its script takes them.

Runs, and all that belongs to them, are told apart by their hash, and at a further test SNR that too. A place on an axis
is the number of its value. Accuracies are fractions of 1.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from semcom.plots.report.facts import sorted_values
from semcom.plots.report.names import empty, heading, placed, shown
from semcom.plots.report.subject import Subject
from semcom.runs.arrays import CONFUSION
from semcom.studies.analysis.compare import value_of
from semcom.studies.analysis.efficiency import COSTS
from semcom.studies.analysis.study import Study
from semcom.studies.results.run import Stored

MOST_POINTS = 1_000_000
"""Numbers of learning curves on a page; of more, every second evaluation is shown, or every third ..."""
MOST_CLIENTS = 300_000
"""Accuracies of clients on a page; of more, every second client is shown, or every third ..."""
MOST_CELLS = 1_000_000
"""Cells of confusion matrices on a page: those of the first runs."""
INTERVAL = ["mean", "low", "high", "n"]
Json = dict[str, Any]


def numbers(subject: Subject) -> Json:
    """Return the numbers of a study: axes, variants, runs, means, curves, clients, classes, confusion, costs."""
    study, view = subject.study, subject.view
    tests = sorted(study.tests, key=lambda run: not run.is_first_test)  # of which there are curves, clients, classes
    axes = {axis: sorted_values(study, axis) for axis in study.axes}
    places = _Places(axes, study.variants)
    return {
        "axes": [_axis(axis, values) for axis, values in axes.items()],
        "variants": study.variants,
        "views": list(dict.fromkeys(study.results["view"])),
        "runs": {_key(run): _run(run, subject, places) for run in tests if run.fields},
        "means": places.rows(study.mean(view=view), INTERVAL),
        "curves": _curves(study),
        "clients": _clients(study),
        "classes": _classes(study),
        "confusion": _confusion(study),
        "costs": {cost: places.rows(found, _COST) for cost in COSTS if (found := _cost(study, cost, view)) is not None},
    }


_COST = ["accuracy", "low", "high", "n", "cost", "efficient"]


class _Places:
    """Places of rows: the number of their variant, and for each axis the number of their value."""

    def __init__(self, axes: Mapping[str, Sequence[Any]], variants: Sequence[str]) -> None:
        self.axes = {axis: {shown(value): i for i, value in enumerate(values)} for axis, values in axes.items()}
        self.variants = {variant: i for i, variant in enumerate(variants)}

    def at(self, row: Mapping[str, Any]) -> list[int]:
        return [values[shown(row.get(axis))] for axis, values in self.axes.items()]

    def rows(self, frame: pd.DataFrame, columns: Sequence[str]) -> list[Json]:
        """Return the rows of a frame with their places and some of its columns."""
        found = frame.to_dict("records")
        return [
            {"variant": self.variants[row["variant"]], "at": self.at(row)} | {name: row[name] for name in columns}
            for row in found
        ]


def _axis(axis: str, values: Sequence[Any]) -> Json:
    """Return an axis with its values: numbers, where all of them are, or else texts."""
    numeric = all(isinstance(v, int | float) and not isinstance(v, bool) and not empty(v) for v in values)
    texts, words = [shown(value) for value in values], [placed({axis: value}) for value in values]
    found = {"name": axis, "label": heading(axis), "numeric": numeric, "words": words}
    return found | {"values": list(values) if numeric else texts}


def _key(run: Stored) -> str:
    return run.hash if run.is_first_test else f"{run.hash} at {run.test_snr_db:g} dB"


def _run(run: Stored, subject: Subject, places: _Places) -> Json:
    """Return what is shown of a run under the mouse."""
    point = {axis: run.field(axis) for axis in subject.study.axes}
    seed = run.fields.get("seed")
    done = run.status == "done" and run.knows("accuracy")
    return {
        "variant": places.variants[run.variant],
        "at": places.at(point),
        "seed": seed,
        "status": run.status,
        "accuracy": value_of(run, subject.view, "accuracy") if done else None,
        "headline": run.headline,
        "words": subject.names.text(", ".join(filter(None, (f"seed {seed}", placed(point))))),
    }


def _cost(study: Study, cost: str, view: str | None) -> pd.DataFrame | None:
    """Return accuracy and cost of each variant at each point; None where nobody pays it."""
    found = study.pareto(cost, view=view)
    return found if found["cost"].fillna(0).gt(0).any() else None


# -- of single runs --------------------------------------------------------------------------------------------------


def _curves(study: Study) -> Json:
    """Return hash -> view -> [rounds, accuracies], and the losses under the name of no view."""
    rounds = study.rounds
    losses = rounds.drop_duplicates(["hash", "round"]).dropna(subset=["loss"]) if "loss" in rounds else rounds[:0]
    tested = rounds[rounds["view"].notna()]
    every = max(1, math.ceil((len(tested) + len(losses)) / MOST_POINTS))
    found: Json = {}
    for (key, view), curve in tested.groupby(["hash", "view"], sort=False):
        found.setdefault(key, {})[view] = _thinned(curve, "accuracy", every)
    loss = {key: _thinned(curve, "loss", every) for key, curve in losses.groupby("hash", sort=False)}
    return {"every": every, "accuracy": found, "loss": loss}


def _thinned(curve: pd.DataFrame, column: str, every: int) -> list[list[Any]]:
    """Return the rounds and values of a curve: its last one, and every so many before it."""
    kept = curve.iloc[(len(curve) - 1) % every :: every]
    return [kept["round"].astype(int).tolist(), kept[column].astype(float).tolist()]


def _clients(study: Study) -> Json:
    """Return hash -> view -> [clients, accuracies]."""
    frame = study.clients
    every = max(1, math.ceil(len(frame) / MOST_CLIENTS))
    found: Json = {}
    for (key, view), rows in frame.groupby(["hash", "view"], sort=False):
        kept = rows.iloc[::every]
        found.setdefault(key, {})[view] = [kept["client"].astype(int).tolist(), kept["accuracy"].tolist()]
    return {"every": every, "accuracy": found}


def _classes(study: Study) -> Json:
    """Return hash -> view -> accuracies by class."""
    found: Json = {}
    for (key, view), rows in study.classes.groupby(["hash", "view"], sort=False):
        found.setdefault(key, {})[view] = rows["accuracy"].astype(float).tolist()
    return found


def _confusion(study: Study) -> Json:
    """Return hash -> view -> test images of all clients, a row per true class; as many runs as there is room for."""
    found: Json = {}
    kept, cells = 0, 0
    for run in (run for run in study.tests if run.is_first_test):
        prefix = f"{CONFUSION}/"
        matrices = {n.removeprefix(prefix): a.sum(0) for n, a in run.arrays().items() if n.startswith(prefix)}
        kept, cells = kept + bool(matrices), cells + sum(each.size for each in matrices.values())
        if matrices and cells <= MOST_CELLS:
            found[run.hash] = {view: each.tolist() for view, each in matrices.items()}
    return {"kept": kept, "of": found}
