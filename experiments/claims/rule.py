"""Answer comparisons and decide claims by the rule of experiments/protocol.md, in both editions."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from scipy import special, stats

from semcom.studies.analysis.statistics import LEVEL, Interval, compute_t_interval, correct_by_holm
from semcom_papers.experiments.claims.claim import Comparison, Values

Answer = Literal["yes", "level", "no", "open"]
State = Literal[
    "reproduced",
    "level",
    "not reproduced",
    "inconclusive",
    "contradicted by the paper itself",
    "protocol unknown",
    "not run",
]
CHANGES = ("own rates", "devices", "guessing", "tables", "Holm", "level", "power")
"""Changes of the rule's second edition, in its order; the first edition has none of them."""
FIRST, SECOND = frozenset[str](), frozenset(CHANGES)
SHARES: Mapping[str, float] = {"all": 1.0, "any": 1.0, "almost-all": 0.8, "most": 0.5, "some": 0.0}
"""Quantifier -> fraction of the comparisons that has to say yes; `most` and `some` need more than it."""
NEAR = 2.0
"""Points around a stated number that count as it, and around 0 that count as level."""
WIDEST = 8.0
"""Width in points of the widest interval that can reproduce a number by itself."""
POWER = 0.8
"""Probability of finding the paper's effect that a "no" needs."""
DIGITS = 9
"""Decimals of a point that count: equal numbers differ in later decimals after rounding."""
MOST_SEEDS = 1000
"""Largest number of seeds that is reported as enough."""


@functools.cache  # every edition of the rule asks for most of them again
def _compute_interval(values: tuple[float, ...]) -> Interval:
    return compute_t_interval(values)


@dataclass(frozen=True)
class Measured:
    """The values of one difference over seeds.

    Attributes:
        mean: NaN without values.
        low: lower end of the 95 % interval; NaN without an interval.
        high: upper end.
        sd: standard deviation over seeds; 0 for values that are known exactly.
        seeds: number of values.
    """

    mean: float
    low: float
    high: float
    sd: float
    seeds: int

    @classmethod
    def of(cls, values: Values, exact: bool) -> Measured:
        """Summarise values by seed; counts that are equal in all seeds are known exactly."""
        if not len(values):
            return cls(math.nan, math.nan, math.nan, math.nan, 0)
        numbers = values.numbers.round(DIGITS)
        found = _compute_interval(tuple(numbers.tolist()))
        if exact and math.isnan(found.low) and len(numbers) > 1:
            return cls(found.mean, found.mean, found.mean, 0.0, len(numbers))
        sd = math.nan if math.isnan(found.low) else float(numbers.std(ddof=1))
        return cls(found.mean, found.low, found.high, sd, len(numbers))

    @property
    def known(self) -> bool:
        """True if it has an interval."""
        return not math.isnan(self.low)

    def test_against(self, bound: float) -> float:
        """Compute the two-sided p-value of Student's t test against a number; NaN without an interval."""
        if not self.known:
            return math.nan
        if self.sd == 0:
            return float(self.mean == bound)
        return float(2 * special.stdtr(self.seeds - 1, -(abs(self.mean - bound) / self.sd * math.sqrt(self.seeds))))


Case = tuple[Comparison, Measured, float]
"""A comparison, one of its differences, and the paper's number for it."""


@dataclass(frozen=True)
class Judged:
    """One comparison with its interval and answer.

    Attributes:
        answer: its answer to the claim.
        mean: mean difference in points; for `top`, to the rival at the last place that counts.
        low: lower end of the 95 % interval; NaN without an interval.
        high: upper end.
    """

    comparison: Comparison
    answer: Answer
    mean: float
    low: float
    high: float
    seeds: int


@functools.cache  # as of intervals
def compute_power(effect: float, sd: float, seeds: int, level: float = 1 - LEVEL) -> float:
    """Compute the probability that a two-sided t test finds a true effect: `compute_powers` of one."""
    return compute_powers([(effect, sd, seeds)], level)[0]


def compute_powers(cases: Sequence[tuple[float, float, int]], level: float = 1 - LEVEL) -> list[float]:
    """Compute the probabilities that two-sided t tests find true effects, on their side of 0.

    With the noncentral t distribution (Lehmann and Romano, Testing Statistical Hypotheses, 2005, 5.2).

    Args:
        cases: true mean of the differences, above 0, their standard deviation over seeds, and the number of seeds.
        level: significance level of the tests.
    """
    powers = [0.0 if n < 2 or math.isnan(sd) else 1.0 for _, sd, n in cases]
    at = [i for i, (_, sd, n) in enumerate(cases) if powers[i] and sd]
    if at:  # all in one call, which takes as long as of one
        effect, sd, n = np.array([cases[i] for i in at], dtype=float).T
        found = stats.nct.sf(special.stdtrit(n - 1, 1 - level / 2), n - 1, effect * np.sqrt(n) / sd)
        for i, power in zip(at, found.tolist(), strict=True):
            powers[i] = power if math.isfinite(power) else 1.0  # far beyond the limit
    return powers


@dataclass(frozen=True)
class Rule:
    """The rule for the comparisons of one claim.

    Attributes:
        quantifier: number of comparisons that have to say yes.
        of_accuracy: whether the comparisons are of accuracies or derived from them: only these can be level, or need
            power.
        changes: the `CHANGES` in force.
    """

    quantifier: str = "all"
    of_accuracy: bool = True
    changes: frozenset[str] = SECOND

    def judge(self, comparisons: Sequence[Comparison], effects: Sequence[Sequence[float]] = ()) -> list[Judged]:
        """Answer all comparisons of a claim.

        Args:
            effects: for each comparison the paper's numbers for its values; NaN or empty for numbers not printed.
        """
        measured = _measure_all(comparisons)
        pairs = [(one, each) for one, of in zip(comparisons, measured, strict=True) for each in of]
        yes = self._correct([each.test_against(0) for _, each in pairs], free=self.quantifier in ("all", "any"))
        no = self._correct([_test_no(*pair) for pair in pairs], free=self.quantifier == "some")
        found, at = [], 0
        for i, (one, each) in enumerate(zip(comparisons, measured, strict=True)):
            n = len(each)
            able = [self._is_able(one, *pair) for pair in zip(each, _fill_with_nan(effects, i, n), strict=True)]
            sides = (yes[at : at + n], no[at : at + n], able)
            found.append(self._judge_place(one, each, *sides) if one.top else self._judge_one(one, each[0], *sides))
            at += n
        return found

    def _correct(self, tests: Sequence[float], free: bool) -> list[bool]:
        """Decide which p-values are significant, by Holm's correction unless `free` of it."""
        p_values = correct_by_holm(tests) if "Holm" in self.changes and not free else tests
        return [p < 1 - LEVEL for p in p_values]  # NaN is no test, and never does

    def _is_able(self, one: Comparison, each: Measured, printed: float) -> bool:
        """Check whether a no counts: the comparison could have said yes, or the interval excludes yes and level."""
        if "power" not in self.changes or not self.of_accuracy or not each.known:
            return True
        if _is_number(one):
            return each.high - each.low <= WIDEST * one.point
        against = one.top is not None or (one.target or 0) < 0  # the side of 0 that speaks against it
        if each.low > NEAR * one.point if against else each.high < -NEAR * one.point:
            return True
        return compute_power(_find_effect(one, printed), each.sd, each.seeds) >= POWER

    def _is_level(self, one: Comparison, low: float, high: float) -> bool:
        near = NEAR * one.point
        applies = "level" in self.changes and self.of_accuracy and not one.stated
        return applies and -near < low and high < near

    def _judge_one(
        self, one: Comparison, each: Measured, yes: Sequence[bool], no: Sequence[bool], able: Sequence[bool]
    ) -> Judged:
        """Answer a difference by the table of experiments/protocol.md; without an interval it is open."""
        answer: Answer = "open"
        if not each.known or (one.target is not None and math.isnan(one.target)):
            pass
        elif one.target is None:
            if yes[0] and each.mean > 0:
                answer = "yes"
            elif self._is_level(one, each.low, each.high):
                answer = "level"
            elif no[0] and able[0] and each.mean < 0:
                answer = "no"
        elif _misses_number(one, each):
            answer = "no" if no[0] and able[0] else "open"
        elif _is_number(one):
            answer = "yes" if each.high - each.low <= WIDEST * one.point else "open"
        elif yes[0] and (each.mean > 0) == (one.target > 0):
            answer = "yes"
        return Judged(one, answer, each.mean, each.low, each.high, each.seeds)

    def _judge_place(
        self, one: Comparison, each: Sequence[Measured], yes: Sequence[bool], no: Sequence[bool], able: Sequence[bool]
    ) -> Judged:
        """Answer whether a method is among the best, from its rivals ahead, behind, and open."""
        places = one.top or 0
        unknown = any(not rival.known for rival in each)
        ahead = sum(sure and good and rival.mean > 0 for rival, sure, good in zip(each, no, able, strict=True))
        behind = sum(sure and rival.mean < 0 for rival, sure in zip(each, yes, strict=True))
        far = sum(rival.high >= NEAR * one.point for rival in each)
        answer: Answer = "open"
        if len(each) - behind < places and not unknown:
            answer = "yes"
        elif "level" in self.changes and self.of_accuracy and far < places and not unknown:
            answer = "level"
        elif ahead >= places:
            answer = "no"
        known = [rival for rival in each if rival.known] or [Measured.of(Values(), False)]
        last = sorted(known, key=lambda rival: -rival.mean)[min(places, len(known)) - 1]
        seeds = min((rival.seeds for rival in each if rival.seeds), default=0)
        return Judged(one, answer, -last.mean, -last.high, -last.low, seeds)

    def decide(self, answers: Sequence[Answer], unsettled: bool = False) -> State:
        """Decide the state of a claim from the answers of its comparisons.

        Args:
            unsettled: whether points of the claim are missing, which could overturn it.
        """
        yes, level, no = (answers.count(word) for word in ("yes", "level", "no"))  # type: ignore[arg-type]
        may_fail, may_hold = self.quantifier != "some", self.quantifier not in ("all", "any")
        if self._is_enough(yes, len(answers)):
            return "inconclusive" if unsettled and may_fail else "reproduced"
        if self._is_enough(yes + level, len(answers)):
            return "inconclusive" if unsettled else "level"
        if self._is_enough(len(answers) - no, len(answers)):
            return "inconclusive"
        return "inconclusive" if unsettled and may_hold else "not reproduced"

    def _is_enough(self, count: int, total: int) -> bool:
        share = SHARES[self.quantifier]
        return count > share * total if self.quantifier in ("most", "some") else count >= share * total - 1e-9

    def estimate_power(
        self, comparisons: Sequence[Comparison], effects: Sequence[Sequence[float]]
    ) -> tuple[float, int | None]:
        """Estimate the probability that the seeds find the effects, and the seeds that find them with `POWER`.

        Enough comparisons have to find theirs, treated as independent. NaN without any spread; None for more than
        `MOST_SEEDS`.
        """
        measured = _measure_all(comparisons)
        pairs = [
            [(one, each, effect) for each, effect in zip(of, _fill_with_nan(effects, i, len(of)), strict=True)]
            for i, (one, of) in enumerate(zip(comparisons, measured, strict=True))
        ]
        if not self.of_accuracy or not any(each.known for of in measured for each in of):
            return math.nan, None
        tests = sum(map(len, pairs))
        level = (1 - LEVEL) / (1 if self.quantifier in ("all", "any") or "Holm" not in self.changes else tests)

        def find(seeds: int | None) -> float:
            each = iter(_find_all([case for of in pairs for case in of], seeds, level))
            found = count_found(
                [
                    _find_power_of_place(one, [next(each) for _ in of])
                    for one, of in zip(comparisons, pairs, strict=True)
                ]
            )
            return sum(p for count, p in enumerate(found) if self._is_enough(count, len(pairs)))

        return find(None), _find_least(find)


def _measure_all(comparisons: Sequence[Comparison]) -> list[list[Measured]]:
    return [[Measured.of(values, one.exact) for values in one.values] for one in comparisons]


def _find_least(find: Callable[[int | None], float]) -> int | None:
    """Find the least number of seeds with a power of `POWER`, by bisection: power grows with seeds."""
    if find(MOST_SEEDS) < POWER:
        return None
    low, high = 1, MOST_SEEDS
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if find(middle) >= POWER else (middle, high)
    return high


def count_found(probabilities: Sequence[float]) -> list[float]:
    """Compute the probabilities that 0, 1, 2 ... independent events happen, each with its own probability."""
    found = np.ones(1)
    for p in probabilities:
        found = np.convolve(found, [1 - p, p])
    return [float(each) for each in found]


def _find_power_of_place(one: Comparison, each: Sequence[float]) -> float:
    """Compute the probability that a comparison says yes: for `top` that few enough rivals may be ahead."""
    return sum(count_found(each)[len(each) - (one.top or 1) + 1 :])


def _find_all(cases: Sequence[Case], seeds: int | None, level: float) -> list[float]:
    """Compute the probabilities that differences are significant, or that intervals of numbers are narrow enough."""
    counts = [each.seeds if seeds is None else seeds for _, each, _ in cases]
    found = compute_powers(
        [(_find_effect(one, printed), each.sd, n) for (one, each, printed), n in zip(cases, counts, strict=True)], level
    )
    for i, ((one, each, _), n) in enumerate(zip(cases, counts, strict=True)):
        if _is_number(one):
            limit = special.stdtrit(n - 1, 0.5 + LEVEL / 2)
            width = 2 * limit * each.sd / math.sqrt(n) if n > 1 else math.inf
            found[i] = float(width <= WIDEST * one.point)
    return found


def _is_number(one: Comparison) -> bool:
    """Check whether a comparison is with a stated number, for which the interval has to be narrow."""
    return one.target is not None and not (one.lead and one.target)


def _find_effect(one: Comparison, printed: float) -> float:
    """Find the effect that a comparison needs power for: the larger of the paper's and `NEAR`."""
    stated = abs(one.target) if one.target is not None else printed
    return max(stated, NEAR * one.point) if math.isfinite(stated) else NEAR * one.point


def _misses_number(one: Comparison, each: Measured) -> bool:
    near = NEAR * one.point
    return each.low > (one.target or 0) + near or each.high < (one.target or 0) - near


def _test_no(one: Comparison, each: Measured) -> float:
    """Compute the p-value of a no: against 0, or against the nearer end of the points around a stated number."""
    if one.target is None or math.isnan(one.target):
        return each.test_against(0)
    away = each.mean - one.target
    near = math.copysign(NEAR * one.point, away)
    return each.test_against(one.target + near) if not abs(away) <= abs(near) else 1.0


def _fill_with_nan(effects: Sequence[Sequence[float]], i: int, n: int) -> Sequence[float]:
    """Return the paper's numbers for the values of a comparison, NaN if unknown."""
    return effects[i] if i < len(effects) and len(effects[i]) == n else [math.nan] * n
