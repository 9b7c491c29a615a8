"""The scorecard: the verdict on each claim of the five papers in our runs, by the rule of experiments/protocol.md."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from semcom_papers.experiments import papers
from semcom_papers.experiments.claims.claim import LOW_IS_GOOD, Claim, Comparison, list_claim_points, list_comparisons
from semcom_papers.experiments.claims.evidence import (
    EVIDENCE,
    Evidence,
    find_study,
    format_sweep_command,
    list_studied,
    read_evidence,
)
from semcom_papers.experiments.claims.printed import Tables, list_paper_effects
from semcom_papers.experiments.claims.rule import CHANGES, FIRST, SECOND, Judged, Rule, State


@dataclass(frozen=True)
class Verdict:
    """The verdict on a claim under some changes of the rule.

    Attributes:
        judged: its comparisons.
        notes: remarks for the scorecard.
        power: least probability that the seeds find the paper's effects; NaN if unknown.
        needed: seeds that find them with the power that the rule asks for; None for too many.
        guessing: arms that guess at some points of the claim.
    """

    state: State
    judged: Sequence[Judged]
    notes: Sequence[str]
    power: float = math.nan
    needed: int | None = None
    guessing: Sequence[str] = ()

    @property
    def known(self) -> list[Judged]:
        """The comparisons that have numbers."""
        return [one for one in self.judged if one.seeds]


@dataclass(frozen=True)
class Compared:
    """The comparisons of a claim in some evidence.

    Attributes:
        found: the evidence; None without runs.
        effects: for each comparison the paper's numbers for its values.
        notes: reasons for missing comparisons.
    """

    found: Evidence | None
    comparisons: Sequence[Comparison] = ()
    effects: Sequence[Sequence[float]] = ()
    notes: Sequence[str] = ()


class Case:
    """A claim with its evidence, to be judged under any changes of the rule.

    Args:
        claim: a row of `papers.read_paper_claims`.
        first: results of the claim's own items (None without runs).
        second: results with searched rates in their place.
        tables: tables of the claim's paper.
    """

    def __init__(
        self, claim: Mapping[str, Any], first: Evidence | None, second: Evidence | None, tables: Tables
    ) -> None:
        self.claim, self.read, self.first, self.second, self.tables = claim, Claim.read(claim), first, second, tables
        self._compared: dict[frozenset[str], Compared] = {}

    def compare(self, changes: frozenset[str]) -> Compared:
        """Compare under the changes that are about evidence; others make no difference."""
        asked = changes & EVIDENCE
        if asked not in self._compared:
            self._compared[asked] = self._compare(asked)
        return self._compared[asked]

    def _compare(self, changes: frozenset[str]) -> Compared:
        found = self.second if "own rates" in changes else self.first
        if found is None:
            return Compared(None)
        # Points with one rate are not compared with points with another.
        found = found.under(changes - {"own rates"} if self.read.across else changes)
        try:
            comparisons = list_comparisons(self.read, found)
            return Compared(found, comparisons, list_paper_effects(self.claim, comparisons, found, self.tables))
        except ValueError as error:
            return Compared(found, notes=[str(error)])

    def judge(self, changes: frozenset[str] = SECOND) -> Verdict:
        """Judge the claim under some changes of the rule."""
        claim, read, compared = self.claim, self.read, self.compare(changes)
        rule, found, notes = Rule(read.quantifier, read.of_accuracy, changes), compared.found, list(compared.notes)
        judged = rule.judge(compared.comparisons, compared.effects)
        if claim["contradicted_by"] and "tables" in changes:
            notes.append(f"the paper's own table speaks against it: {claim['contradicted_by']}")
        elif claim["contradicted_by"]:
            return Verdict("contradicted by the paper itself", judged, [*notes, claim["contradicted_by"]])
        if claim["protocol"] == "unknown":
            return Verdict("protocol unknown", judged, [*notes, *([claim["note"]] if claim["note"] else [])])
        if found is None:
            return Verdict("not run", judged, notes)
        asked = [*read.left, *read.right]
        guessing = found.list_guessing(asked, list_claim_points(read, found), read.metric)
        alone = [f"{name} guesses at some points" for name in guessing if [name] == read.left]
        if not any(one.seeds for one in judged):
            none = alone or [f"the runs have no {read.metric} at its points"]
            return Verdict("inconclusive" if alone else "not run", judged, [*notes, *none], guessing=guessing)
        missing = [*_describe_missing(read, found, list_studied(claim["item"].split(), changes)), *alone]
        state = rule.decide([one.answer for one in judged], bool(missing))
        power = rule.estimate_power(compared.comparisons, compared.effects) if changes == SECOND else (math.nan, None)
        return Verdict(state, judged, [*notes, *missing, *_describe_absent(judged)], *power, guessing)

    def explain(self, state: State) -> tuple[State, str]:
        """Find the state in the rule's first edition, and the changes that led from it to `state`."""
        before = self.judge(FIRST).state
        if before == state:
            return before, ""
        between = (self.judge(frozenset(CHANGES[:count])).state for count in range(1, len(CHANGES)))
        steps = itertools.pairwise([before, *between, state])
        return before, ", ".join(name for name, (one, other) in zip(CHANGES, steps, strict=True) if one != other)


def _describe_absent(judged: Sequence[Judged]) -> list[str]:
    rivals = [name for one in judged for name in one.comparison.absent]
    absent = dict.fromkeys(
        [*(_label_comparison(one) for one in judged if not one.seeds and not one.comparison.absent), *rivals]
    )
    return [f"no results for {', '.join(absent)} at some points"] if absent else []


def judge_claim(
    claim: Mapping[str, Any], first: Evidence | None, found: Evidence | None, tables: Tables
) -> dict[str, Any]:
    """Judge a claim: its row of the scorecard; arguments are those of `Case`."""
    case = Case(claim, first, found, tables)
    read, verdict = case.read, case.judge()
    before, why = case.explain(verdict.state)
    known, more = verdict.known, list(verdict.notes)
    decisive = max if read.quantifier == "some" else min
    least = decisive(known, key=_rank_favour) if known else None
    items, scale, warnings = claim["item"].split(), "", ""
    if found is not None:
        warnings = _count_warnings(found, known)
        if known:
            scale = ", ".join(found.scales)
            if read.of_accuracy and found.ended & set(list_studied(items, SECOND)):
                more.append("accuracies are those of the end, where all methods are tested")
            more += [found.stands[field] for field in read.asked if field in found.stands]
    mean, low, high = _orient_interval(read, least) if least else (math.nan,) * 3
    commands = (format_sweep_command(item, read.asked) for item in items)
    return {
        **{name: claim[name] for name in ("id", "paper", "item")},
        "claim": claim["says"],
        "relation": claim["relation"],
        "stated": claim["value"],
        "unit": claim["unit"],
        "state": verdict.state,
        "first": before,
        "why": why,
        "ours": mean,
        "low": low,
        "high": high,
        "of": _label_comparison(least) if least else "",
        **{word: sum(one.answer == word for one in verdict.judged) for word in ("yes", "level", "no", "open")},
        "seeds": min((one.seeds for one in known), default=0),
        "power": verdict.power,
        "needs": verdict.needed,
        "guessing": " ".join(verdict.guessing),
        "scale": scale,
        "note": "; ".join(more),
        "warnings": warnings,
        "command": "; ".join(filter(None, commands)),
    }


def _count_warnings(found: Evidence, known: Sequence[Judged]) -> str:
    methods = dict.fromkeys(name for one in known for name in (one.comparison.method, one.comparison.against))
    count, of, first = found.warned(list(methods), list(dict.fromkeys(one.comparison.key for one in known)))
    return f"{count} of {of} runs warn, the first in {first}" if count else ""


def _rank_favour(judged: Judged) -> tuple[int, float]:
    """Return a key that sorts comparisons by how favourable they are to their claim, the least first."""
    target = judged.comparison.target
    rank = ("no", "open", "level", "yes").index(judged.answer)
    return rank, judged.mean if target is None else -abs(judged.mean - target)


def _orient_interval(read: Claim, judged: Judged) -> tuple[float, float, float]:
    """Orient mean and interval as left minus right, whichever sign supports the claim."""
    one = judged.comparison
    turned = read.low or read.relation == "falls_with" if one.top is None else read.metric in LOW_IS_GOOD
    if one.target is None and turned:
        return -judged.mean, -judged.high, -judged.low
    return judged.mean, judged.low, judged.high


def _describe_missing(read: Claim, found: Evidence, items: Sequence[str]) -> list[str]:
    """Describe the items and the values of fields that a claim is about and no run has."""
    there = {key[0] for key in found.places}
    values = sorted(
        f"{field}={value}"
        for field, wanted in read.asked.items()
        for value in wanted
        if not any(value in place.get(field, ()) for place in found.places.values())
    )
    lacking = [*(item for item in items if item not in there), *values]
    return [f"not run: {', '.join(lacking)}"] if lacking else []


def _label_comparison(judged: Judged) -> str:
    one = judged.comparison
    return one.method if one.against == one.method else f"{one.method} - {one.against}"


def make_scorecard(folder: Path | str = "results", paper: str | None = None) -> pd.DataFrame:
    """Judge the claims of the five papers, a row per claim.

    Args:
        folder: results of sweeps, <experiment>-<scale>; those of a checkout of semcom are read too.
        paper: one of `papers.PAPERS` (None: all).

    Returns:
        Columns: id, paper, item, claim, relation, stated (value) and unit; state; first (the state in the rule's first
        edition) and why (the changes that led to another state); ours, low, high (mean and 95 % interval, in points, of
        the comparison least favourable to the claim, for `some` the most favourable) and of (its methods); yes, level,
        no, open (numbers of comparisons); seeds; power (least probability that these find the paper's effects) and
        needs (seeds for a power of 0.8; empty: more than 1000); guessing (arms), scale, note, warnings (of runs),
        command.

    Raises:
        ConfigError: no such paper, or results that cannot be read.
    """
    if paper is not None:
        papers.read_paper_table(paper)
    frame, read = papers.read_paper_claims(), functools.cache(find_study)
    wanted = frame if paper is None else frame[frame["paper"] == paper]
    tables = {name: Tables.of(name) for name in wanted["paper"].unique()}
    first, second = (
        {items: read_evidence(items.split(), Path(folder), edition, read) for items in wanted["item"].unique()}
        for edition in (FIRST, SECOND)
    )
    return pd.DataFrame(
        judge_claim(row, first[row["item"]], second[row["item"]], tables[row["paper"]]) for _, row in wanted.iterrows()
    )


STYLE = (
    "body{font:15px/1.4 sans-serif;margin:2em auto;max-width:75em;padding:0 1em}"
    "table{border-collapse:collapse}td,th{border-top:1px solid #bbb;padding:.3em .6em;text-align:left;"
    "vertical-align:top}code{font-size:85%}"
)
"""The look of the page."""
SHOWN = (
    "state", "first", "why", "claim", "stated", "unit", "of", "ours", "low", "high", "seeds",
    "power", "needs", "guessing", "scale", "note", "warnings", "command",
)  # fmt: skip
"""Columns of the page."""


def count_verdicts(frame: pd.DataFrame, edition: str) -> str:
    """Count claims by their verdicts in an edition, `state` or `first`, and apart from them further readings of one."""
    again = frame["item"] == "letter-low"  # experiments/papers/README.md
    parts = {"claims": frame[~again], "further readings of a claim": frame[again]}
    return "; ".join(
        f"{len(part)} {what}: " + ", ".join(f"{n} {verdict}" for verdict, n in part[edition].value_counts().items())
        for what, part in parts.items()
        if len(part)
    )


def format_scorecard_page(frame: pd.DataFrame) -> str:
    """Format the scorecard as one HTML page, a table per paper, which needs no network."""
    parts = []
    for paper, of in frame.groupby("paper", sort=False):
        shown = of[list(SHOWN)].to_html(index=False, na_rep="", float_format="{:.2f}".format, border=0)
        parts.append(f"<h2>{paper}</h2>\n<p>{count_verdicts(of, 'state')}.</p>\n{shown}")
    title = "What the five papers claim, and what our runs give"
    head = f'<meta charset="utf-8"><title>{title}</title><style>{STYLE}</style>'
    rule = (
        "Numbers are in points, of the comparison that is the least favourable to the claim (to one about some cases "
        "the most), with 95 % intervals. first: the verdict of the rule's first edition; why: what changed it; power: "
        "with what probability at least these seeds find the paper's effect; needs: how many would with 0.8."
    )
    return f"<!doctype html>\n<html lang='en'><head>{head}</head>\n<body><h1>{title}</h1>\n<p>{rule}</p>\n" + (
        "\n".join(parts) + "\n</body></html>\n"
    )
