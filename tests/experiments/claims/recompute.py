"""Claims held against the papers' own tables: which cells contradict them, by the rule of experiments/protocol.md."""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd

from semcom_papers.experiments.claims.claim import Claim, Comparison
from semcom_papers.experiments.claims.printed import Cell, Tables, list_printed_comparisons

SHARES: Mapping[str, float] = {"some": 0.0, "most": 0.5, "almost-all": 0.8 - 1e-9}
"""Quantifier -> more than this part of the comparisons must hold."""
HALF_A_DIGIT = 0.0051
NEAR = 2.0
"""Points by which a printed number may miss a claim before it contradicts it."""


def contradictions(claim: pd.Series, tables: Tables, near: float = NEAR) -> list[Cell] | None:
    """Return the cells that contradict a claim; None where the tables have nothing to say about it.

    Args:
        claim: a row of `papers.claims`.
        tables: of its paper.
        near: points by which a number may miss the claim; 0: printed numbers have to be as it says.
    """
    found, quantifier = list_printed_comparisons(claim, tables), Claim.read(claim).quantifier
    if not found:
        return None
    held = [holds(one, near) for one in found]
    bad = [(*one.key[:1], one.against, *one.key[1:]) for one, good in zip(found, held, strict=True) if not good]
    share = sum(held) / len(held)
    return [] if quantifier in SHARES and share > SHARES[quantifier] else list(dict.fromkeys(bad))


def holds(one: Comparison, near: float = NEAR) -> bool:
    """Return whether exact numbers are as a comparison has them, or miss it by `near` points at most."""
    values = [each.tolist()[0] for each in one.values]
    if one.top is not None:
        return sum(value > near for value in values) < one.top
    if one.target is None:
        return values[0] > 0 if near == 0 else values[0] >= -near
    return abs(values[0] - one.target) < max(near, HALF_A_DIGIT)
