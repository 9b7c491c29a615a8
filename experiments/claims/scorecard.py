"""The scorecard: what each claim of the five papers comes to in our runs. The rule is that of docs/protocol.md."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd
from scipy import stats

from experiments import papers
from experiments.claims.claim import Claim, Comparison, list_claimed_comparisons
from experiments.claims.evidence import Evidence, format_evidence_command, read_evidence
from semcom.studies.analysis.statistics import LEVEL, compute_t_interval

Answer = Literal["yes", "no", "open"]
State = Literal[
    "reproduced",
    "not reproduced",
    "inconclusive",
    "contradicted by the paper itself",
    "protocol unknown",
    "not run",
]
SHARES: Mapping[str, float] = {"all": 1.0, "any": 1.0, "almost-all": 0.8, "most": 0.5, "some": 0.0}
"""Quantifier -> the part of the comparisons that has to say yes; of `most` and `some` it has to be more."""
OVERTURNED: Mapping[str, tuple[State, ...]] = {
    **dict.fromkeys(("all", "any"), ("reproduced",)),
    **dict.fromkeys(("almost-all", "most"), ("reproduced", "not reproduced")),
    "some": ("not reproduced",),
}
"""Quantifier -> what values that were not run might make wrong."""
NEAR = 2.0
"""Points around a stated number that count as it."""
WIDEST = 8.0
"""Width in points of the widest interval that can reproduce a number by itself."""
DIGITS = 9
"""Decimals of a point that count: what rounding leaves of equal numbers is no difference."""
MOST_SEEDS = 1000
"""Largest number of seeds that is named as enough to tell."""


@dataclass(frozen=True)
class Judged:
    """One comparison with its interval and answer.

    Attributes:
        comparison: what is compared.
        answer: what it says to the claim.
        mean: of its values, in points; of `top` of the rival that is closest ahead or behind.
        low: lower end of the 95 % interval; NaN where there is none.
        high: upper end.
        seeds: number of seeds.
    """

    comparison: Comparison
    answer: Answer
    mean: float
    low: float
    high: float
    seeds: int


def judge_claim(one: Comparison) -> Judged:
    """Return the answer of a comparison, by the table of docs/protocol.md; one without numbers is open."""
    if one.top is not None:
        return _find_top_score(one, one.top)
    mean, low, high = _compute_score_interval(one.values[0], one.exact)
    seeds = len(one.values[0])
    if math.isnan(low) or (one.target is not None and math.isnan(one.target)):
        return Judged(one, "open", mean, low, high, seeds)
    if one.target is None:
        answer: Answer = "yes" if low > 0 else "no" if high < 0 else "open"
    else:
        answer = _format_scored_number(one, one.target, low, high)
    return Judged(one, answer, mean, low, high, seeds)


def _format_scored_number(one: Comparison, target: float, low: float, high: float) -> Answer:
    """Return the answer about a stated number: a lead, or a value by itself."""
    if low > target + NEAR * one.point or high < target - NEAR * one.point:
        return "no"
    settled = (low > 0 if target > 0 else high < 0) if one.lead and target else high - low <= WIDEST * one.point
    return "yes" if settled else "open"


def _find_top_score(one: Comparison, places: int) -> Judged:
    """Return the answer about being among the best: rivals are ahead, behind, or it is open."""
    ends = [_compute_score_interval(values, one.exact) for values in one.values]
    ahead, maybe = (sum(end[i] > 0 for end in ends) for i in (1, 2))
    unknown = any(math.isnan(low) for _, low, _ in ends)
    answer: Answer = "no" if ahead >= places else "yes" if maybe < places and not unknown else "open"
    known = [end for end in ends if not math.isnan(end[0])] or [(math.nan,) * 3]
    mean, low, high = sorted(known, reverse=True)[min(places, len(known)) - 1]
    return Judged(one, answer, -mean, -high, -low, min((len(v) for v in one.values if len(v)), default=0))


def _compute_score_interval(values: pd.Series, exact: bool) -> tuple[float, float, float]:
    """Return mean and 95 % interval, NaN where there is none; counts that are equal in all seeds are known exactly."""
    if not len(values):
        return math.nan, math.nan, math.nan
    found = compute_t_interval(values.to_numpy().round(DIGITS))
    if exact and math.isnan(found.low) and len(values) > 1:
        return found.mean, found.mean, found.mean
    return found.mean, found.low, found.high


def decide_score(answers: Sequence[Answer], quantifier: str) -> State:
    """Return what the answers of a claim's comparisons come to."""
    share, total = SHARES[quantifier], len(answers)
    more = quantifier in ("most", "some")

    def enough(count: int) -> bool:
        return count > share * total if more else count >= share * total - 1e-9

    if enough(answers.count("yes")):
        return "reproduced"
    return "inconclusive" if enough(total - answers.count("no")) else "not reproduced"


def seeds_needed(judged: Judged) -> int | None:
    """Return the number of seeds at which an interval of the same spread would exclude zero.

    None: the mean speaks against the claim, there is no spread or no single difference, or it takes more than
    `MOST_SEEDS`.
    """
    values = judged.comparison.values[0].to_numpy()
    if judged.comparison.top is not None or not judged.mean > 0 or len(values) < 2:
        return None
    n = np.arange(2, MOST_SEEDS + 1)
    width = stats.t.ppf(0.5 + LEVEL / 2, n - 1) * values.std(ddof=1) / np.sqrt(n)
    enough = n[width < judged.mean]
    return int(enough[0]) if len(enough) else None


def make_scorecard_row(claim: Mapping[str, Any], found: Evidence | None) -> dict[str, Any]:
    """Return a claim's row of the scorecard.

    Args:
        claim: a row of `papers.claims`.
        found: the results of its items (None: there are none).
    """
    read, judged, notes = Claim.read(claim), list[Judged](), list[str]()
    try:
        judged = [judge_claim(one) for one in list_claimed_comparisons(read, found)] if found is not None else []
    except ValueError as error:
        notes = [str(error)]
    state, more = _find_score_state(claim, read, found, judged)
    known = [one for one in judged if one.seeds]
    least = min(known, key=_favour) if known else None
    stands = [found.stands[field] for field in read.asked if field in found.stands] if found is not None else []
    ends = found.ended & set(claim["item"].split()) if found is not None and known else set()
    if ends and read.of_accuracy:
        more.append("accuracies are those of the end, where all methods are tested")
    mean, low, high = _format_score(read, least) if least else (math.nan,) * 3
    warned = _warned(found, known) if found is not None else ""
    return {
        "id": claim["id"],
        "paper": claim["paper"],
        "item": claim["item"],
        "claim": claim["says"],
        "relation": claim["relation"],
        "stated": claim["value"],
        "unit": claim["unit"],
        "state": state,
        "ours": mean,
        "low": low,
        "high": high,
        "of": _label(least) if least else "",
        **{answer: sum(one.answer == answer for one in judged) for answer in ("yes", "no", "open")},
        "seeds": min((one.seeds for one in known), default=0),
        "scale": ", ".join(found.scales) if found is not None and known else "",
        "note": "; ".join([*notes, *more, *(stands if known else [])]),
        "warnings": warned,
        "command": "; ".join(
            filter(None, (format_evidence_command(item, read.asked) for item in claim["item"].split()))
        ),
    }


def _find_score_state(
    claim: Mapping[str, Any], read: Claim, found: Evidence | None, judged: Sequence[Judged]
) -> tuple[State, list[str]]:
    """Return the state of a claim, and what there is to be said of it."""
    if claim["contradicted_by"]:
        return "contradicted by the paper itself", [claim["contradicted_by"]]
    if claim["protocol"] == "unknown":
        return "protocol unknown", [claim["note"]] if claim["note"] else []
    if found is None or not any(one.seeds for one in judged):
        return "not run", [] if found is None else [f"the runs have no {read.metric} at its points"]
    missing = _describe_missing_score(read, found, claim["item"].split())
    state = decide_score([one.answer for one in judged], read.quantifier)
    if missing and state in OVERTURNED[read.quantifier]:
        state = "inconclusive"
    rivals = [name for one in judged for name in one.comparison.absent]
    absent = dict.fromkeys([*(_label(one) for one in judged if not one.seeds and not one.comparison.absent), *rivals])
    notes = [*missing, *([f"no results for {', '.join(absent)} at some points"] if absent else [])]
    if state != "inconclusive":
        return state, notes
    needed = [seeds_needed(one) for one in judged if one.answer == "open" and one.comparison.target is None]
    told = [n for n in needed if n is not None]
    return state, [*notes, *([f"{max(told)} seeds would tell"] if told and len(told) == len(needed) else [])]


def _warned(found: Evidence, known: Sequence[Judged]) -> str:
    """Return how many of the runs behind some comparisons warned, and of what; nothing where none did."""
    methods = dict.fromkeys(name for one in known for name in (one.comparison.method, one.comparison.against))
    count, of, first = found.warned(list(methods), list(dict.fromkeys(one.comparison.key for one in known)))
    return f"{count} of {of} runs warn, the first in {first}" if count else ""


def _favour(judged: Judged) -> tuple[int, float]:
    """Return how favourable a comparison is to its claim, the least first."""
    target = judged.comparison.target
    return ("no", "open", "yes").index(judged.answer), judged.mean if target is None else -abs(judged.mean - target)


def _format_score(read: Claim, judged: Judged) -> tuple[float, float, float]:
    """Return mean and interval of left minus right, whatever sign speaks for the claim."""
    if (
        judged.comparison.target is None
        and judged.comparison.top is None
        and (read.low or read.relation == "falls_with")
    ):
        return -judged.mean, -judged.high, -judged.low
    return judged.mean, judged.low, judged.high


def _describe_missing_score(read: Claim, found: Evidence, items: Sequence[str]) -> list[str]:
    """Return the items, and the values of fields, that a claim speaks of and no run has."""
    there = {key[0] for key in found.places}
    values = sorted(
        f"{field}={value}"
        for field, wanted in read.asked.items()
        for value in wanted
        if not any(value in place.get(field, ()) for place in found.places.values())
    )
    lacking = [*(item for item in items if item not in there), *values]
    return [f"not run: {', '.join(lacking)}"] if lacking else []


def _label(judged: Judged) -> str:
    """Return whose difference it is."""
    one = judged.comparison
    return one.method if one.against == one.method else f"{one.method} - {one.against}"


def make_scorecard(folder: Path | str = "results", paper: str | None = None) -> pd.DataFrame:
    """Return a row per claim of the five papers.

    Args:
        folder: that holds results of sweeps, <experiment>-<scale>; those that come with the package are read too.
        paper: one of `papers.PAPERS` (None: all).

    Returns:
        Columns: id, paper, item, claim, relation, stated (value) and unit; state; ours, low, high (mean and 95 %
        interval, in points, of the comparison that is the least favourable to the claim) and of (whose difference);
        yes, no, open (numbers of comparisons); seeds, scale, note, warnings (of its runs), command.

    Raises:
        ConfigError: no such paper, or results that cannot be read.
    """
    if paper is not None:
        papers.read_paper_table(paper)
    frame = papers.read_paper_claims()
    wanted = frame if paper is None else frame[frame["paper"] == paper]
    found = {items: read_evidence(items.split(), Path(folder)) for items in wanted["item"].unique()}
    return pd.DataFrame([make_scorecard_row(claim, found[claim["item"]]) for _, claim in wanted.iterrows()])


STYLE = (
    "body{font:15px/1.4 sans-serif;margin:2em auto;max-width:75em;padding:0 1em}"
    "table{border-collapse:collapse}td,th{border-top:1px solid #bbb;padding:.3em .6em;text-align:left;"
    "vertical-align:top}code{font-size:85%}"
)
"""The look of the page."""
SHOWN = (
    "state",
    "claim",
    "stated",
    "unit",
    "of",
    "ours",
    "low",
    "high",
    "seeds",
    "scale",
    "note",
    "warnings",
    "command",
)
"""Columns of the page."""


def format_scorecard_page(frame: pd.DataFrame) -> str:
    """Return the scorecard as one HTML page, a table per paper, which needs no network."""
    parts = []
    for paper, of in frame.groupby("paper", sort=False):
        counts = ", ".join(f"{n} {state}" for state, n in of["state"].value_counts().items())
        shown = of[list(SHOWN)].to_html(index=False, na_rep="", float_format="{:.2f}".format, border=0)
        parts.append(f"<h2>{paper}</h2>\n<p>{len(of)} claims: {counts}.</p>\n{shown}")
    title = "What the five papers claim, and what our runs give"
    head = f'<meta charset="utf-8"><title>{title}</title><style>{STYLE}</style>'
    rule = "Numbers are in points, of the comparison that is the least favourable to the claim, with 95 % intervals."
    return f"<!doctype html>\n<html lang='en'><head>{head}</head>\n<body><h1>{title}</h1>\n<p>{rule}</p>\n" + (
        "\n".join(parts) + "\n</body></html>\n"
    )
