"""The kinds of a last stage that are no heads: scikit-learn's classifiers, and a round. Nothing here imports torch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, TypeGuard

from semcom.config import ROUND

Kind = Literal["svm", "lr"]
KINDS: Mapping[str, str] = {
    "svm": "A linear support vector machine for each class against the others, squared hinge; for --finish alone.",
    "lr": "Multinomial logistic regression; for --finish alone.",
    ROUND: "No classifier: a round of all tested clients, after which no model is an earlier one; for --finish alone.",
}
"""Name of a kind -> its description."""


def holds_classifier(kind: str | None) -> TypeGuard[Kind]:
    """Check whether a kind of last stage is one of scikit-learn's classifiers, and not a head to train."""
    return kind in KINDS and kind != ROUND


def is_head(kind: str | None) -> TypeGuard[str]:
    """Check whether a kind of last stage is a head to train. None is no last stage."""
    return kind is not None and kind not in KINDS
