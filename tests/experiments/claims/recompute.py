"""Claims held against the papers' own tables: which cells contradict them, by the rule of docs/protocol.md."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pandas as pd

from experiments import papers
from experiments.claims.claim import Claim, Comparison, list_claimed_comparisons

Cell = tuple[str, str, str]
"""Item, row, column."""
Where = tuple[str, str]
"""Item and column: a point of a table."""
SHARES: Mapping[str, float] = {"some": 0.0, "most": 0.5, "almost-all": 0.8 - 1e-9}
"""Quantifier -> more than this part of the comparisons must hold."""
METRICS = ("accuracy", "accuracy_std", "gain", "fall", "spread")
"""What the tables print."""
HALF_A_DIGIT = 0.0051
NEAR = 2.0
"""Points by which a printed number may miss a claim before it contradicts it."""


@dataclass(frozen=True)
class Tables:
    """Cells and points of one paper, as a source of one seed."""

    values: Mapping[Cell, tuple[float, float]]
    places: Mapping[Where, dict[str, tuple[str, ...]]]
    dashes: bool = True

    @classmethod
    def of(cls, paper: str) -> Tables:
        table, points = papers.read_paper_table(paper), papers.read_paper_points()
        values = {(c["item"], c["row"], c["column"]): (c["value"], c["std"]) for _, c in table.iterrows()}
        places = {
            (p["item"], p["column"]): papers.parse_paper_point(p["at"])
            for _, p in points.iterrows()
            if p["paper"] == paper
        }
        return cls(values, places)

    def value(self, method: str, key: Where, metric: str) -> pd.Series:
        """A cell, or nothing where it is missing."""
        cell = self.values.get((key[0], method, key[1]), (float("nan"),) * 2)
        return pd.Series([cell[metric == "accuracy_std"]]).dropna()


def printed(claim: pd.Series, tables: Tables) -> list[Comparison] | None:
    """Return the comparisons of a claim that the tables have numbers for; None where they have none."""
    read, items = Claim.read(claim), claim["item"].split()
    if read.metric not in METRICS:
        return None
    # What stands in a column of another metric is no accuracy.
    places = {k: place for k, place in tables.places.items() if k[0] in items and "metric" not in place}
    return [
        one for one in list_claimed_comparisons(read, Tables(tables.values, places)) if all(map(len, one.values))
    ] or None


def contradictions(claim: pd.Series, tables: Tables, near: float = NEAR) -> list[Cell] | None:
    """Return the cells that contradict a claim; None where the tables have nothing to say about it.

    Args:
        claim: a row of `papers.claims`.
        tables: of its paper.
        near: points by which a number may miss the claim; 0: printed numbers have to be as it says.
    """
    found, quantifier = printed(claim, tables), Claim.read(claim).quantifier
    if found is None:
        return None
    held = [holds(one, near) for one in found]
    bad = [(*one.key[:1], one.against, *one.key[1:]) for one, good in zip(found, held, strict=True) if not good]
    share = sum(held) / len(held)
    return [] if quantifier in SHARES and share > SHARES[quantifier] else list(dict.fromkeys(bad))


def holds(one: Comparison, near: float = NEAR) -> bool:
    """Return whether exact numbers are as a comparison has them, or miss it by `near` points at most."""
    values = [float(each.iloc[0]) for each in one.values]
    if one.top is not None:
        return sum(value > near for value in values) < one.top
    if one.target is None:
        return values[0] > 0 if near == 0 else values[0] >= -near
    return abs(values[0] - one.target) < max(near, HALF_A_DIGIT)
