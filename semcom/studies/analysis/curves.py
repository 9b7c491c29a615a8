"""Learning curves: smoothing, and when they reach a target."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from semcom.config import ConfigError
from semcom.runs.result.accuracy import LAST


def smooth_curves(rounds: pd.DataFrame, window: int = LAST, metric: str = "accuracy") -> pd.DataFrame:
    """Select the evaluated rounds, with a number averaged over the last `window` evaluations of the run and view.

    The first evaluations have fewer before them, and are averaged over those. With the default window the last round
    shows the headline accuracy, which is the mean over as many evaluations (docs/metrics.md).

    Args:
        rounds: `Study.rounds`.
        window: number of evaluations, at least 1.
        metric: column that is averaged.

    Raises:
        ConfigError: the window is no such number, or the rounds have no such number.
    """
    if window < 1:
        raise ConfigError(f"window: {window} is no number of evaluations; give 1 or more")
    found = [name for name in rounds.select_dtypes("number") if name not in ("seed", "round")]
    if len(rounds) and metric not in found:
        raise ConfigError(f"metric: rounds have no {metric!r}; they have {', '.join(found)}")
    evaluated = rounds[rounds["view"].notna()]
    curves = evaluated.groupby(["hash", "view"], sort=False)[metric]
    return evaluated.assign(**{metric: curves.transform(lambda curve: curve.rolling(window, min_periods=1).mean())})


def measure_curve_roughness(lines: Sequence[Mapping[str, Any]], view: str | None) -> float | None:
    """Compute the mean change of a view's accuracy from one round to the next, in points, up or down.

    Over pairs of consecutive evaluated rounds: the last ten rounds are, and with `eval_every` 1 all. None
    where there are no such two, as of a method that is evaluated at its end alone.

    Args:
        lines: of metrics.jsonl.
        view: its name.
    """
    found = _read_view(lines, view)
    steps = [abs(found[i + 1] - found[i]) for i in found if i + 1 in found]
    return 100 * sum(steps) / len(steps) if steps else None


SPANS = {"first tenth": (0.0, 0.1), "third quarter": (0.5, 0.75), "last quarter": (0.75, 1.0)}
"""Part of the training -> after which and until which part of the rounds it lasts."""
NEARLY = 0.9
"""Part of its headline accuracy with which a run has nearly converged."""


def average_curve_within(lines: Sequence[Mapping[str, Any]], view: str | None, span: str, rounds: int) -> float | None:
    """Compute the mean accuracy of a view over a part of the training, in percent.

    None where no round of it was evaluated.

    Args:
        lines: of metrics.jsonl.
        view: its name.
        span: one of `SPANS`.
        rounds: T.
    """
    start, end = (part * rounds for part in SPANS[span])
    total, weight, before = 0.0, 0.0, 0.0
    for i, accuracy in sorted(_read_view(lines, view).items()):
        if start < i <= end:  # it stands for the rounds since the last evaluation, as the last ten are all evaluated
            total, weight = total + (i - max(before, start)) * accuracy, weight + i - max(before, start)
        before = i
    return 100 * total / weight if weight else None


def measure_curve_speed(
    lines: Sequence[Mapping[str, Any]], view: str | None, accuracy: float, rounds: int
) -> float | None:
    """Compute how much of the training is left when a view has nearly converged, in percent of its rounds.

    That is after the first evaluated round in which its accuracy is nine tenths of its headline or more. None where
    only the end was evaluated. The definition is ours: no paper gives one.

    Args:
        lines: of metrics.jsonl.
        view: its name.
        accuracy: its headline, a fraction of 1.
        rounds: T.
    """
    found = _read_view(lines, view)
    reached = [i for i, value in found.items() if value >= NEARLY * accuracy]
    return 100 * (1 - min(reached) / rounds) if reached and min(found) < rounds else None


def _read_view(lines: Sequence[Mapping[str, Any]], view: str | None) -> dict[int, float]:
    """Read the accuracy of a view, a fraction of 1, by evaluated round."""
    return {line["round"]: line["views"][view]["accuracy"] for line in lines if view in line.get("views", {})}


def find_round_of_target(rounds: pd.DataFrame, target: float, higher: bool = True) -> float:
    """Find the first round after which a value, averaged over runs, is at least `target`; NaN without such a round.

    Where less is better (not `higher`), at most `target`.

    Only rounds after which all the runs were evaluated count, as the mean over others would jump with their number.

    Args:
        rounds: evaluated rounds of one view of runs that differ in their seeds alone, with the value as `value`.
        target: the value to reach.
    """
    over_runs = rounds.groupby("round")["value"].agg(["mean", "count"])
    common = over_runs.loc[over_runs["count"] == rounds["hash"].nunique(), "mean"]
    reached = common.index[common >= target if higher else common <= target]
    return float(reached.min()) if len(reached) else float("nan")
