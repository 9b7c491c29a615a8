"""Measure the symbols of a convergence theorem in one round of a run, client by client.

All numbers are lists over the clients, but for those of FedCL's generator at the base station.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from semcom.config import ConfigError, Resolved
from semcom.engine.store.population import in_part
from semcom.engine.world import World
from semcom.methods.fedcl import FedCL, generate
from semcom.methods.fedcosr import FedCoSR
from semcom.methods.registry import METHODS
from semcom_papers.experiments.measures.bounds_report import make_json_safe
from semcom_papers.experiments.measures.landscape import (
    Call,
    Landscape,
    Leaves,
    find_next_training,
    list_steps,
    list_trainings,
    measure_bends,
    measure_slopes,
    select_leaves,
    step_aside,
    weight_distance,
)
from semcom_papers.experiments.measures.theorems import FedCLBound, FedCoSRBound, label_entropy

DIRECTIONS = 2
"""Random directions, beside the path, in which smoothness is measured at the start of a round."""


def find_theorem(config: Resolved) -> FedCLBound | FedCoSRBound:
    """Find the theorem of a run's method.

    Raises:
        ConfigError: the method has no theorem here, or the run does not meet its assumptions.
    """
    method, train, hyper = METHODS.get(config.method), config.train, config.hyper
    plain = train.optimizer == "sgd" and not train.momentum and not train.weight_decay
    if not plain:
        raise ConfigError("train.optimizer: the theorems are about plain SGD, without momentum and weight decay")
    if config.participants < config.clients:
        raise ConfigError("train.participation: a round's bound is that of clients which take part in it and the next")
    if train.rounds < 2:
        raise ConfigError(f"train.rounds: {train.rounds} gives no round to measure for every theorem; give at least 2")
    if issubclass(method, FedCL) and (hyper.centroids, hyper.reduction, hyper.warmup) == ("scg", "sum", 0):
        return FedCLBound(hyper.lam, hyper.scg_steps)
    if issubclass(method, FedCoSR) and not hyper.clip:
        return FedCoSRBound(hyper.alpha, hyper.tau_cl)
    raise ConfigError(f"method: {config.method}, as it is set, has no theorem here; there are fedcl and fedcosr")


def measure_round(before: Any, after: Any, world: World) -> dict[str, Any]:
    """Measure the world's round, JSON-safe: an observer of `semcom.runs.rounds.runner.run`.

    The result is empty in rounds that the method's theorem is not about.

    Args:
        before, after: the method's States around the round.
        world: the run, with meters that do not count.
    """
    config = world.config
    if world.round < find_theorem(config).first:
        return {}
    method = METHODS.get(config.method)(config.hyper)
    calls = list_trainings(method, before, world)
    now, then = calls[0], find_next_training(method, after, world)
    fedcl, clients = isinstance(method, FedCL), []
    for client in map(int, world.sample()):
        numbers, end = _follow_client(world, now.of(client), then.of(client), client)
        own = (
            _measure_fedcl(world, now, then, client, end) if fedcl else _measure_fedcosr(world, now, after, client, end)
        )
        clients.append({**numbers, **own})
    lists = {name: [make_json_safe(each[name]) for each in clients] for name in clients[0]}
    return {**lists, **(_measure_scg(world, calls) if fedcl else {})}


@dataclass(frozen=True)
class _End:
    """The end of a client's local training.

    Attributes:
        leaves: its weights.
        trained: the method's log there.
        mixed: its log at the weights that the server makes of them, with the old centroids.
    """

    leaves: Leaves
    trained: Mapping[str, float]
    mixed: Mapping[str, float]


def _follow_client(world: World, now: Call, then: Call, client: int) -> tuple[dict[str, float], _End]:
    """Measure the numbers of both theorems for a client, along its steps and to the start of the next round."""
    taken, fitted = list_steps(world, now)
    here, there = Landscape(world, now), Landscape(world, then)
    last = select_leaves(fitted.models, taken[0].leaves)
    weights = [*(step.leaves for step in taken), last]
    points = [here.at(leaves) for leaves in weights]
    mixed = select_leaves(then.models, last)
    middle, end = here.at(mixed), there.at(mixed)
    squares = [float(point.gradient.square().sum()) for point in points]
    noise = [float((s.gradient - p.gradient).square().sum()) for s, p in zip(taken, points[:-1], strict=True)]
    length = sum(weight_distance(a, b) for a, b in zip(weights[:-1], weights[1:], strict=True)) / len(taken)
    seed = (world.config.seed, "smoothness", world.round, client)
    random = [step_aside(weights[0], length, *seed, i) for i in range(DIRECTIONS)] if length else []
    found = {
        "rate": now.rate(client),
        "steps": float(len(taken)),
        "loss": points[0].loss,
        "local": points[-1].loss - points[0].loss,
        "mixing": middle.loss - points[-1].loss,
        "targets": end.loss - middle.loss,
        "squares": sum(squares[:-1]),
        "last_square": squares[-1],
        "variance": sum(noise) / len(noise),
        "smoothness_path": max(measure_slopes(points, weights), default=0.0),
        "smoothness_bend": max(measure_bends(points, weights), default=0.0),
        "smoothness_aside": max(
            (measure_slopes([points[0], here.at(w)], [weights[0], w])[0] for w in random), default=0.0
        ),
        "mixed": weight_distance(last, mixed),
    }
    return found, _End(last, points[-1].log, middle.log)


def _measure_fedcl(world: World, now: Call, then: Call, client: int, end: _End) -> dict[str, float]:
    """Measure how far centroids of a client's classes moved, and its features' r.m.s. distance to the old centroids."""
    owned = world.tensor(world.owned(np.array([client]))[0])
    moved = then.given.common["centroids"] - now.given.common["centroids"]
    return {"shift": float(moved[owned].norm(dim=-1).max()), "spread": math.sqrt(end.mixed["distance"])}


def _measure_fedcosr(world: World, now: Call, after: Any, client: int, end: _End) -> dict[str, float]:
    """Measure epsilon, and the numbers of Theorem 1: L_Reg, candidates, H(y), and an estimate of the information.

    The head's cross-entropy bounds H(y | f) from above, so H(y) less that is an estimate from below.
    """
    shared = METHODS.get(world.config.method)(world.config.hyper).averages
    body = {name: t for name, t in end.leaves.items() if in_part(name, shared)}
    common = select_leaves(after.model.select(np.array([client])), body)
    federation = world.session.draws.federation
    counts = federation.labels[federation.train[client]].bincount(minlength=world.classes)
    of_labels = label_entropy(counts.cpu().numpy())
    return {
        "epsilon": weight_distance(body, common),
        "contrast": end.trained["regulariser"] / end.trained["contrasted"],
        "candidates": float(now.given.common["known"].sum()),
        "entropy": of_labels,
        "information": of_labels - end.trained["task"],
    }


def _measure_scg(world: World, calls: Sequence[Call]) -> dict[str, Any]:
    """Measure eta, G and L2 of FedCL's generator, its loss (Eq. 8) and the mean norm of the new centroids."""
    call = next(call for call in calls if call.phase.stream == "scg")
    taken, fitted = list_steps(world, call)
    weights = [*(step.leaves for step in taken), select_leaves(fitted.models, taken[0].leaves)]
    length = weight_distance(weights[0], weights[-1])
    key = (world.config.seed, "generator", world.round)
    random = [step_aside(weights[0], length, *key, i) for i in range(DIRECTIONS)] if length else []
    ways = [*zip(weights[:-1], weights[1:], strict=True), *((weights[0], w) for w in random)]
    found = {
        "scg_rate": call.rate(0),
        "scg_gradient": max(float(step.gradient.norm()) for step in taken),
        "scg_lipschitz": max(
            (_measure_shift(call, *way) / weight_distance(*way) for way in ways if weight_distance(*way)), default=0.0
        ),
        "scg_loss": float(fitted.log["loss"].mean()),
        "centroid_norm": float(generate(fitted.models).norm(dim=-1).mean()),
    }
    return {name: make_json_safe(value) for name, value in found.items()}


def _measure_shift(call: Call, one: Leaves, other: Leaves) -> float:
    """Measure the longest shift of a centroid between two sets of the generator's weights."""
    centroids = [generate(call.models.replaced(leaves)) for leaves in (one, other)]
    return float((centroids[0] - centroids[1]).double().norm(dim=-1).max())
