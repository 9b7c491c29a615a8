"""Clients in a cell, and which of them take part."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator

import numpy as np
import pytest
import torch

from semcom.channels.scene import read_scene
from semcom.config import ConfigError
from semcom.engine.air.places import Cell
from semcom.engine.world import World
from tests import worlds

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
    found = torch.tensor(best)
    assert abs(found.mean() - 18 * 12 / 13) < 5 * found.std() / 400**0.5


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
