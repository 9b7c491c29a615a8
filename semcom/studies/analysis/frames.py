"""The tidy tables of a study. docs/studies.md explains their columns, docs/metrics.md the numbers in them.

Each function returns rows that begin with the hash of their run; `Study` puts the other columns that tell runs apart in
front of them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from semcom.config import ConfigError
from semcom.config.identity import flatten_table
from semcom.runs.folder.arrays import CONFUSION
from semcom.runs.result.accuracy import select_counted
from semcom.studies.grid import TEST
from semcom.studies.results.run import Stored

Row = dict[str, Any]
Runs = Sequence[Stored]
OF_VIEW = ("accuracy", "accuracy_std", "worst10", "jain")
"""Numbers of a view that stand first in a table; of another task those that its headline has in their place."""
PER_ROUND = ("floats", "bits", "uses", "energy_j")
"""Traffic of a participating client and round that adds up over clients and rounds."""
AIRTIME = "airtime_s"
"""Traffic that adds up over rounds alone: the clients of a round send at the same time, each in a part of the band."""


def yield_run_rows(found: Runs) -> Iterator[Row]:
    """Yield a row per run, done or not: status, error, folder, headline, all fields of its configuration, all numbers.

    `view` is the name of its headline view, as in the table of a sweep (`make_table_row`).
    """
    for run in found:
        summary = {name: v for name, v in flatten_table(run.summary or {}).items() if not isinstance(v, list)}
        warnings = (run.summary or {}).get("warnings")
        state = {"status": run.status, "error": run.error, "folder": str(run.folder), "view": run.headline}
        row = {**run.fields, **summary, **({"warnings": "; ".join(warnings)} if warnings else {})}
        yield {**row, **state, "hash": run.hash}


def yield_result_rows(found: Runs) -> Iterator[Row]:
    """Yield a row per finished run, view and test SNR: its numbers, and whether the view is the headline's.

    At the first test SNR of a run all are known, at the others accuracies only.
    """
    for run in found:
        for number, view in enumerate((run.summary or {}).get("views", {})):
            plain = {name: v for name, v in flatten_table(run.view(view) or {}).items() if not isinstance(v, list)}
            if plain:
                place = {"hash": run.hash, "view": view, TEST: run.test_snr_db, "headline": number == 0}
                yield {**place, **plain}


def yield_round_rows(found: Runs) -> Iterator[Row]:
    """Yield a row per run, round and view; a round without evaluation has one, without a view."""
    for run in found:
        for line in run.lines():
            scalars = {name: value for name, value in line.items() if isinstance(value, int | float)}
            for view, numbers in (line.get("views") or {None: {}}).items():
                of_view = {name: value for name, value in numbers.items() if isinstance(value, int | float)}
                yield {"hash": run.hash, "round": line["round"], "view": view, **of_view, **scalars}


def yield_client_rows(found: Runs) -> Iterator[Row]:
    """Yield a row per finished run, view and tested client: its accuracy, its images and its place where known."""
    for run in found:
        if not (run.summary or {}).get("views"):
            continue
        images, places = _count_client_images(run), (run.summary or {}).get("cell", {})
        for view in run.summary["views"]:  # type: ignore[index]
            for client, value in zip(*read_client_accuracies(run, view), strict=True):
                own = {"client": client, run.metrics[0].name: value}
                where = {name: values[client] for name, values in places.items()}
                yield {"hash": run.hash, "view": view, **own, **images.get(client, {}), **where}


def read_client_accuracies(run: Stored, view: str | None = None) -> tuple[list[int], list[float]]:
    """Read the ids of a finished run's tested clients and their accuracies in a view (None: the headline).

    Both are empty where the run has none.
    """
    found = (run.view(view) or {}).get("clients", [])
    ids = (run.summary or {}).get("evaluated") if found else None
    return (list(range(len(found))) if ids is None else list(ids)), list(found)


def _count_client_images(run: Stored) -> dict[int, Row]:
    """Count each client's training and test images, in all and by class, in a run that kept them."""
    kept = run.arrays()
    if "counts/train" not in kept:
        return {}
    tables = {part: kept[f"counts/{part}"] for part in ("train", "test")}
    sums = {part: counts.sum(1) for part, counts in tables.items()}
    return {
        client: {part: int(sums[part][i]) for part in tables}
        | {f"{part}.{c}": int(n) for part, counts in tables.items() for c, n in enumerate(counts[i])}
        for i, client in enumerate(kept["clients"].tolist())
    }


def yield_class_rows(found: Runs) -> Iterator[Row]:
    """Yield a row per finished run, view and class: the mean over the evaluations that the headline averages."""
    for run in found:
        lines = run.lines() if run.summary is not None else []
        since = (run.summary or {}).get("stopped", {}).get("best_on_validation", 0)
        for view in (run.summary or {}).get("views", {}):
            views = {line["round"]: line["views"][view] for line in lines if view in line.get("views", {})}
            of = {round_: found["classes"] for round_, found in views.items() if "classes" in found}
            # A view of the last stage is its own evaluation, even where the rounds had one of that name.
            last = view in (run.summary or {}).get("finish", {}).get("views", {})
            counted = list(of.values())[-1:] if last else select_counted(of, since)
            means = np.array(counted, dtype=float).mean(0).tolist() if counted else []
            yield from ({"hash": run.hash, "view": view, "class": c, "accuracy": mean} for c, mean in enumerate(means))


def yield_confusion_rows(found: Runs) -> Iterator[Row]:
    """Yield a row per run that kept it, view, true and predicted class: the test images of all clients.

    Raises:
        ConfigError: no run kept it.
    """
    kept_one = False
    for run in found:
        for name, counts in run.arrays().items():
            if not name.startswith("confusion/"):
                continue
            kept_one, view = True, name.removeprefix("confusion/")
            for (true, predicted), count in np.ndenumerate(counts.sum(0)):
                place = {"true": true, "predicted": predicted, "count": int(count)}
                yield {"hash": run.hash, "view": view, **place}
    if not kept_one:
        command = f"semcom train ... --keep {CONFUSION}"
        raise ConfigError(f"confusion: no run of the study kept its matrices; repeat runs with {command}")


def yield_traffic_rows(found: Runs) -> Iterator[Row]:
    """Yield a row per finished run and direction: the mean per participating client and round, and the run's totals.

    Totals are over all clients and rounds, the airtime's over all rounds. They are NaN where the number of
    participants is not known.
    """
    for run in found:
        summary = run.summary or {}
        for direction, counts in summary.get("traffic", {}).items():
            totals = {f"total_{name}": sum_traffic(run, counts, name) for name in counts}
            yield {"hash": run.hash, "direction": direction, **counts, **totals}


def sum_traffic(run: Stored, counts: Mapping[str, float], name: str) -> float:
    """Sum a count per participating client and round over a whole run; NaN if it is not known.

    It is over all clients and rounds; the airtime is over rounds alone.
    """
    at_once = 1 if name == AIRTIME else run.participants
    rounds = (run.summary or {}).get("rounds")
    return math.nan if at_once is None or rounds is None or name not in counts else counts[name] * at_once * rounds


TABLES: Mapping[str, tuple[Callable[[Runs], Iterator[Row]], tuple[str, ...]]] = {
    "runs": (yield_run_rows, ("status", "error", "folder", "view", "accuracy")),
    "results": (yield_result_rows, ("view", TEST, "headline", *OF_VIEW)),
    "rounds": (yield_round_rows, ("round", "view", "loss", *OF_VIEW)),
    "clients": (yield_client_rows, ("view", "client", "accuracy")),
    "classes": (yield_class_rows, ("view", "class", "accuracy")),
    "confusion": (yield_confusion_rows, ("view", "true", "predicted", "count")),
    "traffic": (yield_traffic_rows, ("direction", *PER_ROUND, AIRTIME)),
}
"""Table -> its rows, and the columns that it has even without any."""
