"""Evaluation of a run: the rounds that are evaluated, and the numbers that come of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from semcom.config import ConfigError, NoEffect, Resolved
from semcom.data.federation import Federation
from semcom.engine.host.sending import send_to_device
from semcom.engine.train.session import Session
from semcom.engine.train.view import AMONG, View, measure_views
from semcom.engine.train.visit import Outputs
from semcom.engine.world import World
from semcom.methods.base import Method, has_own_stage
from semcom.methods.registry import METHODS
from semcom.runs.result.accuracy import LAST, summarize_accuracies
from semcom.tasks.metric import Metric, name_metric_curve


def is_evaluation_due(config: Resolved, round_: int) -> bool:
    """Check whether a round is evaluated: the first, every `eval_every`-th, and all that the headline averages."""
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
        the round, or None without such a round.
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
    """Evaluate each view's answers on the clients' test samples, for a line of metrics.jsonl.

    Each metric of the task, and each further one of the run, is a number: the mean over clients. The first test SNR
    gives those of clients; with `channel.test_snr_db`, all SNRs give a curve. A classification also has the accuracies
    of classes and, if some client has not all classes, of the answers among its own. If the partition sets samples
    aside for validation, their headline is there too, at the first test SNR.
    """
    draws = session.draws
    if draws.config.train.eval_clients is not None:
        views = narrow_evaluated_views(views, draws.tested())
    task, first, own = draws.task, draws.task.metrics[0], draws.federation.owned
    classes = ClassHits(session, views) if task.classifies else None
    scores = Scores(session, views) if task.beside else None
    among = {name: own[view.population.ids] for name, view in views.items()}
    found: dict[str, dict[str, Any]] = {name: {} for name in views}

    def note(names: Sequence[str], heard: Outputs) -> None:
        for each in (classes, scores):
            if each is not None:
                each(names, heard)

    tests = measure_views(
        session,
        views,
        draws.test_snrs,
        draws.federation.test,
        note=note,
        among=send_to_device(among, draws.device) if task.classifies and not own.all() else None,
    )
    for test, (snr, measured) in enumerate(zip(draws.test_snrs, tests, strict=True)):
        for name, of in measured.items():
            head = of[first.name]
            means = {metric.name: float(of[metric.name].clients.mean()) for metric in task.metrics}
            means |= {first.key("pooled"): head.pooled}
            means |= {AMONG: float(of[AMONG].clients.mean())} if AMONG in of else {}
            means |= scores.compute(name, test) if scores is not None else {}
            if test == 0:
                by_class = {} if classes is None else {"classes": classes.shares(name)}
                found[name] = {
                    **summarize_accuracies(head.clients, first),
                    "clients": head.clients.tolist(),
                    **by_class,
                }
                found[name] |= means
            if snr is not None:
                for number, mean in means.items():
                    found[name].setdefault(name_metric_curve(number), {})[f"{snr:g}"] = mean
    table = draws.federation.validation
    if views and table.sizes.any():
        (validated,) = measure_views(session, views, draws.test_snrs[:1], table, "validation", metered=False)
        for name, of in validated.items():
            values = of[first.name].clients[table.sizes[views[name].population.ids] > 0]
            found[name] |= {first.key("validation"): float(values.mean())} if len(values) else {}
    return found


class ClassHits:
    """Counts the right answers to each class at the first test SNR; called with each batch.

    Args:
        session: the run.
        views: the tested views.
    """

    def __init__(self, session: Session, views: Mapping[str, View]) -> None:
        draws, self.session, self.views = session.draws, session, views
        shape = 2, len(draws.federation.classes)
        self.hits = {name: torch.zeros(shape, dtype=torch.int64, device=draws.device) for name in views}

    def __call__(self, names: Sequence[str], heard: Outputs) -> None:
        """Count a batch, for the views of one population."""
        y, real = heard.batch.y.flatten(), heard.batch.weight.flatten().to(torch.int64)
        for name in names if heard.test == 0 else ():
            right = (self.views[name].decide(heard) == heard.batch.y).flatten()
            for row, counted in zip(self.hits[name], (real * right, real), strict=True):
                row.scatter_add_(0, y, counted)

    def shares(self, name: str) -> list[float | None]:
        """Compute the accuracy of each class over all clients of a view, `[C]`; None for a class without tests."""
        hits, total = self.session.team.sum(self.hits[name]).tolist()
        return [h / t if t else None for h, t in zip(hits, total, strict=True)]


class Scores:
    """Stores the scores of each view for further metrics of the run; called with each batch.

    Args:
        session: the run.
        views: the tested views.
    """

    def __init__(self, session: Session, views: Mapping[str, View]) -> None:
        draws, self.session, self.views = session.draws, session, views
        shape = len(draws.test_snrs), len(draws.federation.test.flat), len(draws.federation.classes)
        self.scores = {name: torch.zeros(shape, dtype=torch.float32, device=draws.device) for name in views}

    def __call__(self, names: Sequence[str], heard: Outputs) -> None:
        """Store the scores of a batch, for the views of one population."""
        real = heard.batch.weight > 0
        for name in names:
            self.scores[name][heard.test, heard.at[real]] = self.views[name].answer(heard)[real].float()

    def compute(self, name: str, test: int) -> dict[str, float]:
        """Compute each metric of a view in a test: the mean over the clients that have one."""
        federation, ids = self.session.draws.federation, self.views[name].population.ids
        scores = self.session.team.sum(self.scores[name][test]).cpu()
        labels, starts, found = federation.labels[federation.test.flat].cpu(), federation.test.offsets, {}
        for each in self.session.draws.task.beside:
            parts = [slice(starts[k], starts[k + 1]) for k in ids]
            values = np.array([float(each.compute(scores[part], labels[part])) for part in parts])
            weights = federation.test.sizes[ids] if each.by_samples else np.ones(len(ids))
            known = ~np.isnan(values)
            if known.any():
                found[each.metric.name] = float(np.average(values[known], weights=weights[known]))
        return found


def check_evaluated_views(method: Method, state: Any, world: World) -> None:
    """Raise ConfigError, before any work, for a user's method without any evaluation."""
    name = world.config.method
    if METHODS.ships(name) or has_own_stage(method):
        return
    views = method.views(state, world)
    if not (isinstance(views, Mapping) and views and all(isinstance(view, View) for view in views.values())):
        wanted = "without a `finish`, it has to give at least one View by name"
        raise ConfigError(f"method: `views` of {name} gives {views!r:.80}; {wanted}")


def narrow_evaluated_views(views: Mapping[str, View], ids: np.ndarray) -> dict[str, View]:
    """Restrict views to some clients; those of one population still share one, and with it their forward passes."""
    populations = {id(view.population): view.population for view in views.values()}
    picked = {key: pop.narrow(ids) for key, pop in populations.items()}
    chosen = {}
    for name, view in views.items():
        at = torch.as_tensor(np.searchsorted(view.population.ids, ids))
        per_client = {key: t[at.to(t.device)] for key, t in view.per_client.items()}
        chosen[name] = replace(view, population=picked[id(view.population)], per_client=per_client)
    return chosen
