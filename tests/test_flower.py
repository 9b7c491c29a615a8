"""Flower's messages over the air: what arrives and what is counted are the engine's own."""

from __future__ import annotations

import doctest
import time
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any

import pytest
import torch
from torch import Tensor

flwr = pytest.importorskip("flwr.app", reason="pip install 'semcom[flower]'")

from flwr.app import (  # noqa: E402
    ArrayRecord,
    ConfigRecord,
    Context,
    Message,
    Metadata,
    MetricRecord,
    RecordDict,
)
from flwr.clientapp import ClientApp  # noqa: E402

from semcom import AirConfig, NetworkConfig  # noqa: E402
from semcom.engine.store.population import Population  # noqa: E402
from semcom.engine.world import World  # noqa: E402
from semcom.flower import Link  # noqa: E402
from tests import worlds  # noqa: E402
from tests.refusals import refuses  # noqa: E402
from tests.worlds import linked, mapped, section  # noqa: E402

BOTH = ("encoder.", "head.")
SIZES, SEED = (7, 5, 3, 4), 3
UNCODED: Mapping[str, Any] = {"parameters": "analog", "bandwidth_hz": 1000.0, "symbol_energy": 0.5}
RAYLEIGH: Mapping[str, Any] = {"kind": "rayleigh", "snr_db": "9,9,3,3", "downlink_snr_db": 20.0}
OFDM = {"kind": "ofdm", "subcarriers": 12, "shares": (0.25, 0.5, 0.125, 0.125)}
SETTINGS: Mapping[str, tuple[Mapping[str, Any], Mapping[str, Any]]] = {
    "uncoded": (RAYLEIGH, UNCODED),
    "an SNR for each round": ({"snr_db": "0:18"}, {"parameters": "analog"}),
    "fading that lasts": ({"kind": "rayleigh", "coherence": "round", "round_doppler": 0.05}, UNCODED),
    "several users": ({"kind": "rayleigh", "antennas": 2, "users": 2}, UNCODED),
    "parts of a band": (OFDM, {"bits_per_use": 4.0}),
    "error-free": ({"kind": "awgn"}, {"bits_per_use": 4.0, "bits_per_float": 16}),
    "without a channel": ({"kind": "none"}, {}),
    "rates": (RAYLEIGH, {"rate": "mcs", "outage": 0.2}),
    "losses": (RAYLEIGH, {"rate": "capacity", "repeat": False, "outage": 0.5}),
    "quantised": ({"kind": "rayleigh"}, {"compress": "quantise", "quantise_bits": 3}),
    "the largest": ({"kind": "rayleigh"}, {"compress": "top-k", "top_fraction": 0.3}),
}


def make_link(channel: Mapping[str, Any], air: Mapping[str, Any], **more: Any) -> Link:
    given = {"clients": len(SIZES), "seed": SEED, **more}
    return Link(linked(**channel), section(AirConfig, **air), **given)


def make_message(model: Mapping[str, Tensor], round_: int = 1, kind: str = "train") -> Message:
    content = RecordDict({"arrays": ArrayRecord(dict(model)), "config": ConfigRecord({"server-round": round_})})
    return Message(content=content, metadata=Metadata(1, "", 1, 2, "", "", time.time(), 3600, kind))


def make_context(client: int, clients: int = len(SIZES)) -> Context:
    return Context(1, 1, {"partition-id": client, "num-partitions": clients}, RecordDict(), {})


def answer(message: Message, model: Mapping[str, Tensor]) -> Message:
    metrics = MetricRecord({"num-examples": 1})
    return Message(RecordDict({"arrays": ArrayRecord(dict(model)), "metrics": metrics}), reply_to=message)


def read(message: Message) -> dict[str, Tensor]:
    return message.content["arrays"].to_torch_state_dict()


def train(t: Tensor) -> Tensor:
    return t + 0.1 * torch.arange(1.0, 1 + t.numel()).view_as(t) / t.numel()


def train_each(name: str, stack: Tensor) -> Tensor:
    return torch.stack([train(t) for t in stack])


class App:
    """A client that trains by `train`, and keeps what it received."""

    def __init__(self) -> None:
        self.received: dict[str, Tensor] = {}

    def __call__(self, message: Message, context: Context) -> Message:
        self.received = read(message)
        return answer(message, {name: train(t) for name, t in self.received.items()})


def rows(pop: Population) -> list[dict[str, Tensor]]:
    return [{name: t[row] for name, t in pop.named(BOTH).items()} for row in range(len(pop.ids))]


def make_world(channel: Mapping[str, Any], air: Mapping[str, Any]) -> World:
    return worlds.world("fedavg", SIZES, precision="float32", channel=channel, air=air, seed=SEED)


@pytest.mark.parametrize("setting", SETTINGS)
def test_models_arrive_and_are_counted_as_in_the_engine(setting: str) -> None:
    channel, air = SETTINGS[setting]
    world, link, app = make_world(channel, air), make_link(channel, air), App()
    contexts = [make_context(k) for k in range(len(SIZES))]
    start = world.population(shared=BOTH)
    if world.air.compression.remembers:
        world.remember(BOTH)
    model = rows(start.select(world.session.draws.sample()))[0]
    lost = 0
    for round_ in (1, 2):
        world.session.tally.begin(round_)
        world.air.totals, world.air.client_rounds = {way: type(t)() for way, t in world.air.totals.items()}, len(SIZES)
        here = world.sample()
        received = world.air.down(start.select(here), BOTH)
        sent = world.air.up(mapped(received.spread(), train_each), BOTH, since=received)
        found = world.arrived(here)
        expected, counts = {}, world.air.per_client_round()
        for k, heard, got, arrived in zip(here.tolist(), rows(received), rows(sent), found, strict=True):
            expected[k] = heard, got if arrived else None
        metrics = []
        for k, context in enumerate(contexts):
            app.received = {}
            reply = link(make_message(model, round_), context, app)
            heard, got = expected.get(k, ({}, None))
            torch.testing.assert_close(app.received, type(app.received)(heard), rtol=0, atol=0)
            if got is None:
                lost += 1
                assert reply.has_error()
                continue
            metrics.append(reply.content["metrics"])
            torch.testing.assert_close(read(reply), OrderedDict(got), rtol=0, atol=0)
        if len(metrics) == len(SIZES):
            for way, each in counts.items():
                for name, value in each.items():
                    assert sum(m[f"{way}_{name}"] for m in metrics) == pytest.approx(len(SIZES) * value), (way, name)
    assert (lost > 0) == (setting == "losses") and lost < 2 * len(SIZES)


def test_an_error_free_link_changes_no_bit() -> None:
    g = torch.Generator().manual_seed(0)
    model = {
        "half": torch.randn(3, 4, generator=g).half(),
        "double": torch.randn(5, dtype=torch.float64, generator=g),
        "batches": torch.tensor(7),
        "bias": torch.randn((), generator=g),
    }
    link = make_link({"kind": "rayleigh"}, {"bits_per_float": 16, "bits_per_use": 4})
    reply = link(make_message(model), make_context(2), lambda m, c: answer(m, read(m)))
    arrived = read(reply)
    assert list(arrived) == list(model)
    assert all(t.dtype == arrived[n].dtype and torch.equal(t, arrived[n]) for n, t in model.items())
    assert reply.content["metrics"]["up_floats"] == 18  # without the count of batches
    assert reply.content["metrics"]["up_uses"] == reply.content["metrics"]["down_uses"] * len(SIZES) == 18 * 4


@pytest.mark.parametrize("up_db, down_db", [(10.0, 4.0), (10.0, float("inf")), (float("inf"), 4.0)])
def test_noise_has_the_snr_of_each_way(up_db: float, down_db: float) -> None:
    model = {"w": torch.full((200_000,), 3.0), "fixed.running_var": torch.ones(100)}
    link = make_link({"kind": "awgn", "snr_db": up_db, "downlink_snr_db": down_db}, {"parameters": "analog"})
    app = App()
    arrived = read(link(make_message(model), make_context(0), app))
    update = train(app.received["w"]) - app.received["w"]
    noise = {"down": (app.received["w"] - 3, 9.0, down_db)}
    noise["up"] = arrived["w"] - 3 - update, float(update.square().mean()), up_db  # the base station adds its own copy
    for error, power, snr_db in noise.values():
        # 200,000 numbers: the standard error of their mean square is 0.3 %
        assert float(error.square().mean()) / power == pytest.approx(10 ** (-snr_db / 10), rel=0.015, abs=1e-9)
    assert torch.equal(app.received["fixed.running_var"], model["fixed.running_var"])


def test_draws_are_named_by_seed_client_round_and_way() -> None:
    model, app, seen = {"w": torch.zeros(64) + 1}, App(), []
    for seed, client, round_ in ((0, 0, 1), (1, 0, 1), (0, 1, 1), (0, 0, 2)):
        link = make_link({"kind": "awgn"}, {"parameters": "analog"}, seed=seed)
        arrived = read(link(make_message(model, round_), make_context(client), app))["w"]
        seen += [app.received["w"], arrived - train(model["w"])]
        again = read(link(make_message(model, round_), make_context(client), app))["w"]
        assert torch.equal(again, arrived) and torch.equal(app.received["w"], seen[-2])
    assert len({tuple(noise.tolist()) for noise in seen}) == 8


def test_tests_meet_noise_of_their_own_and_cost_nothing() -> None:
    world = make_world(RAYLEIGH, UNCODED)
    start = world.population(shared=BOTH)
    view = rows(world.air.down(start.select(world.sample()), BOTH, "received."))
    link, calls = make_link(RAYLEIGH, UNCODED), []

    def evaluate(message: Message, context: Context) -> Message:
        calls.append(read(message))
        return Message(RecordDict({"metrics": MetricRecord({"accuracy": 0.5})}), reply_to=message)

    model = rows(start.select(world.sample()))[0]
    reply = link(make_message(model, kind="evaluate"), make_context(1), evaluate)
    assert all(torch.equal(t, calls[0][n]) for n, t in view[1].items())
    assert dict(reply.content["metrics"]) == {"accuracy": 0.5}


def test_it_is_a_mod_of_an_app_and_leaves_other_messages_alone() -> None:
    app = ClientApp(mods=[])
    link, heard = make_link({"kind": "awgn"}, {"parameters": "analog"}), []

    @app.train(mods=[link])
    def fit(message: Message, context: Context) -> Message:
        heard.append(read(message)["w"])
        return answer(message, read(message))

    @app.evaluate()
    def evaluate(message: Message, context: Context) -> Message:
        heard.append(read(message)["w"])
        return Message(RecordDict(), reply_to=message)

    @app.query(mods=[link])
    def query(message: Message, context: Context) -> Message:
        return Message(message.content, reply_to=message)

    ones = {"w": torch.ones(8)}
    app(make_message(ones), make_context(0))
    app(make_message(ones, kind="evaluate"), make_context(0))
    assert not torch.equal(heard[0], ones["w"]) and torch.equal(heard[1], ones["w"])
    empty = Message(content=RecordDict(), metadata=Metadata(1, "", 1, 2, "", "", time.time(), 3600, "query"))
    assert not app(empty, make_context(0)).content


def test_those_who_take_part_share_the_band_and_the_broadcast() -> None:
    model = {"w": torch.ones(100)}
    air = {"bits_per_use": 4.0, "bandwidth_hz": 1000.0, "symbol_energy": 0.5}
    link = make_link({"kind": "awgn"}, air, clients=10, participation=0.2)
    got = link(make_message(model), make_context(9, 10), App()).content["metrics"]
    uses = 100 * 32 / 4
    assert got["up_uses"] == uses and got["up_airtime_s"] == pytest.approx(uses / 500)
    assert got["down_uses"] == uses / 2 and got["down_airtime_s"] == pytest.approx(uses / 1000)
    assert got["down_energy_j"] == uses / 4 and got["down_bits"] == got["up_bits"] == 3200


REFUSED = {
    "air.parameters": ({"kind": "none"}, {"parameters": "analog"}, {}),
    "air.access": ({}, {"parameters": "analog", "access": "superposed"}, {}),
    "channel.snr_db": ({"snr_db": "9,12"}, {}, {}),
    "channel.test_snr_db": ({"test_snr_db": 3}, {}, {}),
    "channel.users": ({"kind": "rayleigh", "antennas": 2, "users": 2}, UNCODED, {"participation": 0.5}),
    "network.scheduling": ({}, {}, {"network": NetworkConfig(scheduling="best-snr"), "participation": 0.5}),
    "network.flops": ({}, {}, {"network": NetworkConfig(options={"flops": 1e9})}),
}


@pytest.mark.parametrize("field", REFUSED)
def test_what_a_client_cannot_do_is_refused(field: str) -> None:
    channel, air, more = REFUSED[field]
    with refuses(field):
        make_link({"kind": "awgn", **channel}, air, **more)


def test_messages_that_do_not_fit_are_refused() -> None:
    link, one = make_link({"kind": "awgn"}, {}), {"w": torch.ones(2)}
    for config in ({}, {"partition-id": 4}, {"partition-id": 0, "num-partitions": 5}):
        with refuses("clients", "partition-id"):
            link(make_message(one), Context(1, 1, config, RecordDict(), {}), App())
    message = make_message(one)
    del message.content["config"]
    with refuses("server_round"):
        link(message, make_context(0), App())
    message = make_message(one)
    message.content["more"] = ArrayRecord(one)
    with refuses("arrays", "more"):
        link(message, make_context(0), App())
    with refuses("reply", "v"):
        link(make_message(one), make_context(0), lambda m, c: answer(m, {"v": torch.ones(2)}))


def test_the_example_of_its_docstring() -> None:
    (example,) = (t for t in doctest.DocTestFinder(recurse=False).find(Link, "Link", globs={}) if t.examples)
    assert not doctest.DocTestRunner().run(example).failed
