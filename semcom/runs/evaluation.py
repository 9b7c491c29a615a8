"""What a run evaluates, when, and the numbers that it makes of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

from semcom.config import RunConfig, filled, parse_snr
from semcom.engine.train.visit import View, confusion
from semcom.engine.world import World
from semcom.runs.accuracy import LAST, headline, per_class, per_client, spread


def test_snrs(config: RunConfig) -> tuple[float | None, ...]:
    """SNRs of the tests in dB, the headline's first; None: each client's training SNR."""
    text = config.channel.test_snr_db
    return (None,) if text is None else parse_snr(text, "channel.test-snr-db")[1]


def is_due(config: RunConfig, round_: int) -> bool:
    """Every `eval_every`-th round is evaluated, and each of those that the headline averages."""
    return round_ % config.train.eval_every == 0 or round_ > filled(config.train.rounds) - LAST


def evaluate(world: World, views: Mapping[str, View]) -> dict[str, dict[str, Any]]:
    """Each view's accuracy on the clients' test samples, as a row of metrics.jsonl holds it.

    The first test SNR gives the accuracies; where `channel.test_snr_db` is set, all of them give a curve.
    """
    if world.config.train.eval_clients is not None:
        views = select(views, world.tested())
    row: dict[str, dict[str, Any]] = {name: {} for name in views}
    for i, snr in enumerate(test_snrs(world.config)):
        for name, counts in confusion(world, views, snr, world.federation.test).items():
            table = counts.cpu().numpy()
            accuracies = per_client(table)
            if i == 0:
                row[name] |= spread(accuracies) | {"clients": accuracies.tolist(), "classes": per_class(table)}
            if snr is not None:
                row[name].setdefault("at", {})[f"{snr:g}"] = float(accuracies.mean())
    return row


def headlines(rows: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """Each view's `headline` over the rows that evaluated it, in the order of their views."""
    names = dict.fromkeys(name for row in rows for name in row.get("views", {}))
    found = {name: [row for row in rows if name in row.get("views", {})] for name in names}
    return {name: headline([r["round"] for r in of], [r["views"][name] for r in of]) for name, of in found.items()}


@contextmanager
def uncounted(world: World) -> Iterator[None]:
    """Within it nothing counts as the run's training: round, samples, traffic and losses are then as they were.

    The received SNR of tests is kept: what is evaluated here is evaluated for the run.
    """
    before, round_, log = world.counters(), world.round, world.log
    yield  # after an exception the world is not used any more
    world.settle()
    tests = world.measured["test"]
    world.resume(before)
    world.round, world.log, world.measured["test"] = round_, log, tests


def select(views: Mapping[str, View], ids: np.ndarray) -> dict[str, View]:
    """The views of some clients; those of one population still share one, and with it their forward passes."""
    populations = {id(view.population): view.population for view in views.values()}
    picked = {key: pop.rows(ids) for key, pop in populations.items()}
    chosen = {}
    for name, view in views.items():
        at = torch.as_tensor(np.searchsorted(view.population.ids, ids))
        rows = {key: t[at.to(t.device)] for key, t in view.rows.items()}
        chosen[name] = View(picked[id(view.population)], view.scores, rows)
    return chosen
