"""What is sent: counted by formula, and as noisy as the channel says."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from semcom.engine.air.access import Superposed
from semcom.engine.store.population import Population, average
from semcom.engine.world import World
from semcom.models.registry import ENCODERS
from tests import worlds
from tests.engine.visits import task
from tests.methods import arms
from tests.refusals import refuses
from tests.samples import has_mean
from tests.worlds import mapped

BOTH = ("encoder.", "head.")
CONV = 3 * 16 + 4 * 3 + 4 * 3 * 16
"""test-conv: 3 filters of 1x4x4, BatchNorm's two parameters and two buffers, 4 filters of 3x4x4."""
HEAD = 3 * 4 + 3
AIR = {"bits_per_float": 16, "bits_per_use": 4.0, "bandwidth_hz": 1000.0, "symbol_energy": 0.5}
COUNTED = {"local": {}, "fedcl": {name: AIR[name] for name in ("bits_per_use", "bandwidth_hz", "symbol_energy")}}
"""Method -> what has an effect on its counts, where that is not all."""
UNCODED = {"parameters": "analog", "bandwidth_hz": AIR["bandwidth_hz"], "symbol_energy": AIR["symbol_energy"]}
SIZES, FOUR = (7, 5, 3), (7, 3, 1, 5)


def rounds(method: str, n: int = 2, **options: Any) -> World:
    w = worlds.world(method, SIZES, **{"air": COUNTED.get(method, AIR), **options})
    w.air.client_rounds = 0  # the helper has begun a round already
    arms.rounds(w, n=n)
    return w


def traffic(floats: float, bits: float, uses: float, clients: int, once: bool = False) -> dict[str, float]:
    """Of one client in one round, by the definitions of `AirConfig`; `once`: of one transmission for all of them."""
    share = AIR["bandwidth_hz"] / (1 if once else clients)
    each = uses / clients if once else uses
    return {
        "floats": floats,
        "bits": bits,
        "uses": each,
        "airtime_s": uses / share,
        "energy_j": each * AIR["symbol_energy"],
    }


def error_free(floats: float, clients: int = 3, once: bool = False) -> dict[str, float]:
    return traffic(floats, 16 * floats, 4 * floats, clients, once)


def test_fedavg_sends_parameters_and_buffers_both_ways() -> None:
    sent = rounds("fedavg").air.per_client_round()
    broadcast = error_free(CONV + HEAD, once=True)
    assert sent == {"up": pytest.approx(error_free(CONV + HEAD)), "down": pytest.approx(broadcast)}


@pytest.mark.parametrize("clients", [2, 8])
def test_a_broadcast_takes_as_long_for_any_number_of_clients(clients: int) -> None:
    w = worlds.world("fedavg", (4,) * clients, air=AIR)
    w.air.down(w.population(shared=BOTH), BOTH)
    uses = 4 * (CONV + HEAD)
    assert (w.air.totals["down"].uses, w.air.totals["down"].airtime_s) == (uses, clients * uses / 1000)


def test_what_clients_own_goes_to_each_of_them() -> None:
    w = worlds.world("fedavg", SIZES, air=AIR)
    w.air.down(w.population(shared="encoder."), BOTH)
    assert w.air.totals["down"].uses == 4 * (CONV + 3 * HEAD)
    assert w.air.totals["down"].airtime_s == pytest.approx(3 * 4 * CONV / 1000 + 3 * 4 * HEAD / (1000 / 3))


def test_uncoded_exchange_takes_half_a_use_per_number() -> None:
    sent = rounds("fedavg", air=UNCODED).air.per_client_round()
    expected = traffic(CONV + HEAD, 0, math.ceil((CONV + HEAD) / 2), 3)
    assert (CONV + HEAD) % 2  # the odd number fills a symbol of its own
    once = traffic(CONV + HEAD, 0, math.ceil((CONV + HEAD) / 2), 3, once=True)
    assert sent == {"up": pytest.approx(expected), "down": pytest.approx(once)}


def test_only_participants_count() -> None:
    w = rounds("fedavg", n=4, train={"participation": 0.67})
    assert w.air.client_rounds == 8
    assert w.air.per_client_round()["up"] == pytest.approx(error_free(CONV + HEAD, clients=2))


def test_fedproto_sends_prototypes() -> None:
    w = rounds("fedproto", 3)
    owned = w.session.draws.federation.owned
    assert w.air.per_client_round()["up"] == pytest.approx(error_free(4 * owned.sum() / 3))
    existing = owned.any(0).sum()
    assert w.air.per_client_round()["down"] == pytest.approx(
        error_free(4 * existing * 2 / 3, once=True)
    )  # none at first


@pytest.mark.parametrize(("chunk", "participation"), [(1, 1.0), (2, 0.67), (3, 0.67)])
def test_fedcl_sends_features_and_labels_up_and_gradients_down(chunk: int, participation: float) -> None:
    """d numbers and log2 C bits per visited sample up, d numbers down; whatever the chunk."""
    w = rounds("fedcl", chunk=chunk, train={"local_epochs": (1, 2, 3), "participation": participation})
    samples, clients = 0, 0
    for round_ in (1, 2):
        w.session.draws.round = round_
        ids = w.sample()
        clients = len(ids)
        samples += sum(SIZES[k] * (1, 2, 3)[k] for k in ids)
    mean = samples / (2 * clients)
    labels = mean * math.log2(3)
    up = traffic(4 * mean, labels, 2 * mean + labels / 4, clients)
    assert w.air.per_client_round()["up"] == pytest.approx(up)
    assert w.air.per_client_round()["down"] == pytest.approx(traffic(4 * mean, 0, 2 * mean, clients))
    assert w.session.tally.visited == samples


def test_without_a_channel_numbers_are_counted_and_nothing_else() -> None:
    """Floats and bits of what a method exchanges, and no use, no second and no joule for them."""
    nowhere: dict[str, Any] = {"channel": {"kind": "none"}}
    expected = error_free(CONV + HEAD) | {"uses": 0.0, "airtime_s": 0.0, "energy_j": 0.0}
    assert rounds("fedavg", air={"bits_per_float": 16}, **nowhere).air.per_client_round() == {
        "up": pytest.approx(expected),
        "down": pytest.approx(expected),
    }
    split = rounds("fedcl", air={}, **nowhere).air.per_client_round()
    assert split["up"] == pytest.approx(traffic(4 * 5, 5 * math.log2(3), 0.0, 3))
    assert split["down"] == pytest.approx(traffic(4 * 5, 0, 0.0, 3))


def test_a_pass_more_goes_up_only() -> None:
    w = worlds.world("fedcl", SIZES, air=COUNTED["fedcl"])
    w.session.tally.uplink(np.array([0, 2]))
    labels = 10 * math.log2(3)
    assert w.air.totals["up"].floats == 40 and w.air.totals["up"].bits == pytest.approx(labels)
    assert w.air.totals["up"].uses == pytest.approx(20 + labels / 4) and w.air.totals["down"].uses == 0


def test_counters_come_back() -> None:
    w = rounds("fedcl")
    fresh = worlds.world("fedcl", SIZES, air=COUNTED["fedcl"])
    fresh.session.resume(w.session.counters())
    assert fresh.session.counters() == w.session.counters()
    assert fresh.session.tally.snr_received_db()["train_up"] == pytest.approx(10, abs=2.5)
    assert fresh.session.tally.measured == w.session.tally.measured


def test_a_link_that_sends_bits_reports_its_errors() -> None:
    """Of both ways of training; the analog ones report none."""
    w = rounds("fedcl", channel={"kind": "digital", "snr_db": 18.0, "options": {"bits": 3.0}})
    w.session.tally.settle()
    rates = w.session.tally.error_rates()
    assert rates.keys() == {"train_up", "train_down"}
    for way, (bad, bits, lost, blocks) in ((name, w.session.tally.measured[name][2:]) for name in rates):
        assert blocks == w.session.tally.visited and bits == 12 * blocks
        assert rates[way] == {"bits": bad / bits, "blocks": lost / blocks} and 0 < bad / bits < lost / blocks < 1
    assert rounds("fedcl").session.tally.error_rates() == {}


# -- uncoded exchange ------------------------------------------------------------------------------------------------

BIG = 64, 501
"""Clients, and numbers of a tensor (odd)."""
ALL, IDS = np.full(BIG[0], BIG[1]), np.arange(BIG[0])


def analog(kind: str = "awgn", **channel: Any) -> World:
    config = {"kind": kind, **channel}
    return worlds.world("fedavg", sizes=(1,) * BIG[0], air={"parameters": "analog"}, channel=config)


def values(scale: Tensor | float = 3.0) -> Tensor:
    return scale * torch.randn(*BIG, generator=torch.Generator().manual_seed(7), dtype=torch.float64)


@pytest.mark.parametrize("direction", ["up", "down"])
@pytest.mark.parametrize("snr", [0.0, 10.0])
def test_the_noise_is_that_of_the_snr(direction: Any, snr: float) -> None:
    """Noise power over the client's own mean square: 10^(-snr / 10), every client, whatever its scale."""
    scale = torch.logspace(-6, 6, BIG[0], dtype=torch.float64)[:, None]
    sent = values(scale)
    channel: dict[str, Any] = {"snr_db": snr} if direction == "up" else {"snr_db": 55.0, "downlink_snr_db": snr}
    w = analog(**channel)
    got = w.air.send(direction, "x", sent, IDS, ALL)
    assert got.shape == sent.shape
    relative = (got - sent).square() / sent.square().mean(1, keepdim=True)
    assert has_mean(relative, 10 ** (-snr / 10))
    assert has_mean((got - sent) / scale, 0.0)
    assert has_mean(relative[:, -1], 10 ** (-snr / 10))  # the odd one out too
    assert w.air.totals[direction].floats == BIG[0] * BIG[1]


def test_each_client_has_its_own_snr_and_noise() -> None:
    sent, low = values(), BIG[0] // 2
    w = analog(snr_db=",".join(["0"] * low + ["30"] * low))
    noise = w.air.send("up", "x", sent, IDS, ALL) - sent
    power = noise.square() / sent.square().mean(1, keepdim=True)
    assert has_mean(power[:low], 1.0) and has_mean(power[low:], 1e-3)
    correlation = torch.corrcoef(noise) - torch.eye(BIG[0], dtype=torch.float64)
    assert correlation.abs().max() < 6 / BIG[1] ** 0.5


@pytest.mark.parametrize("channel", [{}, {"kind": "ofdm", "csi": "ls"}])
def test_what_is_drawn_is_keyed_by_direction_name_round_and_client(channel: dict[str, Any]) -> None:
    sent, w = values(), analog(**channel)

    def noise(direction: Any, name: str, ids: list[int]) -> Tensor:
        return w.air.send(direction, name, sent[ids], np.array(ids), np.full(len(ids), BIG[1])) - sent[ids]

    one = noise("up", "x", [3, 5])
    torch.testing.assert_close(one[1], noise("up", "x", [5])[0], rtol=1e-9, atol=1e-12)  # neighbours do not matter
    others = [noise("down", "x", [3, 5]), noise("up", "y", [3, 5])]
    w.session.tally.begin(2)
    assert not any(torch.isclose(one, other).any() for other in (*others, noise("up", "x", [3, 5])))


@pytest.mark.parametrize("direction", ["up", "down"])
def test_two_models_of_a_round_meet_noise_of_their_own(direction: Any) -> None:
    w = worlds.world(air={"parameters": "analog"})
    pop = w.population()

    def noise(name: str) -> dict[str, Tensor]:
        got = getattr(w.air, direction)(pop, "head.", name)
        return {n: t - pop.named()[n] for n, t in got.named("head.").items()}

    one, again, other = noise(""), noise(""), noise("personal.")
    for n, t in one.items():
        assert torch.equal(t, again[n]) and not (t == other[n]).any()
    assert w.air.totals[direction].floats == 3 * pop.numbers("head.").sum()


FADED: dict[str, dict[str, Any]] = {
    **{coherence: {"kind": "rayleigh", "coherence": coherence} for coherence in ("symbol", "sample", "batch", "round")},
    "rician": {"kind": "rician", "coherence": "symbol"},
    "flat": {"kind": "ofdm", "profile": "rayleigh"},
    "tdl": {"kind": "ofdm"},
    "ls": {"kind": "ofdm", "csi": "ls", "speed_mps": 0.0},
}


@pytest.mark.parametrize("channel", FADED.values(), ids=FADED)
@pytest.mark.parametrize("direction", ["up", "down"])
def test_faded_exchange_is_equalised(channel: dict[str, Any], direction: Any) -> None:
    """Zero forcing: without noise what was sent, odd number of numbers and all."""
    sent = values(torch.logspace(-6, 6, BIG[0], dtype=torch.float64)[:, None])
    got = analog(equaliser="zf", snr_db="inf", **channel).air.send(direction, "x", sent, IDS, ALL)
    torch.testing.assert_close(got, sent, rtol=1e-9, atol=0.0)


@pytest.mark.parametrize("kind", ["rician", "ofdm"])
def test_faded_exchange_is_as_noisy_as_it_should_be_without_equaliser(kind: str) -> None:
    """The error is n + (h - 1) x, of mean square no + 2 as E|h|^2 = 1 and E h = 0; a unit is a client."""
    own: dict[str, Any] = {"coherence": "symbol"} if kind == "rician" else {}
    sent = values()
    got = analog(kind, equaliser="none", snr_db=0.0, **own).air.send("up", "x", sent, IDS, ALL)
    assert has_mean((got - sent).square().mean(1) / sent.square().mean(1), 3.0)


@pytest.mark.parametrize("coherence", ["symbol", "sample", "batch", "round"])
def test_noise_is_enlarged_where_a_fade_is_deep(coherence: str) -> None:
    """After zero forcing |n|^2 no / |h|^2, which is below no for half of the symbols."""
    sent = values()
    noisy = analog("rayleigh", equaliser="zf", coherence=coherence, snr_db=20.0)
    error = noisy.air.send("up", "x", sent, IDS, ALL) - sent
    power = error[:, :500].square().view(BIG[0], 250, 2).sum(2) / (2 * sent.square().mean(1, keepdim=True))
    below = (power < 0.01).double()
    if coherence == "symbol":
        assert abs(below.mean() - 0.5) < 5 * 0.5 / below.numel() ** 0.5
    else:  # one gain for all of a client's symbols: few of them are typical
        assert below.mean(1).std() > 0.2 and abs(below.mean() - 0.5) < 5 * 0.5 / BIG[0] ** 0.5


def test_what_is_not_sent_takes_no_power() -> None:
    """A client that sends 125 of 501 numbers sends them at unit power: their noise is that of the SNR."""
    sent, w = values(), analog(snr_db=10.0)
    sent[:, 125:] = 0.0
    got = w.air.send("up", "x", sent, np.arange(BIG[0]), np.full(BIG[0], 125))
    relative = (got - sent)[:, :125].square() / sent[:, :125].square().mean(1, keepdim=True)
    assert has_mean(relative, 0.1)
    assert not w.air.send("up", "x", 0 * sent, np.arange(BIG[0]), np.zeros(BIG[0])).any()


@pytest.mark.parametrize("kind", ["awgn", "rayleigh", "ideal"])
def test_zeros_stay_zeros(kind: str) -> None:
    sent = values()
    sent[::2] = 0.0
    got = analog(kind).air.send("up", "x", sent, IDS, ALL)
    assert not got[::2].any() and got.isfinite().all()
    assert ((got - sent)[1::2].abs().max() < 1e-12) == (kind == "ideal")


@pytest.mark.parametrize("shape", [(1,), (2,), (3, 1, 1), (2, 2)])
def test_small_tensors(shape: tuple[int, ...]) -> None:
    sent = torch.arange(1.0, 1 + BIG[0] * math.prod(shape), dtype=torch.float64).view(BIG[0], *shape)
    counts = np.full(BIG[0], math.prod(shape))
    for kind in ("awgn", "rayleigh"):
        got = analog(kind, snr_db=60.0).air.send("up", "x", sent, np.arange(BIG[0]), counts)
        assert got.shape == sent.shape and got.dtype == sent.dtype
    got = analog(snr_db=60.0).air.send("up", "x", sent, np.arange(BIG[0]), counts)
    assert 0 < ((got - sent) / sent).abs().max() < 0.02


def models(w: World) -> Population:
    generator = torch.Generator().manual_seed(0)
    return mapped(w.population(), lambda name, t: t + torch.rand(t.shape, generator=generator, dtype=t.dtype) + 0.5)


@pytest.mark.parametrize("direction", ["up", "down"])
def test_models_over_the_air(direction: str) -> None:
    """Everything of the part is noisy but running variances, which must stay positive; nothing else changes."""
    w = worlds.world("fedavg", SIZES, air={"parameters": "analog"}, channel={"snr_db": 20.0})
    pop = models(w)
    before = mapped(pop, lambda name, t: t.clone())
    got = getattr(w.air, direction)(pop, ("encoder.",))
    for name, t in got.cohorts[0].tensors.items():
        exact = name.startswith("head.") or name.endswith("running_var")
        assert torch.equal(t, pop.cohorts[0].tensors[name]) == exact, name
    assert worlds.gap(pop, before) == 0 and w.air.totals["up" if direction == "up" else "down"].floats == 3 * CONV


def test_a_shared_model_arrives_differently_at_every_client() -> None:
    w = worlds.world("fedavg", SIZES, air={"parameters": "analog"})
    got = w.air.down(w.population(shared=BOTH), BOTH)
    weights = got.cohorts[0].tensors["encoder.0.weight"]
    assert not got.cohorts[0].shared and len({float(x.sum()) for x in weights}) == 3


def test_error_free_models_are_the_same_numbers() -> None:
    w = worlds.world("fedavg", SIZES)
    pop = w.population(shared=BOTH)
    assert worlds.gap(w.air.down(pop, BOTH), pop.spread()) == 0
    assert worlds.gap(w.air.up(pop.spread(), BOTH), pop.spread()) == 0


# -- what is exchanged uncoded ---------------------------------------------------------------------------------------


def moved(pop: Population, by: float) -> Population:
    return mapped(pop, lambda name, t: t + by if t.is_floating_point() else t)


def test_an_update_alone_meets_noise() -> None:
    """Models that have not moved arrive as the base station sent them, whatever the downlink did to them."""
    w = worlds.world("fedavg", SIZES, air={"parameters": "analog"}, channel={"snr_db": -10.0})
    sent = models(w)
    received = w.air.down(sent, BOTH)
    assert worlds.gap(received, sent) > 0.1
    assert worlds.gap(w.air.up(received, BOTH, since=received), sent) < 1e-12
    arrived = w.air.up(moved(received, 1e-3), BOTH, since=received)
    assert 0 < worlds.gap(arrived, moved(sent, 1e-3)) < 0.02  # noise of 10 times the power of an update of 1e-3


@pytest.mark.parametrize("kind", ["rayleigh", "rician", "ofdm"])
def test_estimates_over_fading_are_unbiased(kind: str) -> None:
    """Per client: the part of the sent numbers in the received ones is 1 on average."""
    sent, w = values(), analog(kind, snr_db=5.0)
    parts = []
    for round_ in (1, 2, 3):
        w.session.tally.begin(round_)
        got = w.air.send("up", "x", sent, IDS, ALL)
        parts.append((got * sent).sum(1) / sent.square().sum(1))
    each = torch.cat(parts)
    assert (each.mean() - 1).abs() < 5 * each.std() / len(each) ** 0.5 + 0.005 * (kind == "ofdm")  # E[a] is drawn
    assert each.std() > 0.05


SUPERPOSED = {"parameters": "analog", "access": "superposed"}


def one_round(method: str, air: dict[str, Any], snr: float | str, **options: Any) -> tuple[World, Any]:
    w = worlds.world(method, SIZES, air=air, channel={"snr_db": snr}, **options)
    return w, arms.rounds(w)[-1]


@pytest.mark.parametrize("method", ["fedavg", "fedrep", "lg_fedavg", "fedpac", "fedcosr"])
def test_without_noise_all_at_once_is_one_by_one_and_error_free(method: str) -> None:
    states = [one_round(method, air, "inf")[1] for air in ({}, {"parameters": "analog"}, SUPERPOSED)]
    for state in states[1:]:
        assert worlds.gap(state.model, states[0].model) == 0


def test_all_at_once_takes_the_uses_of_one() -> None:
    w, _ = one_round("fedavg", {**SUPERPOSED, "bandwidth_hz": 1000.0}, 10.0)
    up = w.air.totals["up"]
    assert up.floats == 3 * (CONV + HEAD)
    assert up.uses == math.ceil((CONV + HEAD) / 2)
    assert up.airtime_s == pytest.approx(3 * up.uses / 1000)  # a client's own is a third of it


def test_all_at_once_each_client_spends_what_the_common_alpha_needs() -> None:
    """Equal weighted updates at 20, 0 and 10 dB need 0.01, 1 and 0.1 of a client's power."""
    w = worlds.world("fedavg", (4, 4, 4), air=SUPERPOSED, channel={"snr_db": "20,0,10"})
    start = models(w)
    w.air.average(moved(start, 1.0), BOTH, torch.full((3,), 1 / 3, dtype=torch.float64), since=start)
    up = w.air.counters()["up"]
    assert up["energy_j"] == pytest.approx(1.11 * up["uses"], rel=1e-9)


def test_all_at_once_a_power_is_spread_over_the_whole_band_from_a_part_of_any_width() -> None:
    """In a cell an SNR is that of a client's own part: over the whole band it is lower by the part's share."""
    shares, network = (0.5, 0.375, 0.125), {"kind": "cell"}
    channel = {"kind": "ofdm", "profile": "rayleigh", "subcarriers": 24, "shares": shares}
    w = worlds.world("fedavg", (4, 4, 4), air=SUPERPOSED, channel=channel, network=network)
    places, ids = w.session.draws.places, np.arange(3)
    whole = places.find_snr_db("up", ids, 1) + 10 * np.log10(shares)
    seen = w.air.access._find_snr_db(ids, w.air.find_shares(ids))
    np.testing.assert_allclose(seen, whole, rtol=1e-6)
    loss = places.receive_dbm(0.0, ids, 1)
    assert np.ptp(whole - loss) < 1e-9, "power less the noise of the whole band"


def test_several_antennas_hear_no_sum_of_all() -> None:
    with refuses("channel.antennas", 4, "superposed"):
        worlds.world("fedavg", (4, 4), air=SUPERPOSED, channel={"kind": "rayleigh", "antennas": 4})


def test_a_broadcast_fills_slots_of_the_whole_band() -> None:
    """2,400 subcarriers carry 100 numbers to all in one slot, of which a client alone has a twentieth of the band."""
    channel = {"kind": "ofdm", "profile": "rayleigh", "subcarriers": 2400}
    w = worlds.world("fedavg", (4,) * 20, air={"parameters": "analog"}, channel=channel)
    ids, floats = np.arange(20), np.full(20, 100)
    w.air.send("down", "x", torch.randn(1, 100).double().expand(20, -1), ids, floats, broadcast=True)
    once = w.air.totals["down"].uses
    assert once == w.air.link.broadcast().cost(floats[:1], ids[:1]).uses[0] > 10 * w.air.link.cost(floats, ids).uses[0]


@pytest.mark.parametrize("kind", ["awgn", "rayleigh"])
def test_the_mean_over_the_air_is_unbiased_and_as_noisy_as_it_is_said(kind: str) -> None:
    """Over AWGN the error of a mean of updates is that of the client whose weighted update is the loudest."""
    w = analog(kind, snr_db=0.0)
    w.air.access = Superposed(Superposed.Options(), w.air)
    pop = w.population()
    errors = []
    for round_ in range(1, 40):
        w.session.tally.begin(round_)
        p = w.weights(pop.ids)
        mean = w.air.average(moved(pop, 1.0), "head.", p, since=pop)
        errors.append(mean["head.0.weight"] - average(moved(pop, 1.0), "head.", p)["head.0.weight"])
    errors = torch.stack(errors)
    assert has_mean(errors.flatten(1).mean(1), 0.0)  # a fade lasts for a tensor
    if kind == "awgn":  # 1/64 each, one number a symbol's half: no = 1 for two numbers of 1/64
        assert has_mean(errors.square(), (1 / 64) ** 2)


def test_what_is_cut_off_is_reported() -> None:
    w = worlds.world("fedavg", (4,) * 40, air=SUPERPOSED, channel={"kind": "rayleigh", "coherence": "symbol"})
    arms.rounds(w)
    cut = w.session.tally.log["cut-off"]
    assert cut.shape == (40,) and float(cut.mean()) == pytest.approx(1 - math.exp(-0.1), abs=0.02)


def test_what_is_cut_off_counts_by_its_numbers() -> None:
    """A fade lasts for a tensor, so the part that a client omits is that of some tensors' symbols."""
    w = worlds.world("fedavg", (4,) * 40, air=SUPERPOSED, channel={"kind": "rayleigh"})
    arms.rounds(w)
    sent = {n: t for n, t in w.population().cohorts[0].tensors.items() if not n.endswith("running_var")}
    symbols = np.array([math.ceil(t[0].numel() / 2) for t in sent.values()])
    some = np.array(list(itertools.product((0, 1), repeat=len(symbols)))) @ symbols / symbols.sum()
    cut = w.session.tally.log["cut-off"].cpu().numpy()
    assert np.abs(cut[:, None] - some).min(1).max() < 1e-6 and len(set(cut.tolist())) > 1


@ENCODERS.register("test-indexed")
def indexed(channels: int, features: int) -> nn.Module:
    """Looks its bias up by a table of whole numbers, as Swin does."""

    class Indexed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear, self.bias = nn.Linear(channels, features), nn.Parameter(torch.zeros(features))
            self.register_buffer("index", torch.arange(features).flip(0))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.linear(x.mean((2, 3))) + self.bias[self.index]

    return Indexed()


@pytest.mark.parametrize("access", ["orthogonal", "superposed"])
def test_whole_numbers_arrive_as_they_are(access: str) -> None:
    air = {"parameters": "analog", "access": access}
    w = worlds.world("fedavg", SIZES, encoder="test-indexed", air=air, channel={"snr_db": 0.0})
    state = arms.rounds(w)[-1]
    (table,) = (t for n, t in state.model.named().items() if n == "encoder.index")
    assert table.dtype == torch.int64 and torch.equal(table[0], table[0].sort(descending=True).values)


def test_mini_batches_and_models_take_whole_slots() -> None:
    """10 subcarriers for 4 clients: 2 each. A mini-batch of 2 samples x 2 symbols takes a slot of 14 x 15/14 x 10/4."""
    channel = {"kind": "ofdm", "subcarriers": 10}
    w = worlds.world("test-split", FOUR, channel=channel, air={"parameters": "analog", "symbol_energy": 2.0})
    w.fit(w.population(), task)
    steps, samples = 4 + 2 + 1 + 3, sum(FOUR)
    down, up = w.air.totals["down"], w.air.totals["up"]
    assert down.uses == pytest.approx(steps * 15 * 2.5) and down.airtime_s == pytest.approx(steps * 1e-3)
    assert down.energy_j == pytest.approx(2.0 * (2 * samples + steps * 4) * 15 / 14)
    labels = samples * np.log2(3) / 2.0 * 15 / 12
    assert up.uses - down.uses == pytest.approx(labels)
    assert up.airtime_s - down.airtime_s == pytest.approx(labels * 4 / (10 * 15e3))
    assert up.energy_j - down.energy_j == pytest.approx(2.0 * labels)
    w.air.send("up", "x", torch.ones(2, 50, dtype=torch.float64), np.array([0, 2]), np.array([50, 48]))
    assert up.uses - down.uses - labels == pytest.approx((2 + 1) * 15 * 2.5)  # 25 and 24 symbols, 24 a slot


def test_a_small_share_of_the_band_takes_longer() -> None:
    """Features of one mini-batch, 4 symbols over 12 x width: a slot for each, whatever it holds, of 1 ms."""
    channel = {"kind": "ofdm", "csi": "ls", "equaliser": "zf", "shares": (0.4, 0.3, 0.2, 0.1), "subcarriers": 10}
    w = worlds.world("test-split", FOUR, channel=channel)
    w.air.features(np.array([0, 3]), [[2], [2]], 4, math.log2(3), back=False)
    labels = 2 * np.log2(3) / 2.0 * 15 / 12
    assert w.air.totals["up"].uses == pytest.approx(15 * (4 + 1) + 2 * labels)
    assert w.air.totals["up"].airtime_s == pytest.approx(2e-3 + labels / 6e4 + labels / 1.5e4)
