"""The order of variants, and which of them may be called best and second."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import pandas as pd

from semcom.studies.analysis.compare import Cells, Views, choose_view, compare_pairs, read_compared_value
from semcom.studies.analysis.comparison import Comparison, Comparisons
from semcom.studies.analysis.statistics import Interval, compute_t_interval

MARKS = ("best", "second")


def rank_variants(found: Cells, axes: Sequence[str], view: Views, metric: str) -> pd.DataFrame:
    """Order the variants of each point, and find which of them may be called best and second.

    Best is claimed if the paired difference to the next variant is supported, over two seeds or more; second, if best
    is claimed and the same holds of the difference to the third. Holm's correction is over all the differences that
    this needs, at all points. One seed supports no rank.

    Args:
        found: the finished runs.
        axes: fields that tell the points apart.
        view: as of `Study.compare`.
        metric: as of `Study.compare`; more of it is better.

    Returns:
        Columns: axes, place, variant, mean, low, high, n, ahead, ahead_low, ahead_high, p_holm (the difference to the
        next variant, for the first two), mark (best, second or empty).
    """
    orders = {point: _order_variants(variants, view, metric) for point, variants in found.items()}
    asked = {
        (point, place): compare_pairs({point: found[point]}, axes, [(names[place], names[place + 1])], view, metric)[0]
        for point, order in orders.items()
        for names in [list(order)]
        for place in range(min(len(MARKS), len(names) - 1))
        if found[point][names[place]].keys() & found[point][names[place + 1]].keys()
    }
    ahead = dict(zip(asked, Comparisons.corrected(asked.values()), strict=True))
    rows = []
    for point, order in orders.items():
        claimed = True
        for place, (variant, (mean, n)) in enumerate(order.items()):
            difference = ahead.get((point, place))
            # Without a best there is no second, however clear its lead.
            claimed = claimed and difference is not None and _supports_rank(difference)
            of_mean = {"mean": mean.mean, "low": mean.low, "high": mean.high, "n": n}
            row = {"place": place + 1, "variant": variant, **of_mean, **_describe_next_rank(difference)}
            rows.append({**dict(zip(axes, point, strict=True)), **row, "mark": MARKS[place] if claimed else ""})
    return pd.DataFrame(rows)


def mark_ranks(means: pd.DataFrame, ranks: pd.DataFrame, by: Sequence[str]) -> pd.DataFrame:
    """Add the column `mark` to means: best or second according to the ranks, and empty elsewhere.

    Only this function decides which cells of a table are marked.

    Args:
        means: of `Study.mean`.
        ranks: of `rank_variants`, of the same runs, metric and view, with a column for each of `by`.
        by: the columns that tell the means apart.
    """
    marks = dict(zip(_list_places(ranks, by), ranks["mark"], strict=True))
    return means.assign(mark=[marks.get(place, "") for place in _list_places(means, by)])


def _list_places(frame: pd.DataFrame, by: Sequence[str]) -> list[tuple[str, ...]]:
    """List the values of some columns as texts, row by row, as an empty cell may be None or NaN."""
    columns = [frame[name].map(lambda value: "None" if pd.isna(value) else str(value)) for name in by]
    return list(zip(*columns, strict=True))


def _order_variants(variants: Any, view: Views, metric: str) -> dict[str, tuple[Interval, int]]:
    """Average each variant over its seeds, the largest mean first; return the means and the numbers of seeds."""
    values = {
        name: [read_compared_value(run, choose_view(view, name), metric) for run in runs.values()]
        for name, runs in variants.items()
    }
    means = {name: (compute_t_interval(of), len(of)) for name, of in values.items()}
    return dict(sorted(means.items(), key=lambda item: -item[1][0].mean))


def _supports_rank(difference: Comparison) -> bool:
    return len(difference.seeds) > 1 and difference.supported and difference.difference > 0


def _describe_next_rank(difference: Comparison | None) -> dict[str, float]:
    if difference is None:
        return dict.fromkeys(("ahead", "ahead_low", "ahead_high", "p_holm"), math.nan)
    ends = {"ahead_low": difference.low, "ahead_high": difference.high}
    return {"ahead": difference.difference, **ends, "p_holm": difference.p_holm}
