"""Learning curves: smoothing, and when they reach a target."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from semcom.config import ConfigError
from semcom.runs.accuracy import LAST


def smooth(rounds: pd.DataFrame, window: int = LAST, metric: str = "accuracy") -> pd.DataFrame:
    """Return the evaluated rounds with a number averaged over the last `window` evaluations of the run and view.

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


def roughness(lines: Sequence[Mapping[str, Any]], view: str | None) -> float | None:
    """Return the mean change of a view's accuracy from one round to the next, in points, up or down.

    Over the rounds that were evaluated and whose next one was too: all of the last ten are (docs/metrics.md). None
    where there are no such two, as of a method that is evaluated at its end alone.

    Args:
        lines: of metrics.jsonl.
        view: its name.
    """
    found = {line["round"]: line["views"][view]["accuracy"] for line in lines if view in line.get("views", {})}
    steps = [abs(found[i + 1] - found[i]) for i in found if i + 1 in found]
    return 100 * sum(steps) / len(steps) if steps else None


def first_round(rounds: pd.DataFrame, target: float) -> float:
    """Return the first round after which the accuracy, averaged over runs, is at least `target`; NaN for none.

    Only rounds after which all the runs were evaluated count, as the mean over others would jump with their number.

    Args:
        rounds: evaluated rounds of one view of runs that differ in their seeds alone.
        target: accuracy, a fraction of 1.
    """
    over_runs = rounds.groupby("round")["accuracy"].agg(["mean", "count"])
    common = over_runs.loc[over_runs["count"] == rounds["hash"].nunique(), "mean"]
    reached = common.index[common >= target]
    return float(reached.min()) if len(reached) else float("nan")
