"""New clients: they took no part in training, join at the end, and make do with what the others have learned.

They live in a world of their own, with draws of their own. Where a field of the run holds one value per client, they
take these values in turn (SNRs, rates); they share the band equally, as many at a time as take part in a round.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any, TypeVar

from torch import Tensor

from channels import Link
from semcom.config import ConfigError, NoEffect, Resolved, RunConfig
from semcom.config.options import spelled
from semcom.data.federation import Federation
from semcom.engine.host.keys import key_seed
from semcom.engine.store.population import Population, average
from semcom.engine.train.phase import Phase
from semcom.engine.train.view import View
from semcom.engine.world import World
from semcom.methods.parts.classifiers import holds_classifier
from semcom.methods.parts.heads import with_classifiers
from semcom.runs.evaluation import evaluate_views

T = TypeVar("T")

AT_ONCE = 64
"""Models of clients that are held at once to be averaged."""


def check_new_clients(config: Resolved) -> None:
    """Raise ConfigError for new clients that a resolved configuration cannot have."""
    default = {f.name: f.default for f in fields(RunConfig)}
    for name in ("new_data", "new_steps") if not config.new_clients else ():
        if getattr(config, name) != default[name]:
            value = getattr(config, name)
            raise NoEffect(f"{spelled(name)}: {value!r} has no effect without new clients; set new-clients")
    if not config.new_clients:
        return
    if holds_classifier(config.finish.kind) and config.new_steps != default["new_steps"]:
        why = f"{config.finish.kind} is not trained in steps"
        raise NoEffect(f"new-steps: {config.new_steps} has no effect, as {why}; leave it out")
    kinds = sorted(set(config.model.encoder.split(",")))
    if len(kinds) > 1:
        raise ConfigError(f"new-clients: they receive one model, but model.encoder has {' and '.join(kinds)}; give one")
    if config.new_data == config.data.name:
        raise ConfigError(f"new-data: {config.new_data!r} is the data of the run; leave it out")
    if config.new_data is not None and config.partition.kind == "file":
        raise ConfigError(f"new-data: {config.new_data!r} is not what the file of partition.path divides; leave it out")


def configure_new_clients(config: Resolved) -> Resolved:
    """Return the configuration of the new clients' world."""
    n, channel, train = config.new_clients, config.channel, config.train
    lr, down = train.lr, channel.downlink_snr_db
    return replace(
        config,
        clients=n,
        new_clients=0,
        seed=key_seed(config.seed, "new clients"),
        out=None,
        channel=replace(
            channel,
            snr_db=_snrs(channel.snr_db, n),
            downlink_snr_db=None if down is None else _snrs(down, n),
            options=_equal_shares(channel.options),
        ),
        train=replace(
            train,
            lr=_in_turn(lr, n) if isinstance(lr, tuple) else lr,
            local_epochs=1,
            local_steps=None,
            participation=min(n, config.participants) / n,
            eval_clients=None,
        ),
    )


def _equal_shares(options: Any) -> Any:
    return replace(options, shares=None) if hasattr(options, "shares") else options


def _snrs(text: float | str, n: int) -> float | str:
    """Return an SNR field for n clients; only a list with a value per client changes."""
    return ",".join(_in_turn(tuple(text.split(",")), n)) if isinstance(text, str) and "," in text else text


def _in_turn(values: tuple[T, ...], n: int) -> tuple[T, ...]:
    """Return n values: these, over and over again."""
    return tuple(values[i % len(values)] for i in range(n))


# -- what they make of a run -----------------------------------------------------------------------------------------


def evaluate_new_clients(
    world: World, newcomers: Federation, link: Link, views: Mapping[str, View]
) -> dict[str, dict[str, Any]]:
    """Give new clients the model of a run, and evaluate them on their test images, through the channel.

    `global`: as it is (left out where the classes are others, or where the run's head is not what decides); `head`: its
    encoder, and a classifier of one's own: the run's head, or `finish.kind`, trained for `new_steps` steps from fresh
    weights by the optimiser of `finish`, or fitted by scikit-learn.

    Args:
        world: the run.
        newcomers: their images.
        link: their channel.
        views: what the run has trained. Its `global` view is the model; without one, the average of the models in the
            first view, weighted by their samples. That view has all clients' models, unless the method makes them for
            the tests alone (FedCoSR's mixed bodies, heads trained in a last stage): then, with `train.eval_clients`,
            the clients that are tested are all that is averaged.

    Returns:
        Name -> a line as of `evaluate_views`.
    """
    view = views.get("global", next(iter(views.values())))
    model = average_model_for_new_clients(world, view.population)
    session, draws = world.session, world.session.draws
    config = configure_new_clients(replace(world.config, chunk=session.chunk or "auto"))
    if world.extended:
        config = replace(config, model=replace(config.model, weights=None))
    joined = World(config, newcomers, draws.device, link, split=draws.split, clock=session.clock, team=session.team)
    joined.session.tally.begin(1)
    found = {}
    usual = joined.population(shared=("encoder.", "head."))
    decides = view.scores is None and newcomers.classes == draws.federation.classes
    if decides and usual.named().keys() <= model.keys():  # FedRoD and FedDBE have other heads
        found["global"] = View(usual.share({name: model[name] for name in usual.named()}))
    encoder = {name: t for name, t in model.items() if name.startswith("encoder.")}
    received = joined.population(shared=("encoder.",)).share(encoder)
    bodies = received.select(received.ids)
    own = with_classifiers(joined, bodies, config.finish.kind, Phase(steps=config.new_steps))
    return evaluate_views(joined.session, {**found, "head": own})


def average_model_for_new_clients(world: World, pop: Population) -> dict[str, Tensor]:
    """Return one model of a population's clients: name -> `[1, ...]`, averaged by samples, buffers too."""
    weights, model = world.weights(pop.ids), dict[str, Tensor]()
    for i in range(0, len(pop.ids), AT_ONCE):
        some = pop.select(pop.ids[i : i + AT_ONCE])
        (cohort,) = some.stacks()
        own = [name for name in cohort.tensors if name not in cohort.shared]
        model |= {name: cohort.tensors[name] for name in cohort.shared}
        for name, t in average(some, own, weights[i : i + AT_ONCE]).items():
            model[name] = model[name] + t if name in model and t.is_floating_point() else t
    return model
