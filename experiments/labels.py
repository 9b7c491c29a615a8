"""What tells a run of a study from the others, in a few words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from experiments.words import spelled_set


def label(variant: str, fields: Mapping[str, Any], key: str) -> str:
    """Return the label of a run, such as "fedcl, channel.snr_db=9, seed=1, 4f1c0d6a9b2e".

    Args:
        variant: its variant; the method's name, where it has no other.
        fields: dotted field -> value, of the fields that are named; one without a value is left out.
        key: hash of the run, which is the name of its folder in a sweep.
    """
    return ", ".join([variant, *(spelled_set(n, value) for n, value in fields.items() if value is not None), key])


def labels(runs: Mapping[str, tuple[str, Mapping[str, Any]]]) -> dict[str, str]:
    """Return hash -> label of the runs of a study; a field that has the same value in all of them is not named.

    Args:
        runs: hash -> variant, and the values of the fields that may vary.
    """
    names = dict.fromkeys(name for _, fields in runs.values() for name in fields)
    several = [n for n in names if len({repr(fields.get(n)) for _, fields in runs.values()}) > 1]
    return {key: label(variant, {n: fields.get(n) for n in several}, key) for key, (variant, fields) in runs.items()}
