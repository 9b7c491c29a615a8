"""Classifiers of the clients' own on frozen encoders, and fine-tuning: what a last stage trains.

The optimiser is that of the section `finish`, not the run's: its rate follows no schedule. Heads train on features that
each encoder has given once, and which meet the training link anew at every visit.
"""

from __future__ import annotations

from collections import defaultdict

import torch
from torch import Tensor, nn

from semcom.engine.store.population import Cohort, Population, Prefix
from semcom.engine.train.descent import Optimizer
from semcom.engine.train.phase import Phase
from semcom.engine.train.view import View
from semcom.engine.world import World
from semcom.methods.base import plain_objective
from semcom.methods.parts.classifiers import holds_classifier, is_head, linear_classifiers, linear_scores
from semcom.models.split import SplitModel


def with_classifiers(world: World, bodies: Population, kind: str | None = None, phase: Phase | None = None) -> View:
    """Return the models of some clients with classifiers of their own on their frozen encoders.

    Args:
        world: the run.
        bodies: n models; of them only the encoders count.
        kind: `svm`, `lr`, or a head, which is trained from fresh weights (None: the run's).
        phase: how long a head is trained (None: for `finish.epochs`, logged as "head").
    """
    if holds_classifier(kind):
        return View(bodies, linear_scores, linear_classifiers(world, bodies, kind))
    heads = world.heads(kind or world.config.model.head, bodies.ids)
    return View(train_heads(world, bodies, heads, phase or Phase("head", epochs=world.config.finish.epochs)))


def fine_tuned(world: World, pop: Population, part: Prefix, own: int | None = None) -> Population:
    """Return copies of the models of the clients that are tested, of which a part has been trained by the plain loss.

    Without any epochs, all models are returned as they are.

    Args:
        world: the run.
        pop: models.
        part: what is trained.
        own: the method's own epochs, where those of `finish` are for the heads that `finish.kind` asks for.
    """
    epochs = world.config.finish.epochs
    if epochs and own is not None and is_head(world.config.finish.kind):
        epochs = own
    if not epochs:
        return pop
    phase, tested = Phase("tune", epochs=epochs), pop.narrow(world.tested())
    if part == "head.":
        return train_heads(world, tested, _heads_of(tested), phase)
    optimizer, logs = make_head_optimizer(world), defaultdict[str, list[Tensor]](list)

    def tune(some: Population) -> Population:
        fitted = world.fit(some, plain_objective, train=part, phase=phase, optimizer=optimizer)
        for name, values in fitted.log.items():
            logs[name].append(values)
        return fitted.models

    tuned = world.hold(map(tune, tested.pieces()))
    for name, values in logs.items():
        world.report(phase.logged(name), torch.cat(values))
    return tuned


def train_heads(world: World, bodies: Population, heads: Population, phase: Phase) -> Population:
    """Return the clients' models with the encoders of `bodies`, and `heads` trained on them by the plain loss."""
    if phase.epochs != 0:
        optimizer = make_head_optimizer(world)
        features = world.on_features(bodies)
        heads = features.fit(heads, plain_objective, train="head.", phase=phase, optimizer=optimizer).models
    return _join_heads(bodies, heads)


def make_head_optimizer(world: World) -> Optimizer:
    """Return the optimiser of `finish`, at the same rate in all rounds."""
    name, rate = world.config.finish.optimizer, world.config.finish.lr
    assert name is not None and rate is not None, "resolved for whatever trains after the rounds"
    return Optimizer(name, rate)


def _heads_of(pop: Population) -> Population:
    """Return the heads of models of one architecture, as models whose encoder passes on what it is given."""
    (cohort,) = pop.cohorts
    inside = {name for name in cohort.network.state_dict() if name.startswith("head.")}
    own = [{name: t for name, t in some.named("head.").items()} for some in pop.pieces()]
    tensors = {n: cohort.common[n] if n in cohort.shared else torch.cat([of[n] for of in own]) for n in inside}
    network = SplitModel(nn.Identity(), cohort.network.get_submodule("head"))
    return Population((Cohort(network, tensors, cohort.ids, cohort.shared & inside),))


def _join_heads(bodies: Population, heads: Population) -> Population:
    """Return models with the encoders of `bodies` and `heads`, which have one architecture."""

    def join(some: Population) -> Population:
        (body,), (own,) = some.stacks(), heads.select(some.ids).stacks()
        tensors = {name: t for name, t in body.tensors.items() if name.startswith("encoder.")}
        network = SplitModel(body.network.get_submodule("encoder"), own.network.get_submodule("head"))
        shared = (body.shared & tensors.keys()) | own.shared
        return Population((Cohort(network, {**tensors, **own.tensors}, body.ids, shared),))

    return bodies.derive(join, alike=False)
