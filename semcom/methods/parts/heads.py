"""The clients' own classifiers on frozen encoders, and fine-tuning, for the last stage.

The optimiser is that of the section `finish`, not the run's, and its rate follows no schedule. Heads train on features
that are encoded once, and cross the training link anew at every visit.
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
from semcom.methods.parts.classifiers import linear_classifiers, linear_scores
from semcom.methods.parts.kinds import holds_classifier, is_head
from semcom.models.split import SplitModel


def with_classifiers(world: World, bodies: Population, kind: str | None = None, phase: Phase | None = None) -> View:
    """Put the clients' own classifiers on the frozen encoders of some models.

    Args:
        world: the run.
        bodies: n models, used for their encoders.
        kind: `svm`, `lr`, or a head, which is trained from fresh weights (any other, as None: the run's head).
        phase: training of a head (None: for `finish.epochs`, logged as "head").
    """
    if holds_classifier(kind):
        return View(bodies, linear_scores, linear_classifiers(world, bodies, kind))
    heads = world.heads(kind if is_head(kind) else world.config.model.head, bodies.ids)
    return View(train_heads(world, bodies, heads, phase or Phase("head", epochs=world.config.finish.epochs)))


def fine_tuned(world: World, pop: Population, part: Prefix, own: int | None = None) -> Population:
    """Copy the models of the tested clients, and train a part of the copies by the plain loss.

    Without epochs, all models are returned unchanged.

    Args:
        world: the run.
        pop: models.
        part: the part to train.
        own: the method's own epochs, used if `finish.kind` asks for heads, to which those of `finish` then apply.
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
    """Train `heads` on the encoders of `bodies` by the plain loss, and join them to models."""
    if phase.epochs != 0:
        optimizer = make_head_optimizer(world)
        # The encoders are frozen, so each image is encoded once instead of in every epoch.
        features = world.on_features(bodies)
        heads = features.fit(heads, plain_objective, train="head.", phase=phase, optimizer=optimizer).models
    return _join_heads(bodies, heads)


def make_head_optimizer(world: World) -> Optimizer:
    """Make the optimiser of `finish`, with the same rate in all rounds."""
    name, rate = world.config.finish.optimizer, world.config.finish.lr
    assert name is not None and rate is not None, "resolved for whatever trains after the rounds"
    return Optimizer(name, rate)


def _heads_of(pop: Population) -> Population:
    """Split off the heads of models of one architecture, as models with an identity for their encoder."""
    (cohort,) = pop.cohorts
    inside = [name for name in cohort.network.state_dict() if name.startswith("head.")]  # all ranks need this order
    shared = cohort.shared & set(inside)
    own = [some.named("head.") for some in pop.pieces()] if len(shared) < len(inside) else []
    tensors = {n: cohort.common[n] if n in shared else torch.cat([of[n] for of in own]) for n in inside}
    network = SplitModel(nn.Identity(), cohort.network.get_submodule("head"))
    return Population((Cohort(network, tensors, cohort.ids, shared),))


def _join_heads(bodies: Population, heads: Population) -> Population:
    """Join the encoders of `bodies` and `heads` of one architecture to models."""

    def join(some: Population) -> Population:
        (body,), (own,) = some.stacks(), heads.select(some.ids).stacks()
        tensors = {name: t for name, t in body.tensors.items() if name.startswith("encoder.")}
        network = SplitModel(body.network.get_submodule("encoder"), own.network.get_submodule("head"))
        shared = (body.shared & tensors.keys()) | own.shared
        return Population((Cohort(network, {**tensors, **own.tensors}, body.ids, shared),))

    return bodies.derive(join, alike=False)
