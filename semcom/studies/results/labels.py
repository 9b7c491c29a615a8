"""What tells a run of a study from the others, in a few words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from semcom.studies.overrides import spelled_set


def label(variant: str, fields: Mapping[str, Any], key: str | None = None) -> str:
    """Return the label of a run, such as "fedcl, channel.snr_db=9, seed=1, 4f1c0d6a9b2e".

    Args:
        variant: its variant; the method's name, where it has no other.
        fields: dotted field -> value, of the fields that are named; one without a value is left out.
        key: hash of the run, which is the name of its folder in a sweep (None: it is not one run).
    """
    named = [spelled_set(name, value) for name, value in fields.items() if value is not None]
    return ", ".join([variant, *named, *([key] if key else [])])


def labels(runs: Mapping[str, tuple[str, Mapping[str, Any]]]) -> dict[str, str]:
    """Return hash -> label of the runs of a study; a field that has the same value in all of them is not named.

    Args:
        runs: hash -> variant, and the values of the fields that may vary.
    """
    several = varied([fields for _, fields in runs.values()])
    return {key: label(variant, {n: fields.get(n) for n in several}, key) for key, (variant, fields) in runs.items()}


def varied(runs: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the fields that have more than one value in some runs, dotted field -> value of each."""
    names = dict.fromkeys(name for fields in runs for name in fields)
    return [name for name in names if len({repr(fields.get(name)) for fields in runs}) > 1]
