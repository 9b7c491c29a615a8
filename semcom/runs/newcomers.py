"""New clients: they took no part in training, join at the end, and make do with what the others have learned.

They live in a world of their own, with draws of their own. Where a field of the run holds one value per client, they
take these values in turn (SNRs, rates); they share the band equally, as many at a time as take part in a round.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, TypeVar

from torch import Tensor

from semcom.config import ConfigError, RunConfig, filled, participants
from semcom.data.dataset import Dataset
from semcom.data.federation import Federation, Ragged, federate
from semcom.data.load import load
from semcom.data.partitions import partition
from semcom.engine.links import build_link
from semcom.engine.random import key_seed
from semcom.engine.store.population import Population, average
from semcom.engine.train.visit import View
from semcom.engine.world import World
from semcom.methods.base import cross_entropy
from semcom.runs.evaluation import evaluate

T = TypeVar("T")

AT_ONCE = 64
"""Models of clients that are held at once to be averaged."""


def check(config: RunConfig) -> None:
    """Raises ConfigError for new clients that a resolved configuration cannot have."""
    default = {f.name: f.default for f in fields(RunConfig)}
    for name in ("new_data", "new_steps") if not config.new_clients else ():
        if getattr(config, name) != default[name]:
            flag, value = name.replace("_", "-"), getattr(config, name)
            raise ConfigError(f"{flag}: {value!r} has no effect without new clients; set new-clients")
    if not config.new_clients:
        return
    kinds = sorted(set(config.model.encoder.split(",")))
    if len(kinds) > 1:
        raise ConfigError(f"new-clients: they receive one model, but model.encoder has {' and '.join(kinds)}; give one")
    if config.new_data == config.data.name:
        raise ConfigError(f"new-data: {config.new_data!r} is the data of the run; leave it out")
    if config.new_data is not None and config.partition.kind == "file":
        raise ConfigError(f"new-data: {config.new_data!r} is not what the file of partition.path divides; leave it out")
    build_link(joining(config))


def joining(config: RunConfig) -> RunConfig:
    """The configuration of the new clients' world."""
    n, channel, train = config.new_clients, config.channel, config.train
    lr, down = filled(train.lr), channel.downlink_snr_db
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
            participation=min(n, participants(config)) / n,
            eval_clients=None,
        ),
    )


def _equal_shares(options: Any) -> Any:
    """The options of a link whose band is shared equally."""
    return replace(options, shares=None) if hasattr(options, "shares") else options


def _snrs(text: float | str, n: int) -> float | str:
    """An SNR field for n clients; only a list with a value per client changes."""
    return ",".join(_in_turn(tuple(text.split(",")), n)) if isinstance(text, str) and "," in text else text


def _in_turn(values: tuple[T, ...], n: int) -> tuple[T, ...]:
    """n values: these, over and over again."""
    return tuple(values[i % len(values)] for i in range(n))


# -- data ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Data:
    """The images of a run, on the host, and who owns them: the clients that train, and those that join at the end."""

    members: Federation
    newcomers: Federation | None

    def beside(self, members: Federation) -> Federation | None:
        """The newcomers' on the device where `members` lie; images of both lie there once."""
        if self.newcomers is None:
            return None
        common = self.newcomers.images is self.members.images
        found = replace(self.newcomers, images=members.images, labels=members.labels) if common else self.newcomers
        return found.to(members.images.device)


def read(config: RunConfig) -> Data:
    """Loads and divides the images of a resolved configuration: over all clients, of which the last ones are new.

    Raises ConfigError where that cannot be done.
    """
    dataset, members = load(config.data), config.clients
    everyone = members + (config.new_clients if config.new_data is None else 0)
    whole = federate(dataset, partition(dataset, config.partition, everyone, config.seed))
    if not config.new_clients:
        return Data(whole, None)
    if config.new_data is not None:
        return Data(whole, _others(config, config.new_data, dataset))
    return Data(_clients(whole, 0, members), _clients(whole, members, everyone))


def _others(config: RunConfig, name: str, dataset: Dataset) -> Federation:
    """The new clients' own dataset, divided over them alone as the run's is over its clients; nobody is scarce."""
    try:
        own = load(replace(config.data, name=name, options=None))
        split = partition(own, replace(config.partition, scarce=()), config.new_clients, config.seed)
    except ConfigError as error:
        raise ConfigError(f"new-data: {name!r} cannot be taken ({error})") from None
    channels = own.images.shape[1], dataset.images.shape[1]
    if len(set(channels)) > 1:
        raise ConfigError("new-data: {!r} has {} channels, the data of the run {}".format(name, *channels))
    return federate(own, split)


def _clients(whole: Federation, start: int, stop: int) -> Federation:
    """Some of the clients of a federation, with the images of all."""

    def cut(table: Ragged) -> Ragged:
        offsets = table.offsets[start : stop + 1]
        return Ragged(table.flat[int(offsets[0]) : int(offsets[-1])], offsets - offsets[0])

    return replace(
        whole,
        train=cut(whole.train),
        test=cut(whole.test),
        validation=cut(whole.validation),
        owned=whole.owned[start:stop],
    )


# -- what they make of a run -----------------------------------------------------------------------------------------


def welcome(world: World, newcomers: Federation, views: Mapping[str, View]) -> dict[str, dict[str, Any]]:
    """New clients receive the model of a run, and are evaluated on their test images, through the channel.

    `global`: as it is (left out where the classes are others, or where its head is not what decides); `head`: its
    encoder, and a head of one's own that was trained for `new_steps` steps from fresh weights.

    Args:
        world: the run.
        newcomers: their images.
        views: what the run has trained. Its `global` view is the model; without one, the average of the models in the
            first view, weighted by their samples. That view has all clients' models, unless the method makes them for
            the tests alone (FedCoSR's mixed bodies, heads trained in a last stage): then, with `train.eval_clients`,
            the clients that are tested are all that is averaged.

    Returns:
        name -> a row as of `evaluate`.
    """
    view = views.get("global", next(iter(views.values())))
    model = average_model(world, view.population)
    config = joining(replace(world.config, chunk=world.chunk or "auto"))
    joined = World(config, newcomers, world.device, split=world.split, clock=world.clock, team=world.team)
    joined.begin(1)
    found = {}
    if view.scores is None and newcomers.classes == world.federation.classes:
        found["global"] = View(joined.population(shared=("encoder.", "head.")).share(model))
    encoder = {name: t for name, t in model.items() if name.startswith("encoder.")}
    received = joined.population(shared=("encoder.",)).share(encoder)
    trained, _, _ = joined.fit(received, cross_entropy, train=("head.",), steps=world.config.new_steps)
    return evaluate(joined, {**found, "head": View(trained)})


def average_model(world: World, pop: Population) -> dict[str, Tensor]:
    """One model of the clients that a population has: name -> `[1, ...]`, averaged by samples, buffers too."""
    weights, model = world.weights(pop.ids), dict[str, Tensor]()
    for i in range(0, len(pop.ids), AT_ONCE):
        some = pop.rows(pop.ids[i : i + AT_ONCE])
        (cohort,) = some.stacks()
        own = [name for name in cohort.tensors if name not in cohort.shared]
        model |= {name: cohort.tensors[name] for name in cohort.shared}
        for name, t in average(some, own, weights[i : i + AT_ONCE]).items():
            model[name] = model[name] + t if name in model and t.is_floating_point() else t
    return model
