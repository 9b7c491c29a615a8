"""New clients: they took no part in training, join at the end, and use the models of the others."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from torch import Tensor

from semcom.channels import Link
from semcom.data.federation import Federation
from semcom.engine.store.population import Population, average
from semcom.engine.train.phase import Phase
from semcom.engine.train.view import View
from semcom.engine.world import World
from semcom.methods.parts.heads import with_classifiers
from semcom.runs.request.new_clients import configure_new_clients
from semcom.runs.result.evaluation import evaluate_views


def evaluate_new_clients(
    world: World, newcomers: Federation, link: Link, views: Mapping[str, View]
) -> dict[str, dict[str, Any]]:
    """Give new clients the model of a run, and evaluate them on their test images, through the channel.

    `global`: the model itself (left out if the classes are others, or if the run's head does not decide); `head`: its
    encoder, and a classifier of one's own: the run's head, or `finish.kind`, trained for `new_steps` steps from fresh
    weights by the optimiser of `finish`, or fitted by scikit-learn.

    Args:
        world: the run.
        newcomers: their images.
        link: their channel.
        views: the trained views. The `global` view is the model; without one, the average of the models in the first
            view, weighted by their samples. That view has all clients' models, or those of the tested clients if it
            is of a last stage with `train.eval_clients`.

    Returns:
        Name -> a line as of `evaluate_views`.
    """
    view = views.get("global", next(iter(views.values())))
    model = average_model_for_new_clients(world, view.population)
    session, draws = world.session, world.session.draws
    config = configure_new_clients(replace(world.config, chunk=session.chunk or "auto"))
    shape, same = draws.task.shape, newcomers.classes == draws.federation.classes
    if world.extended or not same or shape(newcomers) != shape(draws.federation):  # the file's head is none of theirs
        config = replace(config, model=replace(config.model, weights=None))
    joined = World(config, newcomers, draws.device, link, split=draws.split, clock=session.clock, team=session.team)
    joined.session.tally.begin(1)
    found = {}
    usual = joined.population(shared=("encoder.", "head."))
    decides = view.scores is None and same
    if decides and usual.named().keys() <= model.keys():  # FedRoD and FedDBE have other heads
        found["global"] = View(usual.share({name: model[name] for name in usual.named()}))
    encoder = {name: t for name, t in model.items() if name.startswith("encoder.")}
    received = joined.population(shared=("encoder.",)).share(encoder)
    own = with_classifiers(joined, received, config.finish.kind, Phase(steps=config.new_steps))
    return evaluate_views(joined.session, {**found, "head": own})


def average_model_for_new_clients(world: World, pop: Population) -> dict[str, Tensor]:
    """Average a population's models by samples, buffers too: name -> `[1, ...]`."""
    weights, model = world.weights(pop.ids), dict[str, Tensor]()
    for some in pop.pieces():
        (cohort,) = some.stacks()
        own = [name for name in cohort.tensors if name not in cohort.shared]
        model |= {name: cohort.tensors[name] for name in cohort.shared}
        for name, t in average(some, own, weights[np.searchsorted(pop.ids, some.ids)]).items():
            model[name] = model[name] + t if name in model and t.is_floating_point() else t
    return model
