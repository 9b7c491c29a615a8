"""Evaluation of a run: the rounds that are evaluated, and the numbers that come of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np
import torch

from semcom.config import ConfigError, NoEffect, Resolved
from semcom.data.federation import Federation
from semcom.engine.host.sending import send_to_device
from semcom.engine.train.session import Session
from semcom.engine.train.view import Note, View, count_confusion, count_confusions_of_views, measure_views
from semcom.engine.train.visit import Outputs
from semcom.engine.world import World
from semcom.methods.base import Method
from semcom.methods.registry import METHODS
from semcom.runs.request.finish import has_own_stage
from semcom.runs.result.accuracy import (
    LAST,
    compute_class_accuracies,
    compute_client_accuracies,
    curve_of,
    summarize_clients,
)
from semcom.runs.result.auc import RocAreas
from semcom.tasks.metric import Metric


def is_evaluation_due(config: Resolved, round_: int) -> bool:
    """Return whether a round is evaluated: the first, every `eval_every`-th, and each that the headline averages."""
    return round_ == 1 or round_ % config.train.eval_every == 0 or round_ > config.train.rounds - LAST


def check_patience(config: Resolved, members: Federation) -> None:
    """Raise NoEffect for a patience where no images are set aside for validation."""
    if config.train.patience is not None and not members.validation.sizes.any():
        raise NoEffect(f"train.patience: {config.train.patience} has no effect without partition.validation")


def find_stall(patience: int | None, lines: Sequence[Mapping[str, Any]], metric: Metric) -> int | None:
    """Find the round whose evaluation has stayed the best on validation images for at least `patience` evaluations.

    Args:
        patience: number of evaluations (None: there is no such round).
        lines: of metrics.jsonl; the first view of each counts, and of equal evaluations the first one.
        metric: the headline.

    Returns:
        the round, or None while there is none.
    """
    if patience is None:
        return None
    evaluated = [(line["round"], next(iter(line["views"].values()))) for line in lines if line.get("views")]
    key = metric.key("validation")
    found = {round_: view[key] if metric.higher else -view[key] for round_, view in evaluated if key in view}
    if not found:
        return None
    best = max(found, key=found.__getitem__)
    return best if sum(round_ > best for round_ in found) >= patience else None


def evaluate_views(session: Session, views: Mapping[str, View]) -> dict[str, dict[str, Any]]:
    """Return what each view's answers on the clients' test samples are worth, as a line of metrics.jsonl holds it.

    The first test SNR gives the numbers of clients; where `channel.test_snr_db` is set, all give a curve. Where some
    client has not all classes, the same answers taken among its own classes stand beside them. Where the partition sets
    samples aside for validation, their accuracy does too, at the first test SNR, and with `train.auc` areas under the
    ROC curve.
    """
    draws = session.draws
    if draws.config.train.eval_clients is not None:
        views = narrow_views(views, draws.tested())
    first, classifies = draws.task.metrics[0], draws.task.classifies
    found: dict[str, dict[str, Any]] = {name: {} for name in views}
    tests = _score_classes(session, views) if classifies else _score_metrics(session, views)
    for test, (snr, scores) in enumerate(zip(draws.test_snrs, tests, strict=True)):
        for name, (clients, more, means) in scores.items():
            if test == 0:
                found[name] = {**summarize_clients(clients, first), "clients": clients.tolist(), **more, **means}
            if snr is not None:
                for number, mean in means.items():
                    found[name].setdefault(curve_of(number), {})[f"{snr:g}"] = mean
    if views and draws.federation.validation.sizes.any():
        for name, values in (_validate_classes if classifies else _validate_metric)(session, views).items():
            if len(values):
                found[name][first.key("validation")] = float(values.mean())
    return found


Scores = Iterator[dict[str, tuple[np.ndarray, dict[str, Any], dict[str, float]]]]
"""For each test, by view: the headline of each client `[K]`, what else the first test tells, and means over clients."""


def _score_classes(session: Session, views: Mapping[str, View]) -> Scores:
    """Yield what the answers of a classification are worth: accuracies, also among the clients' own classes."""
    draws = session.draws
    among = None if draws.federation.owned.all() else AmongOwn(session, views)
    areas = RocAreas(session, views) if draws.config.train.auc else None

    notes: list[Note] = [each for each in (among, areas) if each is not None]

    def note(names: Sequence[str], heard: Outputs) -> None:
        for each in notes:
            each(names, heard)

    tests = count_confusions_of_views(session, views, draws.test_snrs, draws.federation.test, note=note)
    for test, tables in enumerate(tests):
        scores = {}
        for name, counts in tables.items():
            table = counts.cpu().numpy()
            accuracies = compute_client_accuracies(table)
            own = {} if among is None else {"among_own": among.accuracy(name, test)}
            more: dict[str, Any] = {"classes": compute_class_accuracies(table)}
            more |= areas.summarize(name) if areas is not None and test == 0 else {}
            pooled = float(np.trace(table.sum(0)) / table.sum())
            scores[name] = accuracies, more, {"accuracy": float(accuracies.mean()), "pooled": pooled, **own}
        yield scores


def _score_metrics(session: Session, views: Mapping[str, View]) -> Scores:
    """Yield what the answers of any other task are worth, by its metrics."""
    draws = session.draws
    first, sizes = draws.task.metrics[0], draws.federation.test.sizes
    for tables in measure_views(session, views, draws.test_snrs, draws.federation.test):
        scores = {}
        for name, of in tables.items():
            means = {metric: float(values.mean()) for metric, values in of.items()}
            pooled = np.average(of[first.name], weights=sizes[views[name].population.ids])
            scores[name] = of[first.name], dict[str, Any](), {**means, first.key("pooled"): float(pooled)}
        yield scores


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
            right = self.views[name].decide(heard, among) == heard.batch.y
            self.right[name][heard.test, heard.where] += (right * heard.batch.weight).sum(1).to(torch.int64)

    @cached_property
    def accuracies(self) -> dict[str, np.ndarray]:
        """Each view's accuracies over all ranks, `[tests, K]`."""
        return {name: self.team.sum(t).cpu().numpy() / self.sizes[name] for name, t in self.right.items()}

    def accuracy(self, name: str, test: int) -> float:
        """Return the mean over clients of a view's accuracy in one test."""
        return float(self.accuracies[name][test].mean())


def _validate_classes(session: Session, views: Mapping[str, View]) -> dict[str, np.ndarray]:
    """Return each view's accuracies on validation samples, of those clients of it that have some."""
    draws = session.draws
    table = draws.federation.validation
    counts = count_confusion(session, views, draws.test_snrs[0], table, "validation", metered=False)
    tables = {name: found.cpu().numpy() for name, found in counts.items()}
    return {name: compute_client_accuracies(found[found.sum((1, 2)) > 0]) for name, found in tables.items()}


def _validate_metric(session: Session, views: Mapping[str, View]) -> dict[str, np.ndarray]:
    """Return the same of the headline of any other task."""
    draws = session.draws
    first, table = draws.task.metrics[0].name, draws.federation.validation
    (found,) = measure_views(session, views, draws.test_snrs[:1], table, "validation", metered=False)
    return {name: of[first][table.sizes[views[name].population.ids] > 0] for name, of in found.items()}


def narrow_views(views: Mapping[str, View], ids: np.ndarray) -> dict[str, View]:
    """Return the views of some clients; those of one population still share one, and with it their forward passes."""
    populations = {id(view.population): view.population for view in views.values()}
    picked = {key: pop.select(ids) for key, pop in populations.items()}
    chosen = {}
    for name, view in views.items():
        at = torch.as_tensor(np.searchsorted(view.population.ids, ids))
        per_client = {key: t[at.to(t.device)] for key, t in view.per_client.items()}
        chosen[name] = replace(view, population=picked[id(view.population)], per_client=per_client)
    return chosen
