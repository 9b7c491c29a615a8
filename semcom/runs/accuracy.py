"""Accuracy and fairness over clients. `docs/metrics.md` explains each number."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

LAST = 10
"""Number of evaluations that the headline averages: the last min(LAST, all)."""
CURVES = {"accuracy": "at", "among_own": "among_own_at", "last": "last_at"}
"""Number of a view -> what summaries call its values at each test SNR, a mapping of the SNR in dB to the value."""


def compute_client_accuracies(confusion: np.ndarray) -> np.ndarray:
    """Return each client's accuracy: `[K, C, C]` counts (true, predicted) -> `[K]`, a fraction of 1."""
    return np.trace(confusion, axis1=1, axis2=2) / confusion.sum((1, 2))


def compute_class_accuracies(confusion: np.ndarray) -> list[float | None]:
    """Return each class's accuracy over all clients, `[C]`; None for a class that no client tests."""
    total, hit = confusion.sum((0, 2)), np.diagonal(confusion.sum(0))
    return [float(h / t) if t else None for h, t in zip(hit, total, strict=True)]


def worst(accuracies: np.ndarray, share: float = 0.1) -> float:
    """Return the mean accuracy of the worst tenth of the clients (at least one)."""
    return float(np.sort(accuracies)[: max(1, round(share * len(accuracies)))].mean())


def jain(accuracies: np.ndarray) -> float:
    """Return Jain's index (sum a)^2 / (K sum a^2): 1 when all clients are equal, 1/K when one has everything."""
    square = float((accuracies**2).sum())
    return float(accuracies.sum() ** 2 / (len(accuracies) * square)) if square else 1.0


def summarize_accuracies(accuracies: np.ndarray) -> dict[str, float]:
    """Return `accuracy` (mean over clients), `accuracy_std` (population standard deviation), `worst10`, `jain`."""
    return {
        "accuracy": float(accuracies.mean()),
        "accuracy_std": float(accuracies.std()),
        "worst10": worst(accuracies),
        "jain": jain(accuracies),
    }


def compute_headline_accuracy(rounds: Sequence[int], evaluations: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the numbers that a run reports of a view.

    Args:
        rounds: the evaluated rounds.
        evaluations: of each, `clients` (accuracies, `[K]`), with test SNRs `at` (SNR -> accuracy), where some client
            has not all classes `among_own` and `among_own_at`, and with a validation part `validation`.

    Returns:
        `summarize_accuracies` of the per-client means over the last evaluations, these means (`clients`), all others
        averaged likewise, and the best and the last round by themselves (`last_at`: at each test SNR). Picking the best
        test round is a known flaw of the field, so it is never the headline.
    """
    last = evaluations[-LAST:]
    means = [float(np.mean(e["clients"])) for e in evaluations]
    best = int(np.argmax(means))
    clients = np.mean([e["clients"] for e in last], axis=0)

    def known(*names: str) -> dict[str, list[Any]]:
        return {name: of for name in names if (of := [e[name] for e in last if name in e])}

    curves = {
        name: {snr: float(np.mean([curve[snr] for curve in of])) for snr in of[-1]}
        for name, of in known(*CURVES.values()).items()
    }
    others = {name: float(np.mean(of)) for name, of in known("among_own", "validation").items()}
    ended = {CURVES["last"]: dict(last[-1][CURVES["accuracy"]])} if CURVES["accuracy"] in last[-1] else {}
    return {
        **summarize_accuracies(clients),
        "clients": clients.tolist(),
        **curves,
        **others,
        "best": means[best],
        "best_round": rounds[best],
        "last": means[-1],
        **ended,
    }


def list_accuracy_snrs(views: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Return the SNRs in dB at which a run was tested, the one of its accuracies first; empty where there is no list.

    Args:
        views: of a summary, or those of `compute_headline_accuracies`.
    """
    return list(next(iter(views.values()), {}).get(CURVES["accuracy"], ()))


def compute_headline_accuracies(lines: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """Return `compute_headline_accuracy` of each view, over the lines of metrics.jsonl that evaluated it, in order."""
    names = dict.fromkeys(name for line in lines for name in line.get("views", {}))
    found = {name: [line for line in lines if name in line.get("views", {})] for name in names}
    return {
        name: compute_headline_accuracy([r["round"] for r in of], [r["views"][name] for r in of])
        for name, of in found.items()
    }
