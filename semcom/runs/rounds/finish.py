"""The last stage that every method can have: classifiers of the clients' own on frozen encoders, or one more round."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from semcom.config import ROUND, Resolved
from semcom.engine.train.phase import Phase
from semcom.engine.train.view import View
from semcom.engine.world import World
from semcom.methods.base import Method, has_own_stage
from semcom.methods.parts.heads import with_classifiers

FINISHED = "finished"
"""Name of the view, the headline of a run that has it."""


def finish_views(world: World, views: Mapping[str, View]) -> dict[str, View]:
    """Replace the head of the first of some views by `finish.kind`, for the tested clients.

    Heads start from fresh weights, and see the features and the noise of a method's own last stage.
    """
    for view in views.values():
        kind, epochs = world.config.finish.kind, world.config.finish.epochs
        bodies = view.population.narrow(world.tested())
        return {FINISHED: with_classifiers(world, bodies, kind, Phase("head", epochs=epochs, log=FINISHED))}
    return {}


def has_last_stage(method: Method, config: Resolved) -> bool:
    """Check whether a run has a last stage: its method's own, or `finish.kind`."""
    return has_own_stage(method) or config.finish.kind is not None


def finish_run(method: Method, state: Any, world: World) -> Mapping[str, View]:
    """Carry out the last stage of a run, and return its views, that of `finish.kind` first; {} without a last stage.

    It draws as a round T + 1 would, and with ROUND begins with one.

    Args:
        method: of the run.
        state: after the last round, T.
        world: of the run.
    """
    kind = world.config.finish.kind
    usual = method.views(state, world) if kind not in (None, ROUND) else {}  # of round T
    world.session.tally.begin(world.config.train.rounds + 1)
    if kind == ROUND:
        state = method.round(state, world)
        usual = method.views(state, world)
    last = method.finish(state, world) or {}
    if kind == ROUND:
        return {**last, **{name: view for name, view in usual.items() if name not in last}}
    return {**finish_views(world, last or usual), **last} if kind is not None else last
