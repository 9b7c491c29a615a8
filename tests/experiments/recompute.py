"""Claims held against the papers' own tables: which cells contradict them."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import pandas as pd

from experiments import papers

Cell = tuple[str, str, str]
"""Item, row, column."""
Where = tuple[str, str]
"""Item and column: a point of a table."""
SHARES: Mapping[str, float] = {"some": 0.0, "most": 0.5, "almost-all": 0.8 - 1e-9}
"""Quantifier -> more than this part of the comparisons must hold."""
LOW_IS_GOOD = ("accuracy_std", "fall", "spread")
HALF_A_DIGIT = 0.0051


@dataclass(frozen=True)
class Comparison:
    """One of the comparisons that a claim consists of."""

    holds: bool
    cell: Cell
    """The cell that speaks against it, if it does not hold."""


@dataclass(frozen=True)
class Tables:
    """Cells and points of one paper."""

    values: Mapping[Cell, tuple[float, float]]
    places: Mapping[Where, dict[str, tuple[str, ...]]]

    @classmethod
    def of(cls, paper: str) -> Tables:
        table, points = papers.table(paper), papers.points()
        values = {(c["item"], c["row"], c["column"]): (c["value"], c["std"]) for _, c in table.iterrows()}
        places = {(p["item"], p["column"]): papers.at(p["at"]) for _, p in points.iterrows() if p["paper"] == paper}
        return cls(values, places)


def contradictions(claim: pd.Series, tables: Tables) -> list[Cell] | None:
    """Return the cells that contradict a claim; None where the tables have nothing to say about it."""
    here = papers.at(claim["at"])
    asked = {field: values for field, values in here.items() if field not in papers.ASPECTS}
    items = claim["item"].split()
    where = [place for place in tables.places if place[0] in items and _fits(tables.places[place], asked)]
    found = list(_comparisons(claim, here, asked, where, tables))
    if not found:
        return None
    bad = list(dict.fromkeys(comparison.cell for comparison in found if not comparison.holds))
    (quantifier,) = here.get("quantifier", ("all",))
    share = sum(comparison.holds for comparison in found) / len(found)
    return [] if quantifier in SHARES and share > SHARES[quantifier] else bad


def _fits(point: Mapping[str, tuple[str, ...]], asked: Mapping[str, tuple[str, ...]]) -> bool:
    """Return whether a point is one of those asked for.

    Where several kinds of partition are asked for, an option that the point's partition does not have is passed over.
    """
    if "metric" in point:  # what stands there is no accuracy
        return False
    mixed = len(asked.get("partition.kind", ())) > 1
    needed = {f: values for f, values in asked.items() if f in point or not (mixed and f.startswith("partition."))}
    return all(set(point.get(field, ())) & set(values) for field, values in needed.items())


def _comparisons(
    claim: pd.Series,
    here: dict[str, tuple[str, ...]],
    asked: dict[str, tuple[str, ...]],
    where: list[Where],
    tables: Tables,
) -> Iterator[Comparison]:
    left, right = papers.names(claim["left"]), papers.names(claim["right"])
    (metric,) = here.get("metric", ("accuracy",))
    relation, value = claim["relation"], claim["value"]
    if metric not in ("accuracy", "accuracy_std", "gain", "fall", "spread"):
        return
    along = metric in ("fall", "spread") or relation in ("falls_with", "rises_with")
    groups = _groups(here["axis"][0], asked, where, tables) if along else [[place] for place in where]
    if metric == "fall" and here["axis"][0] not in asked:
        groups = [group[::-1] for group in groups]

    def measure(method: str, group: list[Where]) -> float:
        """Return what is compared, in points; NaN where a cell is missing."""
        cells = [tables.values.get((item, method, column), (float("nan"),) * 2) for item, column in group]
        line = [cell[metric == "accuracy_std"] for cell in cells]
        if metric == "gain":
            item, column = group[0]
            return line[0] - max(tables.values[item, other, column][0] for other in right)
        return {"fall": line[0] - line[-1], "spread": max(line) - min(line)}.get(metric, line[0])

    def percent(method: str, group: list[Where]) -> float:
        """Return `measure`, in percent of where a fall begins if the claim says so."""
        item, column = group[0]
        whole = 100 if claim["unit"] != "percent-relative" else tables.values[item, method, column][0]
        return 100 * measure(method, group) / whole

    if relation in ("falls_with", "rises_with"):
        sign = 1 if relation == "rises_with" else -1
        for group, method in itertools.product(groups, left):
            for one, other in itertools.pairwise(group):
                step = sign * (measure(method, [other]) - measure(method, [one]))
                if step == step:
                    yield Comparison(step > 0, (other[0], method, other[1]))
        return
    if here.get("quantifier") == ("any",):  # at each point one of `left` is enough
        for group in groups:
            rivals = {m: measure(m, group) for m in right}
            best = max(measure(m, group) for m in left)
            for rival, theirs in rivals.items():
                yield Comparison(best > theirs, (group[0][0], rival, group[0][1]))
        return
    compare = _relation(relation, metric)
    for group, method in itertools.product(groups, left):
        item, column = group[-1]
        mine = percent(method, group)
        if mine != mine:
            continue
        if relation in ("by", "equals") or not right:
            rest = max((measure(other, group) for other in right), default=0.0)
            yield Comparison(compare(mine - rest, value), (item, method, column))
        elif relation == "top":
            everyone = [measure(other, group) for other in right]
            before = sum(other < mine if metric in LOW_IS_GOOD else other > mine for other in everyone)
            yield Comparison(before < value, (item, method, column))
        else:
            for other in right:
                theirs = measure(other, group)
                if theirs == theirs and other != method:
                    against = method if other == "averaged" else other
                    yield Comparison(compare(mine, theirs), (item, against, column))


def _relation(relation: str, metric: str) -> Callable[[float, float], bool]:
    """Return whether two numbers are as the relation says."""
    if relation == "above" or relation == "best" and metric not in LOW_IS_GOOD:
        return lambda mine, theirs: mine > theirs
    if relation in ("below", "best"):
        return lambda mine, theirs: mine < theirs
    return lambda mine, theirs: abs(mine - theirs) < HALF_A_DIGIT


def _groups(axis: str, asked: dict[str, tuple[str, ...]], where: list[Where], tables: Tables) -> list[list[Where]]:
    """Return the points along the axis, one list for each combination of the other fields that `at` lists."""
    others = [field for field in asked if field != axis and len(asked[field]) > 1]
    groups: dict[tuple[tuple[str, ...], ...], list[Where]] = {}
    for place in where:
        if axis in tables.places[place]:
            groups.setdefault(tuple(tables.places[place][field] for field in others), []).append(place)

    def position(place: Where) -> float:
        (value,) = tables.places[place][axis]
        return asked[axis].index(value) if axis in asked else float(value)

    found = [sorted(group, key=position) for group in groups.values()]
    for group in found:
        assert len({position(place) for place in group}) == len(group), f"two cells at one place of {axis}: {group}"
    return [group for group in found if len(group) > 1]
