"""The time of a round, who arrives in it, and what a mean is made of."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import semcom
from semcom.channels.scene import read_scene
from semcom.config import Resolved
from semcom.engine.air.losses import CHOSEN, MEANT, Losses
from semcom.engine.air.timeline import count_flops_per_image
from semcom.engine.store.population import average
from semcom.engine.world import World
from semcom.methods.registry import METHODS
from tests import worlds
from tests.engine.air.test_air import BOTH, CONV, HEAD, SIZES, models
from tests.methods import arms
from tests.runs.rounds.test_run import interrupt, timeless
from tests.worlds import mapped

FORWARD = (1536, 384, 24)
"""FLOPs per image: 3 filters of 1x4x4 at 16 places, 4 of 3x4x4 at one, a head of 4 times 3; twice each number."""
TRAINED = 2 * 1536 + 3 * 384 + 3 * 24
"""Back again, each layer has the product for its weights, and all but the first that for its input."""
CLIENTS = 64


def timed(method: str = "fedavg", sizes: Any = SIZES, flops: float = 1e6, spread: float = 0.0, **options: Any) -> World:
    network = {"flops": flops, "flops_spread": spread, **options.pop("network", {})}
    return worlds.world(method, sizes, network=network, **options)


@pytest.mark.parametrize(
    ("train", "parts", "expected"),
    [
        (BOTH, BOTH, TRAINED),
        (BOTH, ("encoder.",), TRAINED - 3 * 24),
        ((), BOTH, sum(FORWARD)),
        (("head.",), BOTH, sum(FORWARD) + 24),  # of the head's input nothing learns
        (("encoder.",), BOTH, TRAINED - 24),
    ],
)
def test_operations_are_those_of_the_products(train: Any, parts: Any, expected: float) -> None:
    w = worlds.world()
    assert count_flops_per_image(w.population().cohorts[0].network, torch.Size([1, 8, 8]), train, parts) == expected


@pytest.mark.parametrize(
    ("layer", "products"),
    [
        (nn.Conv2d(4, 8, 3, groups=4, padding=1), 25 * 8 * 1 * 9),
        (nn.Conv2d(4, 4, 5, groups=2, stride=2), 1 * 4 * 2 * 25),
        (nn.ConvTranspose2d(4, 6, 3, groups=2), 25 * 4 * 3 * 9),
    ],
)
def test_a_channel_of_a_group_has_to_do_with_its_group_alone(layer: nn.Module, products: int) -> None:
    """Of 5x5 pixels: places, filters, channels of a filter and its size. The weights' gradient takes as many again."""
    network = nn.ModuleDict({"encoder": layer})
    counted = [
        count_flops_per_image(network, torch.Size([4, 5, 5]), train, ("encoder.",)) for train in ((), "encoder.")
    ]
    assert counted == [2 * products, 2 * 2 * products]


@pytest.mark.parametrize(
    ("how", "changed"),
    [
        ({"encoder": "mobilenet", "network": {"flops": 1e9}}, 1),
        ({"encoder": "mobilenet"}, 0),
        ({"encoder": "cnn", "network": {"flops": 1e9}}, 0),
        ({"method": "perfedavg", "hyper": {"variant": "hf"}, "network": {"flops": 1e9}}, 1),
        ({"method": "perfedavg", "network": {"flops": 1e9}}, 0),
    ],
)
def test_runs_that_took_other_times_are_others(how: dict[str, Any], changed: int) -> None:
    assert len(semcom.config.list_earlier_hashes(semcom.resolve(worlds.request(**how)))) == changed


def test_a_round_lasts_as_long_as_its_slowest_client() -> None:
    """Computing and airtime, up and down; client 0 has the most images, and all have the same airtime."""
    w = timed()
    arms.rounds(w)
    computing = np.array(SIZES) * TRAINED / 1e6
    airtime = (w.air.totals["up"].airtime_s + w.air.totals["down"].airtime_s) / 3
    np.testing.assert_allclose(w.air.timeline.spent, computing + airtime)
    assert w.air.arrivals.summarize() == {"round_s": pytest.approx(computing[0] + airtime)}
    w.session.tally.begin(2)
    assert w.air.arrivals.summarize()["round_s"] == 0


def test_a_split_client_leaves_the_head_to_the_base_station() -> None:
    w = timed("fedcl", air={"bits_per_use": 1.0})
    arms.rounds(w)
    sent = w.air.totals["up"].airtime_s + w.air.totals["down"].airtime_s
    assert w.air.timeline.spent.sum() == pytest.approx(sum(SIZES) * (TRAINED - 72) / 1e6 + sent)


def test_networks_that_see_the_snr_take_their_time() -> None:
    """The factors of features are products more."""
    plain, seen = (timed(model={"features": 4, "snr_input": on}) for on in (False, True))
    for w in (plain, seen):
        arms.rounds(w)
    assert seen.air.timeline.spent.min() > plain.air.timeline.spent.min() > 0  # type: ignore[union-attr]


def test_inner_steps_and_frozen_models_take_time() -> None:
    hf = {"hyper": {"variant": "hf"}}
    moon = TRAINED + 2 * sum(FORWARD)
    for method, options, passes in (("pfedme", {}, 5 * TRAINED), ("moon", {}, moon), ("perfedavg", hf, 4 * TRAINED)):
        w = timed(method, **options)
        arms.rounds(w)
        sent = w.air.totals["up"].airtime_s + w.air.totals["down"].airtime_s
        assert w.air.timeline.spent.sum() == pytest.approx(sum(SIZES) * passes / 1e6 + sent), method


def test_speeds_are_log_normal_with_the_given_mean() -> None:
    w = timed(sizes=(1,) * 400, spread=0.5)
    log = np.log(w.air.timeline.speeds / 1e6)
    assert abs(log.mean() + 0.125) < 5 * 0.5 / 20 and abs(log.std() - 0.5) < 5 * 0.5 / 800**0.5
    again = timed(sizes=(1,) * 400, spread=0.5).air.timeline
    assert again is not None and (w.air.timeline.speeds == again.speeds).all()


def lossy(outage: float, sizes: Any = (1,) * CLIENTS, **channel: Any) -> World:
    air = {"rate": "capacity", "outage": outage, "repeat": False}
    return worlds.world("fedavg", sizes, air=air, channel={"kind": "awgn", **channel})


@pytest.mark.parametrize(
    ("kind", "options"), [("awgn", {}), ("rayleigh", {}), ("rayleigh", {"antennas": 4, "users": 2}), ("ofdm", {})]
)
def test_the_part_that_is_lost_is_the_outage(kind: str, options: dict[str, Any]) -> None:
    """Binomial, by chance or by the channel's own gain, of which a quantile is known to half a percent."""
    w, ids, arrived = lossy(0.2, kind=kind, **options), np.arange(CLIENTS), []
    for round_ in range(1, 1 + (5 if kind == "ofdm" or options else 12)):
        w.session.tally.begin(round_)
        arrived.append(w.arrived(ids))
        assert (w.arrived(ids[5:9]) == arrived[-1][5:9]).all()  # the answer stays, whoever asks with whom
        assert w.air.arrivals.summarize() == {"lost": CLIENTS - arrived[-1].sum(), "unreached": 0}
    found = np.concatenate(arrived)
    assert abs(found.mean() - 0.8) < 5 * (0.2 * 0.8 / len(found)) ** 0.5 + 0.02 * (kind != "awgn")
    assert (w.arrived(ids, "other") != arrived[-1]).any() and (arrived[0] != arrived[1]).any()


def test_a_scheme_that_is_repeated_is_lost_as_often_as_it_says() -> None:
    air = {"rate": "mcs", "repeat": False}
    w = worlds.world("fedavg", (1,) * CLIENTS, air=air, channel={"kind": "rayleigh", "snr_db": -20.0})
    assert abs(w.arrived(np.arange(CLIENTS)).mean() - 0.9) < 5 * (0.09 / CLIENTS) ** 0.5


def test_what_is_lost_is_sent_once() -> None:
    used = []
    for repeat in (True, False):
        air = {"rate": "capacity", "repeat": repeat}
        w = worlds.world("fedavg", SIZES, air=air, channel={"kind": "rayleigh"})
        w.air.up(w.population(), BOTH)
        w.air.down(w.population(), BOTH)
        used.append((w.air.totals["up"].uses, w.air.totals["down"].uses))
    assert used[1] == pytest.approx((0.9 * used[0][0], 0.9 * used[0][1]))


@pytest.mark.parametrize("kind", ["awgn", "rayleigh"])
def test_a_broadcast_is_lost_at_the_rate_of_the_worst(kind: str) -> None:
    """Over Rayleigh fading a client of s times the least SNR loses it with 1 - (1 - outage)^(1 / s); else by chance."""
    snrs = ",".join(["0", "6"] * (CLIENTS // 2))
    w, reached = lossy(0.3, kind=kind, snr_db=snrs), []
    for round_ in range(1, 16):
        w.session.tally.begin(round_)
        ids = w.sample()
        assert (w.sample() == ids).all() and w.air.arrivals.summarize() == {"lost": 0, "unreached": CLIENTS - len(ids)}
        reached.append(np.isin(np.arange(CLIENTS), ids))
        assert (w.arrived(ids) | ~reached[-1][ids]).sum() < len(ids)  # the uplink fades by itself
    worst, better = np.mean(reached, 0).reshape(-1, 2).mean(0)
    error = 5 * (0.25 / (15 * CLIENTS / 2)) ** 0.5 + 0.01
    assert abs(worst - 0.7) < error
    assert abs(better - 0.7 ** (10**-0.6 if kind == "rayleigh" else 1)) < error
    w.air.down(w.population(shared=BOTH).select(np.array([1, 3])), BOTH)  # who is better off hears the same broadcast
    down, slowest = w.air.totals["down"], w.air.rates.choose("down", np.array([0]), np.ones(1))[0]
    assert down.uses == pytest.approx(down.bits / 2 / slowest)


@pytest.mark.parametrize("method", ["fedavg", "fedper", "apfl", "fedrod"])
def test_a_broadcast_is_a_block_as_long_as_a_model(method: str) -> None:
    """Whatever part of it comes down, and whatever the method has put beside it."""
    w = worlds.world(method, air={"rate": "capacity", "repeat": False})
    arms.rounds(w)
    assert w.air.arrivals.down_bits == 32 * (CONV + HEAD)


@pytest.mark.parametrize("method", ["fedavg", "fedper", "ditto", "fedproto", "fedcosr"])
def test_who_is_not_reached_takes_no_part(method: str) -> None:
    """The round is that of the others; what a client has of its own stays."""
    w, other = (
        worlds.world(method, (7, 5, 3, 9, 2), air={"rate": "capacity", **air})
        for air in ({"outage": 0.5, "repeat": False}, {})
    )
    arm = METHODS.get(method)(w.config.hyper)
    before = arm.setup(w)
    ids = w.sample()
    assert 0 < len(ids) < 5
    w.air.arrivals.through = {name: dict.fromkeys(range(5), True) for name in ("", "prototypes", "centroids")}
    other.sample = lambda: ids  # type: ignore[method-assign]
    after, expected = arm.round(before, w), arm.round(before, other)
    assert worlds.gap(after.model, expected.model) < 1e-14 and w.session.tally.visited == other.session.tally.visited
    own = getattr(after, "personal", after.model).cohorts[0].dense()
    old = getattr(before, "personal", before.model).cohorts[0].dense()
    away = np.setdiff1d(np.arange(5), ids)
    assert all(torch.equal(t[away], old.tensors[n][away]) for n, t in own.tensors.items() if n not in own.shared)
    for way in ("up", "down"):
        assert w.air.totals[way].floats == other.air.totals[way].floats


def test_a_round_that_reaches_nobody_changes_nothing() -> None:
    air = {"rate": "capacity", "outage": 0.97, "repeat": False}
    same: dict[int, bool] = {}

    def observe(before: Any, after: Any, world: World) -> dict[str, Any]:
        same[world.round] = before is after
        return {}

    result = semcom.run(worlds.request(air=air, channel={"kind": "awgn"}), observe=observe)
    alone = [line["round"] for line in result.metrics if line["unreached"] == 4]
    assert alone == [round_ for round_ in same if same[round_]] and 0 < len(alone) < 6
    assert [line["round"] for line in result.metrics if "loss" not in line] == alone
    assert result.summary["unreached"] == sum(line["unreached"] for line in result.metrics)


def test_a_mean_is_over_those_that_arrived() -> None:
    w = lossy(0.5, (7, 5, 3, 9, 2))
    pop, ids = models(w), np.arange(5)
    mean = w.air.average(pop, BOTH, w.weights(ids))
    here = ids[w.arrived(ids)]
    assert 0 < len(here) < 5
    by_hand = average(pop.select(here), BOTH, w.weights(here))
    for name, t in mean.items():
        torch.testing.assert_close(t, by_hand[name])


@pytest.mark.parametrize("air", [{}, {"parameters": "analog"}, {"parameters": "analog", "access": "superposed"}])
def test_late_clients_are_left_out_of_every_kind_of_mean(air: dict[str, Any]) -> None:
    w = timed(air=air, train={"deadline_s": 100.0}, channel={"snr_db": "inf"})
    w.air.timeline.spend(np.array([1]), np.array([1000.0]))
    received = w.air.down(w.population(shared=BOTH), BOTH)
    trained = mapped(received.spread(), lambda name, t: t + torch.arange(3.0).view(-1, *[1] * (t.ndim - 1)))
    mean = w.air.average(trained, BOTH, w.weights(np.arange(3)), since=received)
    by_hand = average(trained.select(np.array([0, 2])), BOTH, torch.tensor([0.7, 0.3], dtype=torch.float64))
    for name, t in mean.items():
        torch.testing.assert_close(t, by_hand[name])
    assert w.air.arrivals.summarize() == {"round_s": 100.0, "late": 1}


@pytest.mark.parametrize("air", [{}, {"parameters": "analog", "access": "superposed"}])
@pytest.mark.parametrize("method", ["fedavg", "fedper", "ditto", "pfedme", "fedcrc", "fedala", "lg_fedavg", "fedcosr"])
def test_without_any_arrival_the_old_model_stays(method: str, air: dict[str, Any]) -> None:
    w = timed(method, air=air, train={"deadline_s": 1e-9})
    before, after = arms.rounds(w)
    assert w.air.arrivals.summarize()["late"] == 3
    for name, t in before.model.cohorts[0].dense().common.items():
        torch.testing.assert_close(after.model.cohorts[0].dense().common[name], t)


@pytest.mark.parametrize("method", ["fedproto", "fedgh", "fedcl"])
def test_what_is_sent_otherwise_is_left_out_too(method: str) -> None:
    """Without an arrival the base station keeps head, prototypes and centroids; with one it has that client's."""
    for late in ([0, 1, 2], [1, 2]):
        w = timed(method, train={"deadline_s": 100.0})
        arm = METHODS.get(method)(w.config.hyper)
        before = arm.setup(w)
        w.air.timeline.spend(np.array(late), np.full(len(late), 1000.0))
        after = arm.round(before, w)
        if method == "fedproto":
            known = w.owned(np.array([0]))[0] if len(late) < 3 else np.zeros(3, dtype=bool)
            assert (after.prototypes.known.numpy() == known).all()
            continue
        heads = [s.model.one("head.").named()["head.0.weight"] for s in (before, after)]
        assert torch.equal(*heads) == (len(late) == 3)
        if method == "fedcl":
            assert torch.equal(before.centroids.values, after.centroids.values) == (len(late) == 3)
            own = after.model.cohorts[0].dense().tensors["encoder.0.weight"]
            assert not torch.equal(own[1], before.model.cohorts[0].dense().tensors["encoder.0.weight"][1])


def test_a_late_client_keeps_its_own_decoder() -> None:
    w = timed("fedcl", hyper={"average_decoder": False}, train={"deadline_s": 100.0})
    arm = METHODS.get("fedcl")(w.config.hyper)
    before = arm.setup(w)
    w.air.timeline.spend(np.array([1]), np.array([1000.0]))
    old, new = (state.model.named() for state in (before, arm.round(before, w)))
    still = {name: [torch.equal(*pair) for pair in zip(t, new[name], strict=True)] for name, t in old.items()}
    assert still["head.0.weight"] == [False, True, False] and still["encoder.0.weight"] == [False] * 3


def test_where_nothing_is_lost_nothing_changes() -> None:
    """With the chance of a loss next to none, and with time to spare, models are those of a run without either."""
    air = {"rate": "capacity"}
    usual = worlds.world("fedavg", SIZES, air=air)
    other = timed(air={**air, "repeat": False, "outage": 1e-12}, train={"deadline_s": 1e9})
    assert worlds.gap(arms.rounds(usual)[-1].model, arms.rounds(other)[-1].model) == 0
    assert usual.air.arrivals.summarize() == {}
    assert other.air.arrivals.summarize() == {**other.air.arrivals.summarize(), "late": 0, "lost": 0, "unreached": 0}


AIR = {"rate": "mcs", "outage": 0.3, "repeat": False, "compress": "top-k", "top_fraction": 0.2}


def request(out: Path | None = None, **options: Any) -> Resolved:
    network = {"flops": 1e6, "flops_spread": 0.5}
    train = {"deadline_s": 0.26, "participation": 0.75, "checkpoint_every": 1}
    channel = {"kind": "rayleigh", **options.pop("channel", {})}
    return worlds.request(air=AIR, network=network, train=train, channel=channel, out=out and str(out), **options)


def test_a_run_that_walks_by_the_clock_goes_on_where_it_was(tmp_path: Path) -> None:
    """Rounds of minutes, so that each meets another time; a fair scheduler computes the earlier ones again."""
    channel = {"kind": "cir", "path": "munich-20", "time": "round"}
    network = {"kind": "scene", "scene": "munich-20", "flops": 1e4, "scheduling": "proportional-fair"}

    def walking(out: Path | None = None) -> Resolved:
        train = {"participation": 0.5, "checkpoint_every": 1}
        air = {"rate": "mcs", "outage": 0.3, "repeat": False}
        return worlds.request(air=air, network=network, train=train, channel=channel, out=out and str(out))

    whole = semcom.run(walking())
    assert [timeless(line) for line in semcom.run(walking()).metrics] == [timeless(line) for line in whole.metrics]
    scene, starts = read_scene("munich-20"), np.cumsum([0.0, *[line["round_s"] for line in whole.metrics]])[:-1]
    assert len({scene.find_time(s) for s in starts}) > 2
    interrupt(walking(tmp_path / "a"), 3)
    resumed = semcom.run(walking(tmp_path / "a"))
    assert [timeless(line) for line in resumed.metrics] == [timeless(line) for line in whole.metrics]
    place = whole.summary["cell"]
    assert resumed.summary["cell"] == place
    sent = whole.summary["traffic"]["up"]["airtime_s"] * 6 * walking().participants  # of a client in a round
    assert sum(place["airtime_s"]) == pytest.approx(sent, abs=2e-3)


def test_each_client_is_told_what_arrived_of_it(tmp_path: Path) -> None:
    """Of three clients of two rounds: the first out of coverage, one late once; client 2 was never called."""
    network = {"kind": "scene", "scene": "munich-20", "power_dbm": -100.0}
    result = semcom.run(worlds.request(air={"rate": "mcs", "coverage": "none"}, network=network, out=str(tmp_path)))
    assert result.summary["cell"]["arrived"] == [0.0] * worlds.request().clients
    losses = Losses()
    losses.add(MEANT, [0, 0, 1, 1, 3])
    losses.add("air.coverage", [0, 0])
    losses.add("train.deadline_s", [1])
    losses.add(CHOSEN, [4])
    assert losses.find_lost() == {0: 2, 1: 1, 3: 0}


def test_a_run_that_goes_on_or_trains_by_ones_is_the_same(tmp_path: Path) -> None:
    whole = semcom.run(request())
    late, lost = ([line[name] for line in whole.metrics] for name in ("late", "lost"))
    assert 0 < sum(late) < 3 * 6 and sum(lost)
    assert whole.summary["late"] == sum(late) and whole.summary["lost"] == sum(lost)
    assert whole.summary["time_s"] == sum(line["round_s"] for line in whole.metrics)
    interrupt(request(tmp_path / "a"), 3)
    resumed = semcom.run(request(tmp_path / "a"))
    assert [timeless(line) for line in resumed.metrics] == [timeless(line) for line in whole.metrics]
    by_ones = semcom.run(dataclasses.replace(request(), chunk=1))
    assert [line["lost"] for line in by_ones.metrics] == lost and [line["late"] for line in by_ones.metrics] == late
