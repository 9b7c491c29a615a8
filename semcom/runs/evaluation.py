"""Evaluation of a run: the rounds that are evaluated, and the numbers that come of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import torch

from semcom.config import ConfigError, Resolved
from semcom.engine.host.sending import send_to_device
from semcom.engine.session import Session
from semcom.engine.train.view import View, count_confusion, count_confusions_of_views, measure_views
from semcom.engine.train.visit import Outputs
from semcom.engine.world import World
from semcom.methods.base import Method
from semcom.methods.registry import METHODS
from semcom.runs.accuracy import LAST, compute_class_accuracies, compute_client_accuracies, curve_of, summarize_clients
from semcom.runs.finish import has_own_stage


def is_evaluation_due(config: Resolved, round_: int) -> bool:
    """Return whether a round is evaluated: every `eval_every`-th one, and each of those that the headline averages."""
    return round_ % config.train.eval_every == 0 or round_ > config.train.rounds - LAST


def evaluate_views(session: Session, views: Mapping[str, View]) -> dict[str, dict[str, Any]]:
    """Return what each view's answers on the clients' test samples are worth, as a line of metrics.jsonl holds it.

    The first test SNR gives the numbers of clients; where `channel.test_snr_db` is set, all give a curve. Where some
    client has not all classes, the same answers taken among its own classes stand beside them. Where the partition sets
    samples aside for validation, their accuracy does too, at the first test SNR.
    """
    draws = session.draws
    if draws.config.train.eval_clients is not None:
        views = narrow_views(views, draws.tested())
    found: dict[str, dict[str, Any]] = {name: {} for name in views}
    if not draws.task.classifies:
        return _measured(session, views)
    among = None if draws.federation.owned.all() else AmongOwn(session, views)
    tests = count_confusions_of_views(session, views, draws.test_snrs, draws.federation.test, note=among)
    for test, (snr, tables) in enumerate(zip(draws.test_snrs, tests, strict=True)):
        for name, counts in tables.items():
            table = counts.cpu().numpy()
            accuracies = compute_client_accuracies(table)
            means = {"accuracy": float(accuracies.mean())}
            if among is not None:
                means["among_own"] = among.accuracy(name, test)
            if test == 0:
                single = {"clients": accuracies.tolist(), "classes": compute_class_accuracies(table)}
                found[name] = {**summarize_clients(accuracies), **single, **means}
            if snr is not None:
                for number, mean in means.items():
                    found[name].setdefault(curve_of(number), {})[f"{snr:g}"] = mean
    for name, accuracy in _evaluate_validation(session, views).items():
        found[name]["validation"] = accuracy
    return found


def _measured(session: Session, views: Mapping[str, View]) -> dict[str, dict[str, Any]]:
    """Return the numbers of a task that does not ask for classes, which its metrics name, of each view."""
    draws = session.draws
    first, *others = draws.task.metrics
    found: dict[str, dict[str, Any]] = {name: {} for name in views}
    tests = measure_views(session, views, draws.test_snrs, draws.federation.test)
    for test, (snr, tables) in enumerate(zip(draws.test_snrs, tests, strict=True)):
        for name, clients in tables.items():
            own = clients[first.name]
            means = {metric.name: float(clients[metric.name].mean()) for metric in (first, *others)}
            if test == 0:
                found[name] = {**summarize_clients(own, first), "clients": own.tolist(), **means}
            if snr is not None:
                for number, mean in means.items():
                    found[name].setdefault(curve_of(number), {})[f"{snr:g}"] = mean
    table = draws.federation.validation
    if views and table.sizes.any():
        (held,) = measure_views(session, views, draws.test_snrs[:1], table, "validation", metered=False)
        for name, clients in held.items():
            found[name][first.key("validation")] = float(np.nanmean(clients[first.name]))
    return found


def check_evaluated_views(method: Method, state: Any, world: World) -> None:
    """Raise ConfigError, before any work, for a method of a user's of which nothing would be evaluated."""
    name = world.config.method
    if METHODS.ships(name) or has_own_stage(method):
        return
    views = method.views(state, world)
    if not (isinstance(views, Mapping) and views and all(isinstance(view, View) for view in views.values())):
        wanted = "without a `finish`, it has to give at least one View by name"
        raise ConfigError(f"method: `views` of {name} gives {views!r:.80}; {wanted}")


class AmongOwn:
    """Counts the right answers that a test has where each client answers among the classes of its training images.

    Called with each batch of the test, see `semcom.engine.train.view.Note`.

    Args:
        session: the run.
        views: what is tested.
    """

    def __init__(self, session: Session, views: Mapping[str, View]) -> None:
        draws, self.team, self.views = session.draws, session.team, views
        self.sizes = {name: draws.federation.test.sizes[view.population.ids] for name, view in views.items()}
        owned = {name: draws.federation.owned[view.population.ids] for name, view in views.items()}
        self.owned = send_to_device(owned, draws.device)
        shape = {name: (len(draws.test_snrs), len(sizes)) for name, sizes in self.sizes.items()}
        self.right = {name: torch.zeros(of, dtype=torch.int64, device=draws.device) for name, of in shape.items()}

    def __call__(self, names: Sequence[str], heard: Outputs) -> None:
        """Count a batch, for the views of one population."""
        for name in names:
            among = self.owned[name][heard.where]
            right = self.views[name].decide(heard.features, heard.logits, heard.where, among) == heard.batch.y
            self.right[name][heard.test, heard.where] += (right * heard.batch.weight).sum(1).to(torch.int64)

    @cached_property
    def accuracies(self) -> dict[str, np.ndarray]:
        """Each view's accuracies over all ranks, `[tests, K]`."""
        return {name: self.team.sum(t).cpu().numpy() / self.sizes[name] for name, t in self.right.items()}

    def accuracy(self, name: str, test: int) -> float:
        """Return the mean over clients of a view's accuracy in one test."""
        return float(self.accuracies[name][test].mean())


def _evaluate_validation(session: Session, views: Mapping[str, View]) -> dict[str, float]:
    """Return each view's accuracy on validation samples, the mean over those clients of it that have some."""
    draws, table = session.draws, session.draws.federation.validation
    if not views or not table.sizes.any():
        return {}
    counts = count_confusion(session, views, draws.test_snrs[0], table, "validation", metered=False)
    tables = {name: found.cpu().numpy() for name, found in counts.items()}
    have = {name: found.sum((1, 2)) > 0 for name, found in tables.items()}
    return {
        name: float(compute_client_accuracies(found[have[name]]).mean())
        for name, found in tables.items()
        if have[name].any()
    }


def narrow_views(views: Mapping[str, View], ids: np.ndarray) -> dict[str, View]:
    """Return the views of some clients; those of one population still share one, and with it their forward passes."""
    populations = {id(view.population): view.population for view in views.values()}
    picked = {key: pop.select(ids) for key, pop in populations.items()}
    chosen = {}
    for name, view in views.items():
        at = torch.as_tensor(np.searchsorted(view.population.ids, ids))
        per_client = {key: t[at.to(t.device)] for key, t in view.per_client.items()}
        chosen[name] = View(picked[id(view.population)], view.scores, per_client)
    return chosen
