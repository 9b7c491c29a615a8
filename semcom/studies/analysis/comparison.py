"""The comparison of two variants: its numbers, and the sentence that they support."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import pandas as pd

from semcom.studies.analysis.statistics import LEVEL, Interval, correct_by_holm
from semcom.studies.names import SHIPPED, Labels
from semcom.tasks.metric import ACCURACY, Metric


def state_corrected(p: str, over: str) -> str:
    """State a p-value, or a bound of it, with the correction that it has: one wording of tables, figures, sentences."""
    return f"{p}, corrected by Holm for {over}"


def describe_rule(over: str) -> str:
    """Describe when a difference counts as told (`Comparison.supported`), corrected for `over`."""
    return f"zero is outside its 95 % interval, and {state_corrected('p < 0.05', over)}"


def describe_marks(some: bool) -> str:
    """Describe the marks of a table, which `ranking.mark_ranks` sets, or why there are none."""
    words = "Bold: best; underlined: second, where" if some else "None is marked as best: nowhere can"
    rule = describe_rule("all such differences")
    return f"{words} the difference to the next one, paired over seeds, {'can ' if some else ''}be told ({rule})."


@dataclass(frozen=True)
class Comparison:
    """The comparison of two variants at one point of a study.

    Attributes:
        first: the variant whose difference to the other one is given.
        second: the other variant.
        view_first: its compared view; empty for its headline.
        view_second: the same of the other variant.
        point: varied field -> its value.
        metric: number of a view, or of a run, that is compared.
        seeds: those that both variants have finished.
        clients: K; 0 where the metric is not one of single clients.
        mean_first: mean over seeds; of accuracies a fraction of 1.
        mean_second: the same of the other variant.
        difference: mean over seeds of first minus second.
        low: lower end of its 95 % interval; NaN where there is none.
        high: upper end.
        p: two-sided p-value of no difference.
        p_holm: the same after Holm's correction for `family` comparisons.
        family: number of comparisons that were asked for at once, and have a p-value.
        procedure: the procedure behind the interval and the p-value.
        bootstrap_low: lower end of the two-level bootstrap over seeds and clients; NaN for one seed.
        bootstrap_high: upper end.
        wins: pairs of seed and client whose accuracy is higher with the first variant.
        ties: those with equal accuracies.
        losses: those whose accuracy is lower.
        labels: the names of its study's numbers.
    """

    first: str
    second: str
    view_first: str
    view_second: str
    point: Mapping[str, Any]
    metric: str
    seeds: tuple[int, ...]
    clients: int
    mean_first: float
    mean_second: float
    difference: float
    low: float
    high: float
    p: float
    p_holm: float
    family: int
    procedure: str
    bootstrap_low: float
    bootstrap_high: float
    wins: int
    ties: int
    losses: int
    labels: Labels = field(default=SHIPPED, repr=False, compare=False)

    @property
    def supported(self) -> bool:
        """True if the difference is significant: zero is outside the interval, and the corrected p-value below 0.05."""
        return Interval(self.difference, self.low, self.high).excludes_zero and self.p_holm < 1 - LEVEL

    @property
    def sentence(self) -> str:
        """The difference in words that can stand in a paper."""
        where, first, second = self._where(), *self._named()
        values = f"{self._value(self.mean_first)} against {self._value(self.mean_second)}"
        if self.supported:
            more, size = ("more", "higher") if self.difference > 0 else ("less", "lower")
            amount = self._amount(abs(self.difference))
            same = f"{amount} {more} accurate than {second}"
            other = f"{amount} {size} in {self._metric.label} than {second}"
            claim = f"{first} is {same if self._metric == ACCURACY else other}"
        else:
            claim = f"no difference between {first} and {second} can be told"
            values += f", difference {self._amount(self.difference)}"
        text = f"{where}{claim} ({values}; {self._interval()}).{self._doubt()}{self._clients()}"
        return text if not where and self.supported else text[0].upper() + text[1:]  # a name stays as it is

    def __str__(self) -> str:
        return self.sentence

    @property
    def _metric(self) -> Metric:
        return self.labels.metric(self.metric)

    def _named(self) -> tuple[str, str]:
        """Name the two variants, each with its view if it was asked for."""
        first, second = (
            f"{name} ({view})" if view else name
            for name, view in ((self.first, self.view_first), (self.second, self.view_second))
        )
        return first, second

    def _interval(self) -> str:
        """Describe the interval and what it is over."""
        if math.isnan(self.low):
            return f"no interval: {self.procedure}"
        ends = (self.low, self.high)
        if self.supported and self.difference < 0:  # the sentence gives the size of the difference
            ends = (-self.high, -self.low)
        low, high = (self._number(end) for end in ends)
        which, p = "the difference", _state_p(self.p)
        if self.family > 1:
            which, p = "this difference alone", state_corrected(_state_p(self.p_holm), f"{self.family} comparisons")
        return f"95 % interval of {which} {low} to {high}, {self.procedure}; {p}"

    def _doubt(self) -> str:
        """Explain a difference that is not told although the interval, or the p-value, speaks for it."""
        excludes_zero = Interval(self.difference, self.low, self.high).excludes_zero
        if self.supported or not (excludes_zero or self.p_holm < 1 - LEVEL):
            return ""
        if not excludes_zero:
            return " The p-value is below 0.05, but zero is in the interval."
        if self.p >= 1 - LEVEL:
            return " Zero is outside the interval, but the p-value is not below 0.05."
        chance = f"among {self.family} comparisons chance may show one as clear in more than 5 % of studies"
        return f" Asked alone, this difference would be told ({_state_p(self.p)}); {chance}."

    def _clients(self) -> str:
        """Describe how many clients fare better, and the limits of a single seed."""
        pairs = self.wins + self.ties + self.losses
        several = "pairs of seed and client" if len(self.seeds) > 1 else "clients"
        ties = f", and equal for {self.ties}" if self.ties else ""
        name = self._metric.label
        higher = f" With {self._named()[0]} the {name} is higher for {self.wins} of {pairs} {several}{ties}."
        count = higher if pairs else ""
        one = " This is one seed, and says nothing about others." if len(self.seeds) == 1 else ""
        return count + one

    def _where(self) -> str:
        """Name the point, and a single seed, as the beginning of a sentence."""
        words = self.labels.point(self.point)
        seed = f"in seed {self.seeds[0]}, " if len(self.seeds) == 1 else ""
        return (f"at {words}, " if words else "") + seed

    def _number(self, value: float) -> str:
        digits = self._metric.choose_decimals((self.high - self.low) / 2)
        return f"{(100 if self._metric.share else 1) * value:z.{digits}f}"

    def _amount(self, value: float) -> str:
        unit = "percentage points" if self._metric.share else self._metric.unit
        return f"{self._number(value)} {unit}".rstrip()

    def _value(self, value: float) -> str:
        return f"{self._number(value)} {'%' if self._metric.share else self._metric.unit}".rstrip()


def _state_p(p: float) -> str:
    return "p < 0.001" if p < 0.001 else f"p = {p:.2g}"


class Comparisons(tuple[Comparison, ...]):
    """Several comparisons that were asked for at once; `str` is a sentence a line."""

    @classmethod
    def corrected(cls, asked: Iterable[Comparison]) -> Comparisons:
        """Correct comparisons by Holm's procedure over all that have a p-value."""
        each = list(asked)
        values = correct_by_holm([one.p for one in each])
        family = sum(not math.isnan(p) for p in values)
        return cls(replace(one, p_holm=p, family=family) for one, p in zip(each, values, strict=True))

    @property
    def frame(self) -> pd.DataFrame:
        """A row per comparison: the point, then the other attributes of `Comparison`."""
        # The point is in front, and again behind, where a varied field such as `clients` wins over K of that name.
        rows = [{**each.point, **vars(each), "supported": each.supported, **each.point} for each in self]
        return pd.DataFrame(rows).drop(columns=["point", "labels"], errors="ignore")

    def __str__(self) -> str:
        return "\n".join(each.sentence for each in self)
