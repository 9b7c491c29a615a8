"""The pairs of runs behind a comparison: the same seed gave both the same division, weights, batches and noise.

S: number of seeds that both variants have finished, K: number of tested clients.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np

from semcom.config import ConfigError
from semcom.config.identity import flatten_table
from semcom.studies.analysis.comparison import Comparison, Comparisons
from semcom.studies.analysis.frames import read_client_accuracies
from semcom.studies.analysis.statistics import (
    LARGEST_BCA,
    LEAST_CLIENTS,
    Interval,
    bootstrap_clients,
    bootstrap_two_levels,
    compute_t_interval,
)
from semcom.studies.names import SHIPPED, Labels
from semcom.studies.results.run import Stored
from semcom.studies.results.table import read_number_in_row

Point = tuple[Any, ...]
Cells = dict[Point, dict[str, dict[int, Stored]]]
"""Values of the axes -> variant -> seed -> its finished run."""
Views = str | Mapping[str, str] | None
"""Name of a view (None: each run's headline); or variant -> its view, of those that are not to have their headline."""


def choose_view(view: Views, variant: str) -> str | None:
    """Choose the view of a variant (None: its headline)."""
    return view if view is None or isinstance(view, str) else view.get(variant)


def check_views(view: Views, variants: Collection[str]) -> None:
    """Check that each variant that is given a view is there. Raises ConfigError."""
    for name in view if isinstance(view, Mapping) else ():
        if name not in variants:
            raise ConfigError(f"view: {name!r} is not compared; {', '.join(variants)} are")


def group_runs_to_compare(runs: Sequence[Stored], axes: Sequence[str]) -> Cells:
    """Group finished runs by point, variant and seed, in their order.

    Raises:
        ConfigError: two runs have the same place, as of the same plug-in before and after an edit.
    """
    found: Cells = {}
    for run in runs:
        point = tuple(run.field(name) for name in axes)
        seeds = found.setdefault(point, {}).setdefault(run.variant, {})
        other = seeds.setdefault(run.fields.get("seed", 0), run)
        if other is not run:
            only = "the content of plug-ins or files, or further test SNRs"
            text = f"differ in no field, only in {only}; put one into another folder"
            raise ConfigError(f"study: {other.folder} and {run.folder} {text}")
    return found


def compare_pairs(
    found: Cells,
    axes: Sequence[str],
    pairs: Sequence[tuple[str, str]],
    view: Views,
    metric: str,
    labels: Labels = SHIPPED,
) -> Comparisons:
    """Compare pairs of variants at every point where both have finished a seed.

    Holm's correction is over all of them.

    Raises:
        ConfigError: no point has both variants of a pair, or there is no such view or metric.
    """
    made = []
    for first, second in pairs:
        of_pair = [
            _compare_at_point(first, second, dict(zip(axes, point, strict=True)), variants, view, metric, labels)
            for point, variants in found.items()
            if variants.get(first, {}).keys() & variants.get(second, {}).keys()
        ]
        if not of_pair:
            raise ConfigError(f"compare: {first} and {second} have finished no seed in common at any point")
        made += of_pair
    return Comparisons.corrected(made)


def _compare_at_point(
    first: str,
    second: str,
    point: Mapping[str, Any],
    variants: Mapping[str, Mapping[int, Stored]],
    view: Views,
    metric: str,
    labels: Labels,
) -> Comparison:
    """Compare two variants at one point, before any correction."""
    views = [choose_view(view, name) for name in (first, second)]
    seeds = [seed for seed in variants[first] if seed in variants[second]]
    runs = [[variants[name][seed] for seed in seeds] for name in (first, second)]
    values = np.array(
        [[read_compared_value(run, seen, metric) for run in of] for of, seen in zip(runs, views, strict=True)]
    )
    # Summaries have clients' numbers of the headline metric only.
    by_client = (
        _compare_clients(runs, views) if all(metric == run.metrics[0].name for of in runs for run in of) else None
    )
    interval, procedure = _compute_interval(values[0] - values[1], by_client)
    both = bootstrap_two_levels(by_client) if by_client is not None else Interval(math.nan)
    signs = np.sign(by_client) if by_client is not None else np.zeros((0, 0))
    return Comparison(
        first=first,
        second=second,
        view_first=views[0] or "",
        view_second=views[1] or "",
        point=point,
        metric=metric,
        seeds=tuple(seeds),
        clients=signs.shape[1],
        mean_first=float(values[0].mean()),
        mean_second=float(values[1].mean()),
        difference=interval.mean,
        low=interval.low,
        high=interval.high,
        p=interval.p,
        p_holm=interval.p,
        family=1,
        procedure=procedure,
        bootstrap_low=both.low,
        bootstrap_high=both.high,
        wins=int((signs > 0).sum()),
        ties=int((signs == 0).sum()),
        losses=int((signs < 0).sum()),
        labels=labels,
    )


def _compute_interval(differences: np.ndarray, by_client: np.ndarray | None) -> tuple[Interval, str]:
    """Compute the interval of differences `[S]` (per client `[S, K]`), and name its source or why it is missing."""
    seeds = len(differences)
    if seeds == 1 and by_client is not None:
        made, clients = bootstrap_clients(by_client[0]), by_client.shape[1]
        if clients < LEAST_CLIENTS:
            return made, f"{clients} clients of one seed are too few"
        kind = "BCa" if clients <= LARGEST_BCA else "percentile"
        how = f"{kind} bootstrap over the {clients} clients of this seed"
        return made, "the clients do not differ" if math.isnan(made.low) else how
    made = compute_t_interval(differences)
    if seeds == 1:
        return made, "there is one seed"
    return made, f"the {seeds} seeds do not differ" if math.isnan(made.low) else f"paired t over {seeds} seeds"


def _compare_clients(runs: Sequence[Sequence[Stored]], views: Sequence[str | None]) -> np.ndarray | None:
    """Compute the differences per client `[S, K]`; None if clients are not stored or differ between the runs."""
    found = [[read_client_accuracies(run, view) for run in of] for of, view in zip(runs, views, strict=True)]
    pairs = list(zip(*found, strict=True))
    same = all(one[0] and one[0] == other[0] and len(one[0]) == len(pairs[0][0][0]) for one, other in pairs)
    if not same:
        return None
    # Accuracies are shares of a few images: what rounding leaves of equal ones must not make a winner.
    values = [[np.array(accuracies, dtype=float) for _, accuracies in pair] for pair in pairs]  # None, of NaN, is NaN
    return np.round(np.array([one - other for one, other in values]), 12)


def read_compared_value(run: Stored, view: str | None, metric: str) -> float:
    """Read a number of a finished run's view: accuracy, worst10, jain, best ...

    Args:
        run: a finished one.
        view: its name (None: the headline, and numbers of the whole run, such as clusters.knn_purity).
        metric: the number's name, with dots where the summary is nested.

    Raises:
        ConfigError: there is no such view, or no such number.
    """
    summary = run.summary or {}
    if view is not None and view not in summary.get("views", {}):
        known = ", ".join(summary.get("views", {}))
        raise ConfigError(f"view: {run.variant} has no view {view!r}; it has {known or 'none'}")
    for snr in (run.test_snr_db, None) if run.is_first_test else (run.test_snr_db,):
        found = read_number_in_row(run.flat, metric, view, snr)
        if isinstance(found, int | float) and not math.isnan(found):
            return float(found)
    own = flatten_table({**(run.view(view) or {}), **(summary if view is None else {})})
    plain = [name for name, value in own.items() if isinstance(value, int | float) and not name.startswith("views.")]
    raise ConfigError(f"metric: {run.variant} has no {metric!r}; it has {', '.join(plain)}")
