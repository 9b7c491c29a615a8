"""What a claim compares, of whatever numbers: those of a paper's own tables, or those of runs.

A claim of `semcom_papers.experiments.papers` is about comparisons: one for each point, method, rival and step along an
axis. Here each becomes a difference per seed. experiments/papers/README.md explains the words of a claim.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike

from semcom_papers.experiments import papers

LOW_IS_GOOD = ("accuracy_std", "fall", "spread", "roughness", "floats")
"""Metrics that are best where they are lowest."""
DERIVED = {"gain": "accuracy", "fall": "accuracy", "spread": "accuracy", "silhouette-gain": "silhouette"}
"""Metric -> the number that it is computed from."""
FORMULA = "_formula"
"""Ending of the name of a number that the paper's formula gives for a metric."""
Key = Hashable
"""A point of a source."""
Group = Sequence[Key]
"""A point, or points along an axis in their order."""


class Values:
    """A few numbers by seed, with the arithmetic of `pandas.Series`, which takes a hundred times as long for these.

    Args:
        numbers: the numbers.
        index: their seeds (None: counted from 0).
    """

    __slots__ = ("index", "numbers")

    def __init__(self, numbers: ArrayLike = (), index: Sequence[Hashable] | None = None) -> None:
        self.numbers = np.asarray(numbers, dtype=float)
        self.index: list[Hashable] = [*(range(len(self.numbers)) if index is None else index)]

    def __len__(self) -> int:
        return len(self.numbers)

    def __getitem__(self, seed: Hashable) -> float:
        return float(self.numbers[self.index.index(seed)])

    def __sub__(self, other: Values | float) -> Values:
        """Subtract a number, or those of the seeds that both have, in the order of these unless both have the same."""
        if not isinstance(other, Values):
            return Values(self.numbers - other, self.index)
        if self.index == other.index:
            return Values(self.numbers - other.numbers, self.index)
        both = sorted({*self.index} & {*other.index}, key=str)
        return Values([self[seed] - other[seed] for seed in both], both)

    def __add__(self, number: float) -> Values:
        return Values(self.numbers + number, self.index)

    def __rmul__(self, factor: float) -> Values:
        return Values(factor * self.numbers, self.index)

    def drop_nan(self) -> Values:
        """Leave out the seeds without a number."""
        known = ~np.isnan(self.numbers)
        return self if known.all() else Values(self.numbers[known], list(itertools.compress(self.index, known)))

    def mean(self) -> float:
        """Average the numbers, without the unknown ones; NaN without any."""
        known = self.drop_nan().numbers
        return float(known.mean()) if len(known) else math.nan

    def tolist(self) -> list[float]:
        """List the numbers."""
        return self.numbers.tolist()


class Source(Protocol):
    """Numbers that claims can be held against."""

    @property
    def places(self) -> Mapping[Any, Mapping[str, tuple[str, ...]]]:
        """Point -> its fields, each with the values that it stands for."""

    def is_dash(self, method: str, key: Any, metric: str) -> bool:
        """Check whether a method is out of the comparison at a point, like a dash in a table."""

    def value(self, method: str, key: Any, metric: str, beside: tuple[Any, ...] = ()) -> Values:
        """Look up a number of a method at a point by seed, accuracies in percent; empty if it is unknown.

        A mean of methods is of those that are no dash at the points `beside` it either, as it is compared with theirs.
        """


@dataclass(frozen=True)
class Comparison:
    """One of the comparisons that make up a claim.

    Attributes:
        values: differences by seed. Without a target, positive differences support the claim. For `top`, a series per
            rival, and positive differences support the rival.
        target: number that the values should have (None: they should be positive).
        top: number of places that the method should be among (None for other relations).
        method: method under test.
        against: rival; the method itself in a comparison without a rival.
        key: point; for a step along an axis the later point.
        lead: whether the target is a lead over the best rival.
        exact: whether the numbers are counts, so that equal numbers are known exactly.
        point: size of a point: 1 for percentages, a hundredth of the rival's or the formula's number for counts.
        absent: rivals without runs.
        rivals: for `top`, the rivals in the order of `values`.
        keys: all points of the comparison.
        stated: whether the values are differences from a number of the paper's.
    """

    values: tuple[Values, ...]
    target: float | None
    top: int | None
    method: str
    against: str
    key: Key
    lead: bool = False
    exact: bool = False
    point: float = 1.0
    absent: tuple[str, ...] = ()
    rivals: tuple[str, ...] = ()
    keys: Group = ()
    stated: bool = False


@dataclass(frozen=True)
class Claim:
    """A parsed claim.

    Attributes:
        relation: one of `papers.RELATIONS`.
        left: methods that the claim is about.
        right: their rivals.
        value: stated number; NaN without a number.
        relative: whether `value` is a percentage of an accuracy.
        metric: one of `papers.METRICS`.
        axis: field that varies.
        quantifier: one of `papers.QUANTIFIERS`.
        asked: field -> values of the points that the claim is about.
        formula: whether the paper's formula gives the stated number.
    """

    relation: str
    left: Sequence[str]
    right: Sequence[str]
    value: float
    relative: bool
    metric: str
    axis: str | None
    quantifier: str
    asked: Mapping[str, tuple[str, ...]]
    formula: bool

    @classmethod
    def read(cls, row: Mapping[str, Any]) -> Claim:
        """Parse a row of `papers.read_paper_claims`."""
        at = papers.parse_point(row["at"])
        return cls(
            relation=row["relation"],
            left=row["left"].split(),
            right=row["right"].split(),
            value=row["value"],
            relative=row["unit"] == "percent-relative",
            metric=at.get("metric", ("accuracy",))[0],
            axis=at.get("axis", (None,))[0],
            quantifier=at.get("quantifier", ("all",))[0],
            asked={field: values for field, values in at.items() if field not in papers.ASPECTS},
            formula="formula" in at and row["relation"] == "equals",
        )

    @property
    def of_accuracy(self) -> bool:
        """True for claims about accuracies or differences of accuracies."""
        return DERIVED.get(self.metric, self.metric) in ("accuracy", "class_accuracy", "accuracy_of_each")

    @property
    def along(self) -> bool:
        """True for claims about several points along an axis at once."""
        return self.metric in ("fall", "spread") or self.relation in ("falls_with", "rises_with")

    @property
    def across(self) -> bool:
        """True for claims that compare points with each other."""
        return self.along or self.metric in ("gain", "silhouette-gain") and self.axis is not None

    @property
    def part(self) -> str | None:
        """The field of `papers.PARTS` whose parts of runs the claim is about; None for whole runs."""
        named = (name for name in papers.PARTS if name == self.axis or name in self.asked)
        return next(named, "new_client" if self.metric == "accuracy_of_each" else None)

    @property
    def low(self) -> bool:
        """True if lower values support the claim."""
        return self.relation == "below" or (self.relation == "best" and self.metric in LOW_IS_GOOD)


def list_comparisons(claim: Claim, source: Source) -> list[Comparison]:
    """List the comparisons of a claim at the points of a source; values are empty where the source has no numbers."""
    where, found = list_claim_points(claim, source), _Comparisons(claim, source)
    if claim.relation in ("falls_with", "rises_with"):
        made = found.steps(group_claim_points(claim, where, source))
    else:
        points = group_claim_points(claim, where, source) if claim.along else [[key] for key in where]
        made = found.of(points)
    return [replace(one, exact=claim.metric == "floats") for one in made]


def list_claim_points(claim: Claim, source: Source) -> list[Key]:
    """List the points of a source that a claim is about."""
    return [
        key
        for key, place in source.places.items()
        if fits_point(place, claim.asked) and next((p for p in papers.PARTS if p in place), None) == claim.part
    ]


def fits_point(place: Mapping[str, tuple[str, ...]], asked: Mapping[str, tuple[str, ...]]) -> bool:
    """Check whether a point has one of the asked values in each field.

    If several kinds of partition are asked for, options that the point's partition does not have are ignored.
    """
    mixed = len(asked.get("partition.kind", ())) > 1
    needed = {f: values for f, values in asked.items() if f in place or not (mixed and f.startswith("partition."))}
    return all(set(place.get(field, ())) & set(values) for field, values in needed.items())


def group_claim_points(claim: Claim, where: Sequence[Key], source: Source) -> list[list[Key]]:
    """Group points into lines along the claim's axis, two or more points for each combination of the other fields.

    Points are in the order of the claim's values of the axis, or ascend; for a fall they descend.

    Raises:
        ValueError: two points have the same place on the axis.
    """
    axis, asked = claim.axis or "", claim.asked
    others = [field for field in asked if field != axis and len(asked[field]) > 1]
    made: dict[tuple[Any, ...], list[Key]] = {}
    for key in where:
        if axis in source.places[key]:
            made.setdefault(tuple(source.places[key].get(field) for field in others), []).append(key)

    def position(key: Key) -> float:
        (value,) = source.places[key][axis]
        return asked[axis].index(value) if axis in asked else float(value)

    for group in made.values():
        if len({position(key) for key in group}) < len(group):
            raise ValueError(f"two numbers at one place of {axis}: {group}")
    down = claim.metric == "fall" and axis not in asked
    return [sorted(group, key=position, reverse=down) for group in made.values() if len(group) > 1]


def _align_points(line: Sequence[Values]) -> list[Values]:
    """Pair the values of one method at several points by seed, across devices.

    The index has the seed and all devices, so that the results pair with those of other methods on the same devices.
    """
    named = [{str(name).split()[0]: name for name in values.index} for values in line]
    seeds = [seed for seed in named[0] if all(seed in each for each in named)]
    labels = [" ".join(str(each[seed]) for each in named) for seed in seeds]
    return [Values([values[each[seed]] for seed in seeds], labels) for values, each in zip(line, named, strict=True)]


class _Comparisons:
    """The comparisons of one claim."""

    def __init__(self, claim: Claim, source: Source) -> None:
        self.claim, self.source = claim, source

    def measure(self, method: str, group: Group) -> Values:
        """Measure the claim's metric by seed; empty if a number is missing."""
        metric = DERIVED.get(self.claim.metric, self.claim.metric)
        line = [self.source.value(method, key, metric, tuple(group)) for key in group]
        line = _align_points(line) if len(line) > 1 else line
        if self.claim.metric in ("gain", "silhouette-gain"):
            rivals = [other for other in self.claim.right if other != method and self._counts(other, group[:1])]
            return (line[0] - self._best([self.source.value(other, group[0], metric) for other in rivals])).drop_nan()
        if self.claim.metric == "fall":
            return (line[0] - line[-1]).drop_nan()
        if self.claim.metric == "spread":
            whole = np.array([values.numbers for values in line])
            return Values(whole.max(axis=0) - whole.min(axis=0), line[0].index).drop_nan()
        return line[0]

    def _best(self, rivals: Sequence[Values]) -> Values:
        """Find the rival with the highest mean; empty if a rival has no runs, as it might be the best."""
        if not rivals or not all(map(len, rivals)):
            return Values()
        return max(rivals, key=lambda values: values.mean())  # the best of each seed would be no method's

    def _counts(self, method: str, group: Group) -> bool:
        metric = DERIVED.get(self.claim.metric, self.claim.metric)
        return not any(self.source.is_dash(method, key, metric) for key in group)

    def steps(self, lines: Sequence[Group]) -> Iterator[Comparison]:
        """Compare each method with itself at the next point along the axis."""
        sign = 1 if self.claim.relation == "rises_with" else -1
        for line, method in itertools.product(lines, self.claim.left):
            for one, other in itertools.pairwise(line):
                if not self._counts(method, [one, other]):
                    continue
                before, after = _align_points([self.measure(method, [key]) for key in (one, other)])
                step = sign * (after - before)
                yield Comparison((step,), None, None, method, method, other, keys=(one, other))

    def of(self, points: Sequence[Group]) -> Iterator[Comparison]:
        """Compare the claim's methods at each point."""
        for group in points:
            left = [name for name in self.claim.left if self._counts(name, group)]
            if self.claim.quantifier == "any":  # at each point one of `left` is enough
                known = [name for name in left if len(self.measure(name, group))] or left[:1]
                left = sorted(known, key=lambda name: -self.measure(name, group).mean())[:1]
            for method in left:
                yield from self._of(method, group)

    def _of(self, method: str, group: Group) -> Iterator[Comparison]:
        claim, mine, key = self.claim, self.measure(method, group), group[-1]
        others = [other for other in claim.right if other != method and self._counts(other, group)]
        rivals = {other: self.measure(other, group) for other in others}
        absent = tuple(name for name, values in rivals.items() if not len(values))
        if claim.relation == "top":
            sign = -1 if claim.metric in LOW_IS_GOOD else 1
            ahead = {name: (sign * (other - mine)).drop_nan() for name, other in rivals.items()}
            ahead = ahead or {"": Values()}
            more: dict[str, Any] = {"rivals": tuple(ahead), "absent": absent, "keys": group}
            yield Comparison(tuple(ahead.values()), None, int(claim.value), method, method, key, **more)
        elif claim.relation in ("by", "equals"):
            rest = self._best(list(rivals.values())) if claim.right else None
            whole = self._whole(method, group) if rest is None else rest
            target = claim.value * (float(whole.mean()) / 100 if claim.relative else 1)
            values = mine if rest is None else (mine - rest).drop_nan()
            if claim.formula:  # it counts the classes of each run's own clients, so that it differs between seeds
                formula = self.source.value(method, key, claim.metric + FORMULA)
                target = float(formula.mean())
                values = (mine - formula + target).drop_nan()
            unit = (target if claim.formula else float(whole.mean())) / 100 if claim.metric == "floats" else 1.0
            more = {"lead": rest is not None, "point": unit, "absent": absent, "keys": group}
            yield Comparison((values,), target, None, method, method, key, **more)
        else:
            yield from self._beside(method, mine, rivals, group)

    def _beside(self, method: str, mine: Values, rivals: Mapping[str, Values], group: Group) -> Iterator[Comparison]:
        sign = -1 if self.claim.low else 1
        if not self.claim.right:
            bound = self.claim.value * (float(self._whole(method, group).mean()) / 100 if self.claim.relative else 1)
            values = ((sign * (mine - bound)).drop_nan(),)
            yield Comparison(values, None, None, method, method, group[-1], keys=group, stated=bool(bound))
        for other, theirs in rivals.items():
            against = method if other == "averaged" else other
            yield Comparison(((sign * (mine - theirs)).drop_nan(),), None, None, method, against, group[-1], keys=group)

    def _whole(self, method: str, group: Group) -> Values:
        """Look up the accuracy that a fall begins with, and is a percentage of."""
        return self.source.value(method, group[0], "accuracy")
