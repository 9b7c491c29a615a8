"""Clients on one resource, and fading that goes on from round to round, in a run."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from channels import theory
from semcom.config import RunConfig, from_dict, run_hash, to_dict
from semcom.engine.links import build_link
from semcom.engine.world import World
from semcom.runs.resolve import resolve
from semcom.runs.runner import run
from tests import worlds
from tests.refusals import refuses
from tests.worlds import linked

CLIENTS = 12
SHARED = {"kind": "rayleigh", "antennas": 4, "users": 3}
GRID = {"kind": "ofdm", "antennas": 3, "users": 3, "profile": "tdl-c"}
LASTING = {"kind": "rayleigh", "coherence": "round", "round_doppler": 0.1}


def world(channel: dict[str, Any], **options: Any) -> World:
    return worlds.world(sizes=(2,) * CLIENTS, channel=channel, **options)


def drawn(w: World, ids: list[int], kind: str = "uplink", stream: str = "train") -> dict[str, torch.Tensor]:
    draws = w.session.draws
    return draws.realisation(draws.link, np.array(ids), [[2, 1]] * len(ids), stream, kind)


def test_clients_of_a_round_share_resources_in_groups_by_chance() -> None:
    """Whole groups of those who take part; the others have groups of their own, filled up with strangers."""
    w = world(SHARED, train={"participation": 0.5})
    seen = set()
    for round_ in (1, 2, 3):
        w.session.tally.begin(round_)
        here, draws = set(w.sample().tolist()), w.session.draws
        for k in range(CLIENTS):
            group = draws.find_users_beside(k, 3)
            assert group[0] == k and len(set(group)) == 3 and len(here & set(group)) in (0, 3)
            assert all(set(draws.find_users_beside(j, 3)) == set(group) for j in group)
        seen.add(tuple(draws.find_users_beside(0, 3)))
    assert len(seen) > 1
    assert sorted(k for k in w.session.draws.find_users_beside(0, 5) if k < 0) in ([], [-4, -3, -2, -1])


@pytest.mark.parametrize("channel", [SHARED, GRID, LASTING, {**SHARED, **LASTING, "combining": "zf"}])
def test_a_client_meets_the_same_whoever_is_drawn_beside_it(channel: dict[str, Any]) -> None:
    w = world(channel)
    together = drawn(w, list(range(CLIENTS)))
    for k in (0, 7):
        alone = drawn(w, [k])
        assert all(torch.equal(t[k], alone[name][0]) for name, t in together.items())


@pytest.mark.parametrize("kind", ["rayleigh", "ofdm"])
def test_a_matrix_is_that_of_its_group(kind: str) -> None:
    """With mrc |h_1^H h_2|^2 is what both meet, times the power of their own gain."""
    w = world({"kind": kind, "antennas": 2, "users": 2, "combining": "mrc"})
    for k in range(CLIENTS):
        up = drawn(w, w.session.draws.find_users_beside(k, 2))
        one, other = up["others"] * up["fading"].abs().square()
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize("channel", [SHARED, GRID, LASTING])
def test_the_chunk_changes_no_run(channel: dict[str, Any]) -> None:
    one, four = (
        run(worlds.request("fedcl", channel=channel, clients=6, chunk=chunk, train={"rounds": 2})) for chunk in (1, 4)
    )
    assert one.metrics[-1]["loss"] == pytest.approx(four.metrics[-1]["loss"], abs=1e-9)


def test_a_group_shares_its_part_of_the_band() -> None:
    """With 3 users each has 3 times the band, and takes a third of the time."""
    times = []
    for users in (1, 3):
        w = world({**SHARED, "users": users})
        w.air.up(w.population(), "head.")
        times.append(w.air.totals["up"].airtime_s)
    assert times[0] == pytest.approx(3 * times[1])


def test_rates_in_outage_are_those_beside_others() -> None:
    """In all but `outage` of the transmissions the SINR of zero forcing, Gamma(N - U + 1) / no, carries the rate."""
    air = {"rate": "capacity", "outage": 0.1, "backoff_db": 0.0}
    w = world({**SHARED, "combining": "zf", "snr_db": 10.0}, air=air)
    rate = float(w.air.rates.choose("up", np.array([0]), np.ones(1))[0])
    assert theory.combined_cdf("zf", 2**rate - 1, 0.1, 4, 3) == pytest.approx(0.1, abs=0.01)
    w = world({**SHARED, "snr_db": 10.0}, air=air)
    rate = float(w.air.rates.choose("up", np.array([0]), np.ones(1))[0])
    assert theory.combined_cdf("mmse", 2**rate - 1, 0.1, 4, 3) == pytest.approx(0.1, abs=0.01)


def test_fading_goes_on_in_all_that_a_client_sends() -> None:
    """Features, tests and models meet the h of the round; the downlink has one of its own."""
    w = world(LASTING)
    train, test = (drawn(w, [3], stream=s)["fading"][0, 0] for s in ("train", "test"))
    sent = w.session.draws.on_air("up", "head.0.weight", 3, 4)["fading"][0]
    assert torch.equal(train, test) and torch.equal(train, sent)
    assert not torch.equal(train, drawn(w, [3], "downlink")["fading"][0, 0])
    w.session.tally.begin(2)
    later = drawn(w, [3])["fading"][0, 0]
    assert 0 < float((later - train).abs()) < 1.5


def test_defaults_are_the_runs_that_there_were() -> None:
    config = resolve(RunConfig(channel=linked(kind="rayleigh", antennas=2)))
    values = to_dict(config)
    for name in ("users", "combining", "round_doppler"):
        del values["channel"]["options"][name]
    assert run_hash(config) == run_hash(resolve(from_dict(values)))
    for other in ({"users": 2}, {"users": 2, "combining": "mrc"}, {"coherence": "round", "round_doppler": 0.1}):
        assert run_hash(config) != run_hash(resolve(RunConfig(channel=linked(kind="rayleigh", antennas=2, **other))))


@pytest.mark.parametrize(
    "options",
    [
        {"channel": {**SHARED, "users": 5}},
        {"channel": SHARED, "air": {"parameters": "analog", "access": "superposed"}},
    ],
)
def test_users_who_are_no_whole_groups_or_add_up_are_refused(options: dict[str, Any]) -> None:
    with refuses("channel.users"):
        build_link(worlds.settings("fedavg", "test-conv", CLIENTS, **options))
