"""Judge hypotheses by intervals: supported, refuted or open; and look up the numbers of runs that they are about.

Differences are paired by seed and in percentage points. The hypotheses are beside their experiments;
`semcom_papers.experiments.hypotheses` finds them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pandas as pd

from semcom.config import ConfigError
from semcom.studies.analysis.statistics import compute_t_interval
from semcom.studies.results.table import read_number_in_row
from semcom_papers.experiments.claims.rule import NEAR

Row = dict[str, Any]
"""A hypothesis at a place, with the difference, its interval and the answer."""
SUPPORTED, REFUTED, OPEN, PENDING = "supported", "refuted", "open", "pending"


def answer(low: float, high: float, limit: float = 0.0, above: bool = True) -> str:
    """Answer by an interval the hypothesis that a number is above a limit, or below it."""
    sides = {True: low > limit, False: high < limit}
    return SUPPORTED if sides[above] else REFUTED if sides[not above] else OPEN


def level(low: float, high: float, within: float = NEAR) -> str:
    """Answer by an interval the hypothesis that a difference is 0 within some points."""
    return SUPPORTED if -within < low and high < within else REFUTED if low > within or high < -within else OPEN


def decide(hypothesis: str, place: str, values: pd.Series, limit: float = 0.0, above: bool = True) -> Row:
    """Decide the hypothesis that the values of the seeds, in points, are above a limit, or below it.

    Raises:
        ConfigError: there are no values.
    """
    known = values.dropna()
    if known.empty:
        raise ConfigError(f"hypotheses: {hypothesis}: its runs are missing{f' at {place}' if place else ''}")
    found = compute_t_interval(known.to_numpy())
    ends = {"difference": found.mean, "low": found.low, "high": found.high, "seeds": len(known)}
    return {"hypothesis": hypothesis, "place": place, **ends, "answer": answer(found.low, found.high, limit, above)}


def decide_level(hypothesis: str, place: str, values: pd.Series, within: float = NEAR) -> Row:
    """Decide the hypothesis that the values of the seeds are 0 within some points; see `decide`."""
    found = decide(hypothesis, place, values)
    return {**found, "answer": level(found["low"], found["high"], within)}


def pend(hypothesis: str, place: str) -> Row:
    """Make the row of a hypothesis about runs that are declared and not carried out."""
    ends = dict.fromkeys(("difference", "low", "high"), math.nan)
    return {"hypothesis": hypothesis, "place": place, **ends, "seeds": 0, "answer": PENDING}


def describe(what: str, place: str, values: pd.Series) -> Row:
    """Make the row of a number without a hypothesis, see `decide`: it has no answer."""
    return {**decide(f"(reported: {what})", place, values), "answer": ""}


def decide_at_each(
    title: str,
    values: pd.Series,
    fields: Sequence[str],
    place: str = "{}",
    of: Callable[..., Row] = decide,
    **rule: Any,
) -> Iterator[Row]:
    """Decide a hypothesis at each place by `decide` or another function.

    Args:
        title: hypothesis.
        values: in points, by place and seed.
        fields: fields that distinguish places.
        place: name of a place, a format of its fields.
        of: function that makes a row.
        rule: further arguments of `of`.
    """
    for key, part in values.groupby(list(fields), sort=False, dropna=False):
        yield of(title, place.format(*key), part, **rule)


def read_variant(
    frame: pd.DataFrame,
    variant: str,
    metric: str,
    places: Sequence[str],
    view: str | None = None,
    test_snr_db: float | None = None,
) -> pd.Series:
    """Look up a number of a variant's runs in percent, by place and seed, as `tabulate_by_seed`; see `list_numbers`."""
    read = dict.fromkeys([*places, "seed", *_list_read(frame, metric, test_snr_db)])
    part = frame.loc[frame["variant"] == variant, [*read]]
    index = pd.MultiIndex.from_frame(part[[*places, "seed"]]) if places else pd.Index(part["seed"])
    return 100 * list_numbers(part, metric, view, test_snr_db).set_axis(index)


def tabulate_by_seed(
    frame: pd.DataFrame, metric: str = "accuracy", places: Sequence[str] = (), test_snr_db: float | None = None
) -> pd.DataFrame:
    """Lay out a number of each run in percent: a row for each place and seed, a column for each variant.

    Args:
        frame: the finished runs of a sweep's table.
        metric: number of a view, or with a dot of the run, such as clusters.power_common.
        places: fields that distinguish places.
        test_snr_db: test SNR of the number (None: the first test SNR).
    """
    found = frame.assign(value=list_numbers(frame, metric, test_snr_db=test_snr_db))
    return 100 * found.pivot(index=[*places, "seed"], columns="variant", values="value")


def list_numbers(
    frame: pd.DataFrame, metric: str, view: str | None = None, test_snr_db: float | None = None
) -> pd.Series:
    """Look up a number of each run, as `tabulate_by_seed`, in a view (None: the headline)."""
    rows = frame[_list_read(frame, metric, test_snr_db)].to_dict("records")
    values = [read_number_in_row(row, metric, view, test_snr_db) for row in rows]
    return pd.Series(values, frame.index, dtype=float)


def _list_read(frame: pd.DataFrame, metric: str, test_snr_db: float | None) -> list[str]:
    """List the few columns of hundreds in which a number may be."""
    end = metric if test_snr_db is None else f"{test_snr_db:g}"
    return [name for name in frame if name == "view" or name.endswith(end)]


def over_places(values: pd.Series) -> pd.Series:
    """Average over places for each seed; NaN for a seed that lacks a place."""
    return values.unstack("seed").mean(skipna=False)
