"""Clients in a cell, and which of them take part."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator

import numpy as np
import pytest
import torch

from semcom.channels.scene import read_scene
from semcom.channels.statistics import ClientStatistics, Sender
from semcom.config import ConfigError
from semcom.engine.air.places import Cell
from semcom.engine.world import World
from tests import worlds
from tests.samples import has_mean

CELL = {"kind": "cell", "radius_m": 200.0}
CLIENTS = 12


def world(network: dict[str, object], **options: object) -> World:
    return worlds.world(sizes=(2,) * CLIENTS, network=network, **options)  # type: ignore[arg-type]


def cell_of(w: World) -> Cell:
    places = w.session.draws.places
    assert isinstance(places, Cell)
    return places


def rounds(w: World, n: int) -> Iterator[np.ndarray]:
    for round_ in range(1, n + 1):
        w.session.tally.begin(round_)
        yield w.sample()


def test_snrs_follow_from_places_and_powers() -> None:
    """23 dBm over a sixth of 1 MHz up, 33 dBm over all of it down: 10 dB more power on 7.8 dB more noise."""
    w = world(CELL, train={"participation": 0.5})
    up, down = (w.session.draws.snr_db(way, np.arange(CLIENTS)).numpy() for way in ("up", "down"))
    cell = cell_of(w)
    assert cell.distance_m.max() <= 200
    np.testing.assert_allclose(up, 23 + 167 - 10 * np.log10(1e6 / 6) - cell.path_loss_db - cell.shadowing_db)
    np.testing.assert_allclose(down - up, 10 - 10 * np.log10(6))
    assert len(set(up)) == CLIENTS


def test_places_stay_and_follow_from_the_seed() -> None:
    one, same, other = world(CELL), world(CELL), world(CELL, seed=1)
    places = [cell_of(w).x_m for w in (one, same, other)]
    assert (places[0] == places[1]).all() and not (places[0] == places[2]).any()


def test_energy_is_power_times_time() -> None:
    w = world({**CELL, "power_dbm": 20.0, "base_power_dbm": 30.0})
    w.air.up(w.population(), "head.")
    w.air.down(w.population(shared="head."), "head.")
    up, down = w.air.totals["up"], w.air.totals["down"]
    assert up.energy_j == pytest.approx(0.1 * up.airtime_s)
    assert down.energy_j == pytest.approx(1.0 * down.airtime_s / CLIENTS)  # each waits for the one broadcast


def test_shares_of_the_band_divide_the_noise() -> None:
    shares = tuple(np.arange(1, CLIENTS + 1) / np.arange(1, CLIENTS + 1).sum())
    w = world(CELL, channel={"kind": "ofdm", "subcarriers": 780, "shares": shares})
    cell = cell_of(w)
    noise = -174 + 7 + 10 * np.log10((w.config.air.bandwidth_hz or 0) * np.array(shares))
    up = cell.find_snr_db("up", np.arange(CLIENTS), 1)
    np.testing.assert_allclose(up, 23 - cell.path_loss_db - cell.shadowing_db - noise)


def test_in_turns_all_take_part_equally_often() -> None:
    w = world({"scheduling": "round-robin"}, train={"participation": 5 / 12})
    found = list(rounds(w, 12))
    assert {len(ids) for ids in found} == {5} and all((np.diff(ids) > 0).all() for ids in found)
    assert set(Counter(np.concatenate(found).tolist()).values()) == {5}
    assert found[0].tolist() == [0, 1, 2, 3, 4] and found[2].tolist() == [0, 1, 2, 10, 11]


def test_the_best_snr_is_an_order_statistic() -> None:
    """The best of K uniform on 0 to 18 dB is 18 K / (K + 1) on average."""
    w = world({"scheduling": "best-snr"}, train={"participation": 1 / 12}, channel={"snr_db": "0:18"})
    best = []
    for ids in rounds(w, 400):
        best.append(float(w.session.draws.snr_db("up", ids)[0]))
        assert best[-1] == float(w.session.draws.snr_db("up", np.arange(CLIENTS)).max())
    assert has_mean(torch.tensor(best), 18 * 12 / 13)


def test_equal_snrs_are_chosen_at_random() -> None:
    w = world({"scheduling": "best-snr"}, train={"participation": 0.5})
    assert len({tuple(ids) for ids in rounds(w, 5)}) == 5


SCENE = {"kind": "scene", "scene": "munich-20", "round_s": 20.0}


def test_snrs_in_a_scene_are_those_of_its_gains_at_the_time_of_the_round() -> None:
    """23 dBm over a twelfth of 1 MHz: 23 + 174 - 7 - 10 lg(1e6 / 12) dB above the path gain, wherever somebody is."""
    w, scene = world(SCENE), read_scene("munich-20")
    gains = scene.gains_db()[:CLIENTS]
    for round_, seconds in ((0, 0), (1, 0), (2, 20), (4, 60), (7, 120), (8, 100), (13, 0)):
        at = np.flatnonzero(scene.times_s <= seconds)[-1]
        up = w.session.draws.places.find_snr_db("up", np.arange(CLIENTS), round_)
        np.testing.assert_allclose(up, gains[:, at] + 190 - 10 * np.log10(1e6 / CLIENTS))
    described = w.session.draws.places.describe(4)
    at = np.flatnonzero(scene.times_s <= 60)[-1]
    np.testing.assert_allclose(described["x_m"] + scene.base_m[0], scene.places_m[:CLIENTS, at, 0])
    assert (described["los"] == scene.sight[:CLIENTS, at]).all()


WALK = {"kind": "scene", "scene": "munich-20"}
STREET = {"kind": "cir", "path": "munich-20", "time": "round", "subcarriers": 120}


def test_the_time_of_a_scene_is_that_of_the_clock() -> None:
    """Rounds of 20 and 35 s: the third begins after 55 s. Without a clock a round takes a second."""
    w, scene = world({**WALK, "flops": 1e6}), read_scene("munich-20")
    everyone, gains = np.arange(CLIENTS), scene.gains_db()[:CLIENTS]
    for round_, (start, length) in enumerate([(0, 20), (20, 35), (55, 0)], 1):
        w.session.tally.begin(round_)
        w.air.timeline.spend(np.array([3]), np.array([float(length)]))  # type: ignore[union-attr]
        assert w.session.draws.find_seconds() == start
        at = np.flatnonzero(scene.times_s <= start)[-1]
        up = w.session.draws.places.find_snr_db("up", everyone, round_)
        np.testing.assert_allclose(up, gains[:, at] + 190 - 10 * np.log10(1e6 / CLIENTS))
    places = w.session.draws.places
    assert [places.find_seconds(r) for r in (0, 1, 2, 3, 4)] == [0, 0, 20, 55, 55]  # the next, as long as it is now
    counters = w.air.counters()
    again = world({**WALK, "flops": 1e6})
    again.air.resume(counters)
    again.session.tally.begin(4)
    assert [again.session.draws.places.find_seconds(r) for r in (2, 3, 4)] == [20, 55, 55]
    assert [world(WALK).session.draws.places.find_seconds(r) for r in (0, 1, 2, 9)] == [0, 0, 1, 8]
    assert world({"kind": "list"}).session.draws.places.find_seconds(9) == 8


def test_everything_on_the_way_meets_the_streets_as_they_are_in_the_round() -> None:
    """Features, numbers and blocks of clients meet the responses of the round's time: here a frame's mean of |h|^2."""
    w, scene = world({**WALK, "round_s": 15.0}, channel=STREET), read_scene("munich-20")
    draws, found = w.session.draws, {}
    for round_ in (1, 4, 5):
        w.session.tally.begin(round_)
        now = draws.link.at(15.0 * (round_ - 1)).of(7)
        known = now._combine_responses()[0]  # type: ignore[attr-defined]
        drawn = draws.realisation(draws.link, np.array([7]), [[2]], "test", "uplink")["fading"][0].cdouble()
        at = [int((known - h).abs().argmin()) for h in drawn.flatten()]
        np.testing.assert_allclose(drawn.flatten(), known[at], rtol=1e-5)
        numbers = draws.on_air("up", "w", 7, 2 * len(known))["fading"].cdouble().flatten()
        np.testing.assert_allclose(numbers[: len(known)], known, rtol=1e-5)
        statistics = ClientStatistics(draws.link).of("up", 7)
        sender = Sender(10.0, uses=1e4)
        block = statistics.draw_information(sender, torch.Generator().manual_seed(0), draws.find_seconds())
        assert block == pytest.approx(float(torch.log2(1 + 10 * known.abs().square()).mean()))
        found[round_] = block
    assert scene.find_time(0) != scene.find_time(45) and len(set(found.values())) == 3


@pytest.mark.parametrize("access", ["orthogonal", "superposed"])
def test_uncoded_numbers_are_unbiased_at_each_time_of_a_walk(access: str) -> None:
    """The part that arrives of a client's tensors is 1 in a round, in which all meet the same h."""
    air = {"parameters": "analog", "access": access}
    w = world({**WALK, "round_s": 30.0}, channel=STREET, air=air)
    for round_ in (1, 2, 4, 5):
        w.session.tally.begin(round_)
        statistics, seconds = w.air.uncoded.statistics, w.session.draws.find_seconds()
        for k in range(CLIENTS):
            link = w.session.draws.link.at(seconds).of(k)
            power = link._combine_responses()[0].abs().square()  # type: ignore[attr-defined]
            shrunk = statistics.compute_now("shrink", "up", k, False, 0.5)
            assert shrunk == pytest.approx(float((power / (power + 0.5)).mean()), rel=1e-6)
            assert statistics.compute_now("invert", "up", k, False, 0.1, 0.0)[1] == float(
                (power >= 0.1).double().mean()
            )
    if access == "superposed":
        return
    sent, parts = torch.ones(CLIENTS, 240 * 12, dtype=torch.float64), []
    for name in map(str, range(40)):
        got = w.air.send("up", name, sent, np.arange(CLIENTS), np.full(CLIENTS, sent.shape[1]))
        parts.append((got * sent).sum(1) / sent.square().sum(1))
    each = torch.stack(parts)
    assert ((each.mean(0) - 1).abs() < 5 * each.std(0) / len(each) ** 0.5 + 0.03).all()  # whose frames are turned


def test_in_a_scene_a_repetition_meets_the_streets_of_the_round_again() -> None:
    """At the rate that the round's responses carry, and at the rate itself where they carry more."""
    w = world(WALK, channel=STREET, air={"rate": "capacity", "outage": 0.5, "backoff_db": 0.0})
    ids, bits, slower = np.arange(CLIENTS), np.full(CLIENTS, 1e5), []
    for round_ in (1, 30, 60):
        w.session.tally.begin(round_)
        now, snr = (
            w.session.draws.link.at(w.session.draws.find_seconds()),
            10 ** (w.session.draws.snr_db("up", ids) / 10),
        )
        h = [now.of(k)._combine_responses()[0] for k in ids.tolist()]  # type: ignore[attr-defined]
        carried = [float(torch.log2(1 + s * g.abs().square()).mean()) for s, g in zip(snr, h, strict=True)]
        rates = w.air.rates.choose("up", ids, bits)
        np.testing.assert_allclose(w.air.rates.measure("up", ids, bits), np.minimum(rates, carried), rtol=1e-5)
        slower += [*(np.array(carried) < rates)]
    assert 0.1 < np.mean(slower) < 0.9


def test_users_of_a_scene_have_rates_of_their_own_company() -> None:
    """A rate is one that nine of ten blocks beside others of the scene carry, here by drawing them again."""
    channel = {**STREET, "antennas": 4, "users": 2, "subcarriers": 48}
    w = world(WALK, channel=channel, air={"rate": "capacity", "outage": 0.1})
    w.session.tally.begin(1)
    ids, bits = np.arange(CLIENTS), np.full(CLIENTS, 1e5)
    rates = w.air.rates.choose("up", ids, bits)
    for k in (0, 5):
        statistics = ClientStatistics(w.session.draws.link, w.session.draws.powers_beside).of("up", k)
        snr = 10 ** (float(w.session.draws.snr_db("up", ids[[k]])[0]) / 10)
        drawn = [
            statistics.draw_information(Sender(snr, 10**0.3, 1e5), torch.Generator().manual_seed(i), 15.0 * (i % 9))
            for i in range(300)
        ]
        lost = float(np.mean(np.array(drawn) < rates[k]))
        assert lost == pytest.approx(0.1, abs=5 * (0.09 / 300) ** 0.5)


@pytest.mark.parametrize(
    ("network", "why"),
    [
        ({"kind": "scene"}, "network.scene: none is given; those that ship are munich-20"),
        ({**SCENE, "scene": "munic"}, "network.scene: 'munic' is no file, and none of those that ship: munich-20"),
        ({**SCENE, "round_s": -1.0}, "network.round-s: -1.0 is not a number of at least 0"),
        (
            {**SCENE, "path_loss": "exponent"},
            "network.path-loss: 'exponent' has no effect, as network.kind scene has no",
        ),
    ],
)
def test_a_scene_that_is_none_is_refused(network: dict[str, object], why: str) -> None:
    with pytest.raises(ConfigError, match=f"^{re.escape(why)}"):
        world(network)


def test_a_scene_has_places_for_so_many() -> None:
    with pytest.raises(ConfigError, match="^network.scene: 20 clients are in it, 21 in the run$"):
        worlds.world(sizes=(2,) * 21, network=SCENE)
