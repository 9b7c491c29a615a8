"""Read the papers' own tables as a source of comparisons for claims."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from semcom_papers.experiments import papers
from semcom_papers.experiments.claims.claim import (
    Claim,
    Comparison,
    Group,
    Source,
    Values,
    fits_point,
    list_comparisons,
)

Cell = tuple[str, str, str]
"""Item, row, column."""
Where = tuple[str, str]
"""Item and column: a point of a table."""
METRICS = ("accuracy", "accuracy_std", "gain", "fall", "spread")
"""Metrics that the tables have numbers of."""


@dataclass(frozen=True)
class Tables:
    """Cells and points of one paper, as a source of one seed."""

    values: Mapping[Cell, tuple[float, float]]
    places: Mapping[Where, dict[str, tuple[str, ...]]]

    @classmethod
    def of(cls, paper: str) -> Tables:
        """Read the tables of a paper."""
        table, points = papers.read_paper_table(paper), papers.read_paper_points()
        values = {(c["item"], c["row"], c["column"]): (c["value"], c["std"]) for _, c in table.iterrows()}
        places = {
            (p["item"], p["column"]): papers.parse_point(p["at"]) for _, p in points.iterrows() if p["paper"] == paper
        }
        return cls(values, places)

    def value(self, method: str, key: Where, metric: str, beside: tuple[Where, ...] = ()) -> Values:
        """Look up a cell, which may be a mean; empty if it is missing."""
        cell = self.values.get((key[0], method, key[1]), (math.nan,) * 2)
        return Values([cell[metric == "accuracy_std"]]).drop_nan()

    def is_dash(self, method: str, key: Where, metric: str) -> bool:
        """Check whether a cell is missing."""
        return not len(self.value(method, key, metric))


def list_printed_comparisons(claim: Mapping[str, Any], tables: Tables) -> list[Comparison]:
    """List the comparisons of a claim that the tables have numbers for."""
    read, items = Claim.read(claim), claim["item"].split()
    if read.metric not in METRICS:
        return []
    # A column of another metric has no accuracies.
    places = {k: place for k, place in tables.places.items() if k[0] in items and "metric" not in place}
    return [one for one in list_comparisons(read, replace(tables, places=places)) if all(map(len, one.values))]


def list_paper_effects(
    claim: Mapping[str, Any], comparisons: Sequence[Comparison], source: Source, tables: Tables
) -> list[list[float]]:
    """List a paper's numbers for the values of comparisons of runs, NaN for numbers not printed.

    Args:
        claim: a row of `papers.read_paper_claims`.
        comparisons: comparisons of runs.
        source: the runs.
        tables: tables of the claim's paper.
    """
    run = [source.places[key] for key in dict.fromkeys(key for one in comparisons for key in one.keys)]
    places = {cell: place for cell, place in tables.places.items() if any(fits_point(of, place) for of in run)}
    printed: dict[tuple[str, str], list[Comparison]] = {}
    for one in list_printed_comparisons(claim, replace(tables, places=places)):
        printed.setdefault((one.method, one.against), []).append(one)

    def find(one: Comparison) -> list[float]:
        there = printed.get((one.method, one.against), [])
        same = next((each for each in there if _is_there(one.keys, each.keys, source, tables)), None)
        if same is None:
            return [math.nan] * len(one.values)
        found = [values.tolist()[0] for values in same.values]
        if one.top is None:
            return found
        behind = dict(zip(same.rivals, found, strict=True))  # for `top`, numbers below 0 support the claim
        return [-behind.get(name, math.nan) for name in one.rivals]

    return [find(one) for one in comparisons]


def _is_there(keys: Group, printed: Group, source: Source, tables: Tables) -> bool:
    return len(keys) == len(printed) and all(
        fits_point(source.places[key], tables.places[cell])  # type: ignore[index]
        for key, cell in zip(keys, printed, strict=True)
    )
