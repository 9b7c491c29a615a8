"""What a run reports of its tests, and fairness over clients. `docs/metrics.md` explains each number."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from semcom.tasks.metric import ACCURACY, Metric

LAST = 10
"""Number of evaluations that the headline averages: the last min(LAST, all)."""
CURVE = "_at"
"""End of what summaries call a number's values at each test SNR, a mapping of the SNR in dB to the value."""


def curve_of(number: str) -> str:
    """Return what summaries call a number's values at each test SNR: that of accuracy is `at`."""
    return CURVE[1:] if number == ACCURACY.name else number + CURVE


def curves_in(view: Mapping[str, Any]) -> dict[str, str]:
    """Return which numbers of a view are known at each test SNR, in its order: what summaries call that -> number."""
    named = {name: name.removesuffix(CURVE) for name in view if name.endswith(CURVE) or name == CURVE[1:]}
    return {name: ACCURACY.name if name == CURVE[1:] else number for name, number in named.items()}


def compute_client_accuracies(confusion: np.ndarray) -> np.ndarray:
    """Return each client's accuracy: `[K, C, C]` counts (true, predicted) -> `[K]`, a fraction of 1."""
    return np.trace(confusion, axis1=1, axis2=2) / confusion.sum((1, 2))


def compute_class_accuracies(confusion: np.ndarray) -> list[float | None]:
    """Return each class's accuracy over all clients, `[C]`; None for a class that no client tests."""
    total, hit = confusion.sum((0, 2)), np.diagonal(confusion.sum(0))
    return [float(h / t) if t else None for h, t in zip(hit, total, strict=True)]


def compute_constant_accuracies(train: np.ndarray, test: np.ndarray) -> dict[str, float]:
    """Return the mean accuracy over clients of answers that never change, from training and test images by class.

    Args:
        train: int `[K, C]`.
        test: int `[K, C]`; each client has some.

    Returns:
        `own`: where each client answers its most frequent training class; `common`: where all answer the most frequent
        one of all. Of equally frequent classes the first is meant.

    Example:
        >>> import numpy as np
        >>> compute_constant_accuracies(np.array([[3, 1], [0, 2]]), np.array([[1, 1], [0, 4]]))
        {'own': 0.75, 'common': 0.25}
    """
    shares = test / test.sum(1, keepdims=True)
    own = np.take_along_axis(shares, train.argmax(1)[:, None], axis=1)
    return {"own": float(own.mean()), "common": float(shares[:, train.sum(0).argmax()].mean())}


def worst(values: np.ndarray, share: float = 0.1, higher: bool = True) -> float:
    """Return the mean of the worst tenth of the clients (at least one); `higher` values are better."""
    ordered = np.sort(values)[:: 1 if higher else -1]
    return float(ordered[: max(1, round(share * len(values)))].mean())


def jain(accuracies: np.ndarray) -> float:
    """Return Jain's index (sum a)^2 / (K sum a^2): 1 when all clients are equal, 1/K when one has everything."""
    square = float((accuracies**2).sum())
    return float(accuracies.sum() ** 2 / (len(accuracies) * square)) if square else 1.0


def summarize_clients(values: np.ndarray, metric: Metric = ACCURACY) -> dict[str, float]:
    """Return the mean over clients by the metric's name, as `..._std` the population standard deviation, `worst10`.

    Of fractions of 1 `jain` too.
    """
    fairness = {"jain": jain(values)} if metric.share else {}
    return {
        metric.name: float(values.mean()),
        metric.key("std"): float(values.std()),
        metric.key("worst10"): worst(values, higher=metric.higher),
        **fairness,
    }


def compute_headline(
    rounds: Sequence[int],
    evaluations: Sequence[Mapping[str, Any]],
    metrics: Sequence[Metric] = (ACCURACY,),
    since: int = 0,
) -> dict[str, Any]:
    """Return the numbers that a run reports of a view.

    Args:
        rounds: the evaluated rounds.
        evaluations: of each, `clients` (of the first metric, `[K]`), `pooled` (its mean over all test samples), the
            other metrics, with test SNRs curves of them (`at`: SNR -> accuracy), where some client has not all classes
            `among_own` and `among_own_at`, with `train.auc` `auc` and `auc_micro`, with a validation part `validation`.
        metrics: of the task.
        since: the first round whose evaluation may count.

    Returns:
        `summarize_clients` of the per-client means over the last evaluations, these means (`clients`), all others
        averaged likewise, and the best and the last round by themselves (`last_at`: at each test SNR). Picking the best
        test round is a known flaw of the field, so it is never the headline.
    """
    last = [e for round_, e in zip(rounds, evaluations, strict=True) if round_ >= since][-LAST:]
    first = metrics[0]
    means = [float(np.mean(e["clients"])) for e in evaluations]
    best = int(np.argmax(means) if first.higher else np.argmin(means))
    clients = np.mean([e["clients"] for e in last], axis=0)

    def known(*names: str) -> dict[str, list[Any]]:
        return {name: of for name in names if (of := [e[name] for e in last if name in e])}

    curves = {
        name: {snr: float(np.mean([curve[snr] for curve in of])) for snr in of[-1]}
        for name, of in known(*curves_in(last[-1])).items()
    }
    beside = (*(metric.name for metric in metrics[1:]), first.key("pooled"), "auc", "auc_micro", "among_own")
    beside = (*beside, first.key("validation"))
    others = {name: float(np.mean(of)) for name, of in known(*beside).items()}
    own = curve_of(first.name)
    ended = {curve_of(first.key("last")): dict(last[-1][own])} if own in last[-1] else {}
    return {
        **summarize_clients(clients, first),
        "clients": clients.tolist(),
        **curves,
        **others,
        first.key("best"): means[best],
        "best_round": rounds[best],
        first.key("last"): means[-1],
        **ended,
    }


def list_accuracy_snrs(views: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Return the SNRs in dB at which a run was tested, the one of its accuracies first; empty where there is no list.

    Args:
        views: of a summary, or those of `compute_headlines`.
    """
    view = next(iter(views.values()), {})
    return next((list(view[curve]) for curve in curves_in(view)), [])


def compute_headlines(
    lines: Sequence[Mapping[str, Any]], metrics: Sequence[Metric] = (ACCURACY,), since: int = 0
) -> dict[str, dict[str, Any]]:
    """Return each view's `headline` over the lines of metrics.jsonl that evaluated it, in the order of their views."""
    names = dict.fromkeys(name for line in lines for name in line.get("views", {}))
    found = {name: [line for line in lines if name in line.get("views", {})] for name in names}
    return {
        name: compute_headline([r["round"] for r in of], [r["views"][name] for r in of], metrics, since)
        for name, of in found.items()
    }
