"""Flower's messages over the air: a mod of a `ClientApp` that sends models through one of semcom's channels.

It needs flwr (`pip install 'semcom[flower]'`), 1.21 or later.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict

import numpy as np
import torch
from flwr.app import Array, ArrayRecord, Context, Error, Message, MetricRecord
from torch import Tensor, nn

from semcom.config import AirConfig, ChannelConfig, ConfigError, NetworkConfig, Resolved, RunConfig, TrainConfig
from semcom.data.federation import Federation, Ragged
from semcom.engine.air.air import Air, Traffic
from semcom.engine.air.compression import is_compressed
from semcom.engine.store.population import Cohort, Population
from semcom.engine.train.precision import reset_torch
from semcom.engine.world import World
from semcom.runs.request.resolve import resolve_setup

NETWORK = nn.Module()
"""What all models have in common for the engine, which computes with no network here."""
REST = "semcom.flower"
"""Record of a client's state with what compression has left out of its updates so far."""
UNHEARD, UNSENT = 3, 4
"""Flower's codes for a message, and for a reply, that is not available."""
Tensors = Mapping[str, Tensor]


class Link:
    """Send the models of a Flower run through a channel, as semcom sends those of `fedavg`: a mod for `ClientApp`.

    The model of a message passes the downlink, and that of the reply to a `train` message the uplink: uncoded with the
    channel's noise (`AirConfig(parameters="analog")`), or error-free, at a rate, compressed, or lost with its block. A
    client that loses the broadcast is not asked, and a lost reply is an error, which strategies leave out, with its
    metrics. With the same seed, clients and rounds the noise is that of `semcom.run`.

    The reply's metrics get the traffic of this client and round: `floats`, `bits`, `uses`, `airtime_s` and `energy_j`,
    each with "up_" and with "down_" before it. A broadcast's uses and energy are divided among those that take part, so
    that sums over the replies are those of the round. It goes at the rate of the worst of all clients, whoever takes
    part. As in `semcom.run`, tests cost nothing: the model of an `evaluate` or `query` message comes down with noise of
    its own. `@app.train(mods=[link])` leaves tests without. It is the first of several mods, as it is next to the air.

    The client is `partition-id` of the node's configuration, the round `server-round` of the message's, as Flower's
    simulation and its strategies have them. Whole numbers, such as BatchNorm's `num_batches_tracked`, are neither
    changed nor counted.

    Args:
        channel: the channel. Give one SNR for both ways, or `downlink_snr_db` too; `inf` switches off one of them.
            Links with subcarriers need `subcarriers`, as there are no features by which to size the band.
        air: how models are sent and counted. By default without errors: they are counted alone.
        network: where clients are.
        clients: number of nodes.
        participation: part of them that the strategy asks in a round (its `fraction_train`); they share the band.
        seed: of all draws.

    Raises:
        ConfigError: a setting is wrong, has no effect, or asks for what the base station alone can do.

    Example:
        >>> from flwr.clientapp import ClientApp
        >>> from semcom import AirConfig, ChannelConfig
        >>> from semcom.flower import Link
        >>> link = Link(ChannelConfig(kind="rayleigh", snr_db=10), AirConfig(parameters="analog"), clients=10)
        >>> app = ClientApp(mods=[link])
    """

    def __init__(
        self,
        channel: ChannelConfig,
        air: AirConfig | None = None,
        network: NetworkConfig | None = None,
        *,
        clients: int,
        participation: float = 1.0,
        seed: int = 0,
    ) -> None:
        request = RunConfig(
            "fedavg",
            channel=channel,
            air=air or AirConfig(),
            network=network or NetworkConfig(),
            train=TrainConfig(participation=participation),
            clients=clients,
            seed=seed,
            device="cpu",
        )
        setup = resolve_setup(request)
        _check(setup.config, setup.link.users)
        nobody = Ragged(torch.zeros(0, dtype=torch.int64), np.zeros(clients + 1, dtype=np.int64))
        nothing = torch.zeros(1, 1, 1, 1, dtype=torch.uint8), torch.zeros(1, dtype=torch.int64)
        data = Federation(*nothing, nobody, nobody, nobody, ("none",), np.zeros((clients, 1), dtype=np.bool_))
        with reset_torch():
            self._world = World(setup.config, data, torch.device("cpu"), setup.link, split=False)
        self._everyone = np.arange(clients)

    def __call__(self, message: Message, context: Context, call_next: Callable[[Message, Context], Message]) -> Message:
        """Send the message's model down, call the rest of the app, and send the reply's model up."""
        if not message.has_content() or not message.content.array_records:
            return call_next(message, context)
        key, record = _find_record(message)
        ids, trains = self._find_client(context), message.metadata.message_type.split(".")[0] == "train"
        whole, model = _read(record)
        with reset_torch():
            air = self._begin(_find_round(message))
            sent = _populate(model, self._everyone, shared=model)
            if trains and not np.isin(ids, air.arrivals.reach(self._everyone, int(sent.numbers("")[0]))).all():
                return Message(Error(UNHEARD, "the client did not get the broadcast"), reply_to=message)
            received = air.down(sent, "", "" if trains else "received.", only=ids)
        message.content[key] = _write(record, received, whole)
        reply = call_next(message, context)
        if not trains or reply.has_error() or not reply.content.array_records:
            return reply
        key, record = _find_record(reply)
        whole, trained = _read(record)
        if trained.keys() != model.keys():
            raise ConfigError(f"reply: its arrays {sorted(trained)} are not those of the message, {sorted(model)}")
        with reset_torch():
            arrived = self._send_up(_populate(trained, ids), received, context)
        if not air.arrivals.find(ids).all():
            return Message(Error(UNSENT, "the reply was lost on the air"), reply_to=message)
        reply.content[key] = _write(record, arrived, whole)
        metrics = next(iter(reply.content.metric_records.values()), None)
        if metrics is None:
            metrics = reply.content["metrics"] = MetricRecord()
        metrics.update(self._count())
        return reply

    def _find_client(self, context: Context) -> np.ndarray:
        """Find the client of a context, `[1]`."""
        config, n = context.node_config, len(self._everyone)
        if config.get("num-partitions", n) != n or config.get("partition-id", n) not in self._everyone:
            wanted = f"a partition-id from 0 to {n - 1}, and no num-partitions but {n}"
            raise ConfigError(f"clients: there are {n}, so a node's configuration needs {wanted}; it is {config}")
        return np.array([int(config["partition-id"])])

    def _begin(self, round_: int) -> Air:
        """Begin a round of this client, with nothing counted."""
        self._world.session.tally.begin(round_)
        air = self._world.air
        air.totals = {"up": Traffic(), "down": Traffic()}
        return air

    def _send_up(self, trained: Population, received: Population, context: Context) -> Population:
        """Send a model up; the node's state has what compression left out of earlier updates."""
        air = self._world.air
        if not air.compression.remembers:
            return air.up(trained, "", since=received)
        before = _read(context.state[REST])[1] if REST in context.state else {}
        names = [n for n, t in trained.named().items() if is_compressed(n, t)]
        rest = {n: before.get(n, torch.zeros_like(t[0])) for n, t in trained.named().items() if n in names}
        air.compression.residual = _populate(rest, trained.ids)
        arrived = air.up(trained, "", since=received)
        context.state[REST] = ArrayRecord({n: Array(t[0].numpy()) for n, t in air.compression.residual.named().items()})
        return arrived

    def _count(self) -> dict[str, float]:
        """Return the traffic of this client: of the broadcast what it hears, and its part of uses and energy."""
        heard, shared = len(self._everyone), self._world.config.participants
        parts = {"up": (1, 1), "down": (heard, shared)}
        return {
            f"{way}_{name}": value / parts[way][name in ("uses", "energy_j")]
            for way, total in self._world.air.totals.items()
            for name, value in asdict(total).items()
        }


def _check(config: Resolved, users: int) -> None:
    """Raise ConfigError for what a client cannot do alone, and for settings of what only `semcom.run` does."""
    if config.air.access != "orthogonal":
        raise ConfigError(f"air.access: {config.air.access!r} combines what clients send; a mod of one has orthogonal")
    if config.network.scheduling != "random":
        raise ConfigError(f"network.scheduling: {config.network.scheduling!r}, and Flower's strategy chooses clients")
    if users > 1 and config.participants < config.clients:
        raise ConfigError(f"channel.users: groups of {users} are of all clients; give participation 1")
    if config.network.options.flops is not None:
        raise ConfigError("network.flops: what Flower's clients compute is not known; leave it out")
    if config.channel.test_snr_db is not None:
        raise ConfigError("channel.test-snr-db: tests are those of the Flower app; leave it out")


def _find_record(message: Message) -> tuple[str, ArrayRecord]:
    """Find the one record of arrays, and its key."""
    (key, record), *more = message.content.array_records.items()
    if more:
        raise ConfigError(f"arrays: a message has one model, not the {1 + len(more)} of {[key, *dict(more)]}")
    return key, record


def _find_round(message: Message) -> int:
    """Read the round off the configuration in a message."""
    rounds = [c["server-round"] for c in message.content.config_records.values() if "server-round" in c]
    if not rounds:
        raise ConfigError("server-round: a message needs it in its ConfigRecord, as Flower's strategies put it there")
    return int(rounds[0])


def _read(record: ArrayRecord) -> tuple[Tensors, Tensors]:
    """Read a record as tensors: those of whole numbers, and the others, in float32 at least."""
    tensors = {name: torch.from_numpy(np.array(array.numpy())) for name, array in record.items()}
    whole = {name: t for name, t in tensors.items() if not t.is_floating_point()}
    real = {n: t.to(torch.promote_types(t.dtype, torch.float32)) for n, t in tensors.items() if n not in whole}
    return whole, real


def _write(like: ArrayRecord, model: Population, whole: Tensors) -> ArrayRecord:
    """Write a model as a record, with the order and the types of another one."""
    tensors = {**whole, **{name: t[0] for name, t in model.named().items()}}
    return ArrayRecord({n: Array(tensors[n].numpy().astype(array.dtype)) for n, array in like.items()})


def _populate(model: Tensors, ids: np.ndarray, shared: Iterable[str] = ()) -> Population:
    return Population((Cohort(NETWORK, {n: t[None] for n, t in model.items()}, ids, frozenset(shared)),))
