"""Clients on one resource, and fading that goes on from round to round, in a run."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from scipy import special

from semcom.channels import theory
from semcom.config import RunConfig, from_dict, run_hash, to_dict
from semcom.engine.air.places import Cell
from semcom.engine.world import World
from semcom.runs.request.resolve import resolve
from semcom.runs.rounds.runner import run
from tests import worlds
from tests.worlds import linked

CLIENTS = 12
SHARED = {"kind": "rayleigh", "antennas": 4, "users": 3}
PAIR = {"kind": "rayleigh", "antennas": 4, "users": 2, "combining": "mrc", "snr_db": "30,0"}
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


@pytest.mark.parametrize(
    "channel",
    [SHARED, GRID, LASTING, {**SHARED, **LASTING, "combining": "zf"}]
    + [{**SHARED, "snr_db": "0:30"}, {**GRID, "snr_db": "0:30"}],
)
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


@pytest.mark.parametrize("channel", [SHARED, GRID, LASTING, {**SHARED, "snr_db": "0:30", "power_control": "weakest"}])
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
    assert theory.combined_cdf("zf", 2**rate - 1, 0.1, 4, [1.0, 1.0]) == pytest.approx(0.1, abs=0.01)
    w = world({**SHARED, "snr_db": 10.0}, air=air)
    rate = float(w.air.rates.choose("up", np.array([0]), np.ones(1))[0])
    assert theory.combined_cdf("mmse", 2**rate - 1, 0.1, 4, [1.0, 1.0]) == pytest.approx(0.1, abs=0.01)


def pair(**channel: Any) -> World:
    """Two clients on one resource, 30 dB apart."""
    return worlds.world(sizes=(2, 2), channel={**PAIR, **channel})


@pytest.mark.parametrize("kind", ["rayleigh", "ofdm"])
def test_the_strong_one_of_a_pair_drowns_the_weak_one(kind: str) -> None:
    """SINR_1 = p_1 |h_1|^2 / (no + p_2 |h_1^H h_2|^2 / |h_1|^2), with |h_1^H h_2|^2 of a world of equal powers."""
    profile = {"profile": "tdl-c"} if kind == "ofdm" else {}
    up, alike = (drawn(pair(kind=kind, snr_db=snr, **profile), [0, 1]) for snr in ("30,0", "0,0"))
    crossed = alike["others"] * alike["fading"].abs().square()
    torch.testing.assert_close(crossed[0], crossed[1])
    for k, (own, other) in enumerate(((1e3, 1.0), (1.0, 1e3))):
        gain = up["fading"][k].abs().square()
        sinr = gain / (1 / own + up["others"][k])
        torch.testing.assert_close(sinr, own * gain / (1 + other * crossed[k] / gain), rtol=1e-5, atol=0)
        assert (sinr > 10).all() if k == 0 else (sinr < 0.5).all()


def test_on_the_downlink_all_come_the_same_way() -> None:
    """What is sent to the strong one reaches the weak one over the path of the weak one."""
    down, alike = (drawn(pair(snr_db=snr), [0, 1], "downlink") for snr in ("30,0", "0,0"))
    assert all(torch.equal(down[name], alike[name]) for name in down)


def test_powers_follow_the_snrs_of_the_round() -> None:
    w = world({**SHARED, "snr_db": "0:30"}, train={"participation": 0.5})
    for round_ in (1, 2):
        w.session.tally.begin(round_)
        draws = w.session.draws
        for k in draws.sample().tolist():
            group = np.array(draws.find_users_beside(k, 3))
            snr_db = draws.snr_db("up", group).double()
            powers = draws.powers_beside("up", k)
            torch.testing.assert_close(powers, 10 ** ((snr_db - snr_db[0]) / 10))


def test_a_stranger_is_as_far_away_as_some_client() -> None:
    """Four clients outside the round, of 0 and of 20 dB, have four strangers beside them, as loud to all of them."""
    levels = [0.0] * 6 + [20.0] * 6
    channel = {**SHARED, "users": 8, "snr_db": ",".join(map(str, levels))}
    draws = world(channel, train={"participation": 8 / 12}).session.draws
    rest, heard = sorted(set(range(CLIENTS)) - set(draws.sample().tolist())), set()
    for k in rest:
        powers = draws.powers_beside("up", k)
        strangers = [j for j, user in enumerate(draws.find_users_beside(k, 8)) if user < 0]
        assert powers is not None and len(rest) == len(strangers) == 4
        heard.add(tuple((levels[k] + 10 * powers[strangers].log10()).round().tolist()))
    assert len(heard) == 1 and set(*heard) <= {0.0, 20.0}


def test_a_test_at_a_given_snr_is_at_that_of_all_users() -> None:
    """Untrained models tested at 3 dB, however far apart the clients are in training."""
    train, found = {"through_link": False}, []
    for snr in ("30,0", "3,3"):
        channel = {**PAIR, "snr_db": snr, "test_snr_db": 3.0}
        summary = run(worlds.request("local", channel=channel, clients=2, train=train)).summary
        found.append(summary["snr_received_db"]["test"])
    assert found[0] == found[1]


def test_lowered_to_the_weakest_all_is_as_with_its_snr() -> None:
    """The strong one's SNR becomes 0 dB, both losses are those of two clients at 0 dB, and its energy a thousandth."""
    control = {**PAIR, "power_control": "weakest"}
    runs = [
        run(worlds.request("fedcl", channel={**channel, "downlink_snr_db": 0.0}, clients=2, train={"rounds": 2}))
        for channel in (control, {**PAIR, "snr_db": "0,0"})
    ]
    assert [m["loss"] for m in runs[0].metrics] == [m["loss"] for m in runs[1].metrics]
    energies = []
    for channel in (control, PAIR):
        w = worlds.world(sizes=(2, 2), channel=channel)
        assert w.session.draws.snr_db("up", np.arange(2)).tolist() == ([0, 0] if channel is control else [30, 0])
        assert w.session.draws.snr_db("down", np.arange(2)).tolist() == [30, 0]
        w.air.up(w.population(), "head.")
        energies.append(w.air.totals["up"].energy_j)
        w.air.down(w.population(), "head.")
    assert energies[0] == pytest.approx(energies[1] * (1e-3 + 1) / 2)
    assert w.air.totals["down"].energy_j > 0


def test_in_a_cell_powers_are_those_of_the_path_losses() -> None:
    """The same transmit power: what is between received powers is between the SNRs; lowering it lowers the energy."""
    worlds_ = [
        world({"kind": "rayleigh", "antennas": 4, "users": 4, "power_control": control}, network={"kind": "cell"})
        for control in ("none", "weakest")
    ]
    draws = worlds_[0].session.draws
    assert isinstance(draws.places, Cell)
    loss_db = draws.places.path_loss_db + draws.places.shadowing_db
    for k in range(CLIENTS):
        group = draws.find_users_beside(k, 4)
        np.testing.assert_allclose(draws.powers_beside("up", k), 10 ** ((loss_db[k] - loss_db[group]) / 10), rtol=1e-9)
        lowest = (loss_db[k] - loss_db[group]).min()
        part = worlds_[1].session.draws.lowering("up", np.array([k]))
        np.testing.assert_allclose(part, 10 ** (lowest / 10), rtol=1e-9)
        assert worlds_[1].session.draws.powers_beside("up", k) is None


@pytest.mark.parametrize(
    "channel",
    [{"kind": "rayleigh"}, {"kind": "rician", "k_factor_db": -100.0}, {"kind": "ofdm", "profile": "rayleigh"}],
)
@pytest.mark.parametrize("combining", ["mrc", "zf", "mmse"])
def test_rates_beside_unlike_powers_are_in_outage_as_often_as_asked(combining: str, channel: dict[str, Any]) -> None:
    """By SINRs in NumPy, h^H (R + no)^-1 h and the like; at 20, 10 and 0 dB on four antennas."""
    snr_db, n, rng = np.array([20.0, 10.0, 0.0]), 100_000, np.random.default_rng(3)
    options = {**SHARED, **channel, "combining": combining, "snr_db": "20,10,0"}
    w = worlds.world(sizes=(2, 2, 2), channel=options, air={"rate": "capacity", "backoff_db": 0.0})
    rates = w.air.rates.choose("up", np.arange(3), np.ones(3))
    h = (rng.standard_normal((n, 4, 3)) + 1j * rng.standard_normal((n, 4, 3))) / 2**0.5 * 10 ** (snr_db / 20)
    for k in range(3):
        own, others = h[:, :, [k]], np.delete(h, k, 2)
        match = (np.abs(own) ** 2).sum((1, 2))
        if combining == "mrc":
            sinr = match / (1 + (np.abs(own.conj().swapaxes(1, 2) @ others) ** 2).sum((1, 2)) / match)
        elif combining == "zf":
            sinr = 1 / np.linalg.inv(h.conj().swapaxes(1, 2) @ h)[:, k, k].real
        else:
            inside = others @ others.conj().swapaxes(1, 2) + np.eye(4)
            sinr = (own.conj().swapaxes(1, 2) @ np.linalg.solve(inside, own)).real[:, 0, 0]
        lost = float((np.log2(1 + sinr) < rates[k]).mean())
        units = n if channel["kind"] == "rayleigh" else 5000  # of a measured quantile
        assert abs(lost - 0.1) < 5 * (0.09 / units + 0.09 / n) ** 0.5


@pytest.mark.parametrize("combining", ["mrc", "mmse"])
def test_uncoded_numbers_beside_unlike_powers_are_unbiased(combining: str) -> None:
    """The mean of an estimate is what was sent, within five standard errors, for the weak one as for the strong one."""
    channel = {**PAIR, "snr_db": "12,0", "coherence": "symbol", "combining": combining}
    w = worlds.world(sizes=(2, 2), channel=channel, air={"parameters": "analog"})
    n = 40_000
    error = w.air.uncoded.draw_error("up", "ones", torch.ones(2, n).double(), np.arange(2), np.full(2, n))
    for mine in error:
        assert abs(float(mine.mean())) < 5 * float(mine.std()) / n**0.5 + 0.005


@pytest.mark.parametrize("users", [1, 2, 4])
def test_the_users_of_a_resource_share_the_power_of_the_base_station(users: int) -> None:
    """Whatever their number, the base station spends its power for as long as it sends, and no more."""
    w = world({"kind": "rayleigh", "antennas": 4, "users": users}, network={"kind": "cell", "base_power_dbm": 30.0})
    draws, ids = w.session.draws, np.arange(CLIENTS)
    w.air.down(w.population(), "head.")
    down = w.air.totals["down"]
    assert down.energy_j == pytest.approx(1.0 * down.airtime_s / CLIENTS)
    alone, full = draws.snr_db("down", ids, broadcast=True), draws.places.find_snr_db("down", ids, 1)
    np.testing.assert_allclose(full - draws.snr_db("down", ids).numpy(), 10 * np.log10(users), atol=1e-4)
    np.testing.assert_allclose(full - alone.numpy(), 10 * np.log10(4), atol=1e-4, err_msg="a fourth from each antenna")


@pytest.mark.parametrize("antennas", [1, 2, 4])
def test_a_broadcast_has_the_diversity_of_the_antennas_and_not_their_gain(antennas: int) -> None:
    """The rate in outage of a space-time code: |h_1|^2 + ... + |h_N|^2, Gamma(N), over N."""
    w = world({"kind": "rayleigh", "antennas": antennas, "snr_db": 10.0}, air={"rate": "capacity", "backoff_db": 0.0})
    quantile, ids, bits = special.gammaincinv(antennas, 0.1), np.arange(2), np.ones(2)
    for broadcast, gain in ((True, quantile / antennas), (False, quantile)):
        rates = w.air.rates.choose("down", ids, bits, broadcast)
        np.testing.assert_allclose(rates, np.log2(1 + 10 * gain), rtol=1e-6)


@pytest.mark.parametrize("channel", [{**SHARED, "combining": "mrc"}, {**GRID, "combining": "mrc"}])
def test_nobody_else_is_sent_to_beside_a_broadcast(channel: dict[str, Any]) -> None:
    """Without noise a model for all arrives as it is; each client's own one meets the others'."""
    w = world({**channel, "snr_db": 200.0}, air={"parameters": "analog"})
    common, own = w.population(shared=("encoder.", "head.")), w.population()
    assert worlds.gap(w.air.down(common, "head."), common) < 1e-6
    assert worlds.gap(w.air.down(own, "head."), own) > 0.01
    prototypes = torch.randn(1, 8, dtype=torch.float64).expand(CLIENTS, -1)
    ids, floats = np.arange(CLIENTS), np.full(CLIENTS, 8)
    assert (w.air.send("down", "x", prototypes, ids, floats, broadcast=True) - prototypes).abs().max() < 1e-6


@pytest.mark.parametrize("more", [{}, LASTING, SHARED, {**SHARED, **LASTING}])
def test_a_broadcast_is_lost_as_often_as_asked(more: dict[str, Any]) -> None:
    """Over fading that goes on, and beside users, too: a broadcast meets the single client's own h."""
    w = world({"kind": "rayleigh", **more}, air={"rate": "capacity", "repeat": False})
    lost = []
    for round_ in range(1, 201):
        w.session.tally.begin(round_)
        lost += [*w.air.rates.draw_losses("down", np.arange(CLIENTS), np.full(CLIENTS, 1e4))]
    # Fading of neighbouring rounds is correlated: as many independent draws as 200 rounds of 0.1 turns have.
    independent = len(lost) / (10 if "round_doppler" in more else 1)
    assert abs(np.mean(lost) - 0.1) < 5 * (0.09 / independent) ** 0.5


@pytest.mark.parametrize("channel", [LASTING, {**SHARED, **LASTING}])
def test_where_h_lasts_a_repetition_meets_it_again(channel: dict[str, Any]) -> None:
    """A block gets through at once, or at the rate that the round's h carries, however often it is repeated."""
    w = world({**channel, "snr_db": 10.0}, air={"rate": "capacity", "outage": 0.3, "backoff_db": 0.0})
    ids, bits = np.arange(CLIENTS), np.full(CLIENTS, 1e4)
    rate, seen = w.air.rates.choose("up", ids, bits), []
    for round_ in range(1, 41):
        w.session.tally.begin(round_)
        seen.append(w.air.rates.measure("up", ids, bits))
        if "users" not in channel:
            h = [w.session.draws.on_air("up", "any", k, 2)["fading"].item() for k in range(CLIENTS)]
            np.testing.assert_allclose(seen[-1], np.minimum(rate, np.log2(1 + 10 * np.abs(h) ** 2)), rtol=1e-5)
    slow = np.array(seen) < rate * (1 - 1e-6)
    assert 0.15 < slow.mean() < 0.45
    assert np.array_equal(w.air.rates.measure("up", ids, bits), seen[-1])


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
    for name in ("users", "combining", "power_control", "round_doppler"):
        del values["channel"]["options"][name]
    assert run_hash(config) == run_hash(resolve(from_dict(values)))
    others: list[dict[str, Any]] = [{"users": 2}, {"users": 2, "combining": "mrc"}]
    others += [{"users": 2, "power_control": "weakest", "snr_db": "0:9"}, {"coherence": "round", "round_doppler": 0.1}]
    for other in others:
        assert run_hash(config) != run_hash(resolve(RunConfig(channel=linked(kind="rayleigh", antennas=2, **other))))
