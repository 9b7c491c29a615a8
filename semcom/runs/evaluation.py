"""Evaluation of a run: the rounds that are evaluated, and the numbers that come of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from semcom.config import Resolved
from semcom.engine.session import Session
from semcom.engine.train.view import View, confusion, confusions
from semcom.runs.accuracy import LAST, per_class, per_client, spread


def is_due(config: Resolved, round_: int) -> bool:
    """Return whether a round is evaluated: every `eval_every`-th one, and each of those that the headline averages."""
    return round_ % config.train.eval_every == 0 or round_ > config.train.rounds - LAST


def evaluate(session: Session, views: Mapping[str, View]) -> dict[str, dict[str, Any]]:
    """Return each view's accuracy on the clients' test samples, as a line of metrics.jsonl holds it.

    The first test SNR gives the accuracies; where `channel.test_snr_db` is set, all of them give a curve. Where the
    partition sets samples aside for validation, their accuracy stands beside them, at the first test SNR.
    """
    draws = session.draws
    if draws.config.train.eval_clients is not None:
        views = of_clients(views, draws.tested())
    found: dict[str, dict[str, Any]] = {name: {} for name in views}
    tests = confusions(session, views, draws.test_snrs, draws.federation.test)
    for snr, tables in zip(draws.test_snrs, tests, strict=True):
        for name, counts in tables.items():
            table = counts.cpu().numpy()
            accuracies = per_client(table)
            if tables is tests[0]:
                found[name] |= spread(accuracies) | {"clients": accuracies.tolist(), "classes": per_class(table)}
            if snr is not None:
                found[name].setdefault("at", {})[f"{snr:g}"] = float(accuracies.mean())
    for name, accuracy in _validation(session, views).items():
        found[name]["validation"] = accuracy
    return found


def _validation(session: Session, views: Mapping[str, View]) -> dict[str, float]:
    """Return each view's accuracy on validation samples, the mean over those clients of it that have some."""
    draws, table = session.draws, session.draws.federation.validation
    if not views or not table.sizes.any():
        return {}
    counts = confusion(session, views, draws.test_snrs[0], table, "validation", metered=False)
    tables = {name: found.cpu().numpy() for name, found in counts.items()}
    have = {name: found.sum((1, 2)) > 0 for name, found in tables.items()}
    return {name: float(per_client(found[have[name]]).mean()) for name, found in tables.items() if have[name].any()}


def of_clients(views: Mapping[str, View], ids: np.ndarray) -> dict[str, View]:
    """Return the views of some clients; those of one population still share one, and with it their forward passes."""
    populations = {id(view.population): view.population for view in views.values()}
    picked = {key: pop.select(ids) for key, pop in populations.items()}
    chosen = {}
    for name, view in views.items():
        at = torch.as_tensor(np.searchsorted(view.population.ids, ids))
        per_client = {key: t[at.to(t.device)] for key, t in view.per_client.items()}
        chosen[name] = View(picked[id(view.population)], view.scores, per_client)
    return chosen
