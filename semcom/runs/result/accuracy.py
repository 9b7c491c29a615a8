"""What a run reports of its tests, and fairness over clients. `docs/metrics.md` explains each number."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import numpy as np

from semcom.tasks.metric import ACCURACY, Metric, map_metric_curves, name_metric_curve

T = TypeVar("T")
LAST = 10
"""Number of evaluations that the headline averages: the last min(LAST, all)."""


def compute_client_accuracies(confusion: np.ndarray) -> np.ndarray:
    """Compute each client's accuracy: `[K, C, C]` counts (true, predicted) -> `[K]`, a fraction of 1."""
    return np.trace(confusion, axis1=1, axis2=2) / confusion.sum((1, 2))


def compute_constant_accuracies(train: np.ndarray, test: np.ndarray) -> dict[str, float]:
    """Compute the mean accuracy over clients of constant answers, from training and test images by class.

    Args:
        train: int `[K, C]`.
        test: int `[K, C]`; each client has some.

    Returns:
        `own`: each client answers its most frequent training class; `common`: all answer the most frequent class of
            all.
        Of equally frequent classes the first one counts.

    Example:
        >>> import numpy as np
        >>> compute_constant_accuracies(np.array([[3, 1], [0, 2]]), np.array([[1, 1], [0, 4]]))
        {'own': 0.75, 'common': 0.25}
    """
    shares = test / test.sum(1, keepdims=True)
    own = np.take_along_axis(shares, train.argmax(1)[:, None], axis=1)
    return {"own": float(own.mean()), "common": float(shares[:, train.sum(0).argmax()].mean())}


def average_worst_tenth(values: np.ndarray, share: float = 0.1, higher: bool = True) -> float:
    """Average the worst tenth of the clients (at least one); `higher` values are better."""
    ordered = np.sort(values)[:: 1 if higher else -1]
    return float(ordered[: max(1, round(share * len(values)))].mean())


def jain_index(accuracies: np.ndarray) -> float:
    """Compute Jain's index (sum a)^2 / (K sum a^2): 1 when all clients are equal, 1/K when one has everything."""
    square = float((accuracies**2).sum())
    return float(accuracies.sum() ** 2 / (len(accuracies) * square)) if square else 1.0


def summarize_accuracies(values: np.ndarray, metric: Metric = ACCURACY) -> dict[str, float]:
    """Compute the clients' mean by the metric's name, their population standard deviation `..._std`, `worst10`.

    Of fractions of 1 `jain` too.
    """
    fairness = {"jain": jain_index(values)} if metric.share else {}
    return {
        metric.name: float(values.mean()),
        metric.key("std"): float(values.std()),
        metric.key("worst10"): average_worst_tenth(values, higher=metric.higher),
        **fairness,
    }


def compute_headlines(
    lines: Sequence[Mapping[str, Any]], metric: Metric = ACCURACY, since: int = 0
) -> dict[str, dict[str, Any]]:
    """Return the numbers that a run reports of each view that lines of metrics.jsonl evaluated, in their order.

    Args:
        lines: each with its `round` and, where that was evaluated, `views` as of `evaluate_views`.
        metric: the headline.
        since: the best round on validation images, after an early stop: all evaluations from it on count.

    Returns:
        By view `summarize_accuracies` of the per-client means over the last evaluations, these means (`clients`), all
        other numbers and their curves over test SNRs averaged likewise, and the best and the last round by themselves
        (`last_at`: at each test SNR). Picking the best test round is a known flaw of the field, so it is never the
        headline.
    """
    found: dict[str, dict[int, Mapping[str, Any]]] = {}
    for line in lines:
        for name, view in line.get("views", {}).items():
            found.setdefault(name, {})[line["round"]] = view
    return {name: _average_evaluations(of, metric, since) for name, of in found.items()}


def select_counted(of: Mapping[int, T], since: int) -> list[T]:
    """Select the evaluations that a headline averages, by round: the last ones, or all from round `since` on."""
    kept = [found for round_, found in of.items() if round_ >= since]
    return kept if since else kept[-LAST:]


def _average_evaluations(of: Mapping[int, Mapping[str, Any]], metric: Metric, since: int) -> dict[str, Any]:
    """Compute the numbers of one view from its evaluations by round."""
    last = select_counted(of, since)
    means = {round_: float(np.mean(view["clients"])) for round_, view in of.items()}
    best = (max if metric.higher else min)(means, key=means.__getitem__)
    clients = np.mean([view["clients"] for view in last], axis=0)
    spread = summarize_accuracies(clients, metric)
    plain = dict.fromkeys(name for view in last for name, value in view.items() if isinstance(value, float))
    others = {name: [view[name] for view in last if name in view] for name in plain if name not in spread}
    curves = {name: [view[name] for view in last if name in view] for name in map_metric_curves(last[-1])}
    own = name_metric_curve(metric.name)
    return {
        **spread,
        "clients": clients.tolist(),
        **{name: {snr: float(np.mean([curve[snr] for curve in c])) for snr in c[-1]} for name, c in curves.items()},
        **{name: float(np.mean(values)) for name, values in others.items()},
        metric.key("best"): means[best],
        "best_round": best,
        metric.key("last"): list(means.values())[-1],
        **({name_metric_curve(metric.key("last")): dict(last[-1][own])} if own in last[-1] else {}),
    }


def describe_window(summary: Mapping[str, Any], view: str) -> str:
    """Describe the evaluations that the numbers of a view average: "mean of the last 10 rounds"."""
    if view in summary.get("finish", {}).get("views", {}):
        return "at the end"
    if "stopped" in summary:
        return f"mean from round {summary['stopped']['best_on_validation']} on"
    rounds = min(LAST, summary["rounds"])  # each of the last rounds is evaluated, whatever `eval_every`
    return f"mean of the last {rounds} rounds" if rounds > 1 else "the last round"


def list_accuracy_snrs(views: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """List the SNRs in dB of the tests of a run, the headline's first; empty without a list.

    Args:
        views: of a summary, or those of `compute_headlines`.
    """
    view = next(iter(views.values()), {})
    return next((list(view[curve]) for curve in map_metric_curves(view)), [])
