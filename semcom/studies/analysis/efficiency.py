"""Accuracy against its cost: traffic, airtime, energy and training samples."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import numpy as np
import pandas as pd

from semcom.config import ConfigError
from semcom.runs.folder.arrays import is_leak
from semcom.studies.analysis.curves import find_round_of_target
from semcom.studies.analysis.frames import AIRTIME, PER_ROUND, sum_traffic
from semcom.studies.analysis.means import check_seeds_alone, compute_means
from semcom.studies.results.run import Stored

COSTS = (*PER_ROUND, AIRTIME, "time_s", "samples", "rounds")
"""The costs of a run. Traffic is that of both directions, over the whole run; `time_s`, counted with
`network.flops`, is that of all rounds."""

GROWING = ("psnr", "ssim", "accuracy", "auc")
"""Numbers of an attack that grow with what is given away."""


def read_cost(run: Stored, cost: str) -> float:
    """Read the total cost of a finished run; NaN if it is not known.

    Args:
        run: the run.
        cost: one of `COSTS`, or a number of an attack that is one of `GROWING`, such as leak.psnr.

    Raises:
        ConfigError: there is no such cost, or it is a number of an attack that is none of `GROWING`.
    """
    if is_leak(cost):
        if not _grows_with_leak(cost):
            raise ConfigError(
                f"cost: {cost} does not grow with what is given away; of an attack {', '.join(GROWING)} do"
            )
        return float(run.flat.get(cost, math.nan))
    if cost not in COSTS:
        raise ConfigError(f"cost: {cost!r} is not one of {', '.join(COSTS)}, or a number of an attack, as leak.psnr")
    summary = run.summary or {}
    if cost in ("time_s", "samples", "rounds"):
        return float(summary.get(cost, math.nan))
    directions = summary.get("traffic", {}).values()
    return sum(sum_traffic(run, counts, cost) for counts in directions) if directions else math.nan


def list_leaks(runs: Iterable[Stored]) -> list[str]:
    """List the numbers of attacks on some runs that grow with what is given away, such as leak.psnr."""
    names = dict.fromkeys(name for run in runs for name in run.flat if is_leak(name))
    return list(filter(_grows_with_leak, names))


def _grows_with_leak(name: str) -> bool:
    """Check whether a number of an attack, such as leak.psnr, is one of `GROWING`."""
    return name.rpartition(".")[2] in GROWING


def find_efficient_variants(frame: pd.DataFrame, axes: Sequence[str], higher: bool = True) -> pd.DataFrame:
    """Average value and cost over seeds, and find the efficient variants among those at the same point.

    A variant is efficient if no other one is at least as good for at most the same cost, and better in one of them.
    This compares the means; the intervals of the value stand beside them.

    Args:
        frame: a row per finished run: variant, seed, axes, value, cost.
        axes: fields that tell the points apart.
        higher: whether more of the value is better.

    Returns:
        Columns: variant, axes, value, low, high, n, cost, efficient.
    """
    by = ["variant", *axes]
    found = compute_means(frame, by, "value").rename(columns={"mean": "value"}).drop(columns="interval")
    found["cost"] = frame.groupby(by, sort=False, dropna=False)["cost"].mean().to_numpy()  # in the same order
    points = found.groupby(list(axes), sort=False, dropna=False).ngroup() if axes else pd.Series(0, found.index)
    good = found.assign(value=found["value"] if higher else -found["value"])
    efficient = [_is_efficient(good[points == points[i]], good.loc[i]) for i in good.index]
    return found.assign(efficient=efficient)


def _is_efficient(rivals: pd.DataFrame, row: pd.Series) -> bool:
    """Check that no rival dominates a row; the row itself may be among the rivals."""
    as_good = (rivals["value"] >= row["value"]) & (rivals["cost"] <= row["cost"])
    better = (rivals["value"] > row["value"]) | (rivals["cost"] < row["cost"])
    return bool(np.isfinite(row["cost"]) and not (as_good & better).any())


def compute_cost_until_target(
    frame: pd.DataFrame, axes: Sequence[str], target: float, higher: bool = True
) -> pd.DataFrame:
    """Find the cost at which a value, averaged over seeds, first reaches a target.

    The rule: the first round after which all seeds were evaluated and their mean is at least the target, by
    `curves.find_round_of_target`; nothing is read between evaluations.

    Args:
        frame: a row per finished run and evaluation of a view: hash, variant, seed, axes, round, value, spent (what
            the run had cost by then).
        axes: fields that tell the points apart.
        target: the value to reach.
        higher: whether more of it is better.

    Returns:
        Columns: variant, axes, target, round, cost (both NaN where the target is never reached), n (seeds).
    """
    by, rows = ["variant", *axes], []
    check_seeds_alone(frame.drop_duplicates("hash"), axes, "variant")
    for key, cell in frame.groupby(by, sort=False, dropna=False):
        reached = find_round_of_target(cell, target, higher)
        spent = cell.loc[cell["round"] == reached, "spent"]
        rows.append((*key, target, reached, spent.mean(), cell["hash"].nunique()))
    return pd.DataFrame(rows, columns=[*by, "target", "round", "cost", "n"])
