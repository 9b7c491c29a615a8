"""Rates that follow the SNR: in closed form, for clients that differ, and below the end of 5G's table."""

from __future__ import annotations

import itertools
import logging
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy import special

import semcom
from semcom.channels import LINKS, Link
from semcom.engine.air.rates import count_sends
from semcom.engine.world import World
from tests import worlds
from tests.engine.air.test_air import BOTH, models, moved
from tests.methods import arms
from tests.refusals import refuses
from tests.samples import has_mean

SLOWEST = 2 * 120 / 1024
"""Bits per use of 5G's slowest scheme, QPSK at rate 120/1024."""


def world(n: int = 4, air: dict[str, Any] | None = None, **channel: Any) -> World:
    air = {"rate": "capacity", "backoff_db": 0.0, **(air or {})}
    return worlds.world("fedavg", (4,) * n, air=air, channel={"kind": "awgn", "snr_db": 10.0, **channel})


def rate(n: int = 4, air: dict[str, Any] | None = None, **channel: Any) -> float:
    w = world(n, air, **channel)
    w.air.up(w.population(), BOTH)
    return w.air.totals["up"].bits / w.air.totals["up"].uses


QPSK = 2 * 449 / 1024
"""Bits per use of 5G's fastest scheme below 1 bit."""
CLOSED: list[tuple[dict[str, Any], dict[str, Any], float]] = [
    ({}, {}, math.log2(11)),
    ({"backoff_db": 3.0}, {}, math.log2(1 + 10**0.7)),
    # The |h|^2 that all but the lost have is -ln(1 - outage); what is lost is sent again.
    *(({"outage": p}, {"kind": "rayleigh"}, math.log2(1 - 10 * math.log1p(-p)) * (1 - p)) for p in (0.001, 0.1, 0.2)),
    # At 10 dB less 3, 2.59 bit: 16-QAM at 616/1024 has 2.41, at 658/1024 2.57.
    ({"rate": "mcs", "backoff_db": 3.0}, {}, 4 * 658 / 1024),
    # 1.038 bit in outage 0.1: the scheme below is lost less often, where |h|^2 < (2^r - 1) / 10.
    ({"rate": "mcs"}, {"kind": "rayleigh"}, QPSK * math.exp(-(2**QPSK - 1) / 10)),
]


@pytest.mark.parametrize(("air", "channel", "expected"), CLOSED)
def test_rates_at_10_db_in_closed_form(air: dict[str, Any], channel: dict[str, Any], expected: float) -> None:
    assert rate(air=air, **channel) == pytest.approx(expected, rel=1e-6)


def test_each_client_has_the_rate_of_its_own_snr() -> None:
    assert 1 / rate(2, snr_db="0,10") == pytest.approx((1 / math.log2(2) + 1 / math.log2(11)) / 2)


@pytest.mark.parametrize("snr_db", [-7.0, -8.0, -20.0, -40.0])
def test_below_the_slowest_scheme_repetition_makes_the_rate_that_the_channel_has(snr_db: float, caplog: Any) -> None:
    """R0 / limit repetitions, each of R0; told once."""
    limit = math.log2(1 + 10 ** (snr_db / 10))
    assert rate(air={"rate": "mcs"}, snr_db=snr_db) == pytest.approx(min(limit, SLOWEST))
    said = [r.getMessage() for r in caplog.records if r.levelno >= logging.WARNING and "slowest" in r.getMessage()]
    assert len(said) == (limit < SLOWEST)
    if said:
        assert f"{SLOWEST / limit:.1f} times" in said[0]


@pytest.mark.parametrize(("method", "lines"), [("local", 0), ("fedavg", 1)])
def test_nothing_is_said_of_a_rate_at_which_nothing_is_sent(method: str, lines: int, caplog: Any) -> None:
    semcom.run(worlds.request(method, channel={"snr_db": -20.0}, train={"rounds": 2}))
    assert [record.name for record in caplog.records if "bit per use" in record.getMessage()] == [
        "semcom.engine.air.rates"
    ] * lines


def test_a_broadcast_takes_as_long_as_its_weakest_client_needs() -> None:
    """A client at -20 dB makes it 99 times as long as one at 10 dB, and not 11 times, as 5G's slowest scheme would."""
    w = world(2, {"rate": "mcs"}, snr_db="10,-20")
    w.air.down(w.population(shared=BOTH), BOTH)
    down = w.air.totals["down"]
    assert down.uses == pytest.approx(down.bits / 2 / math.log2(1.01))


def mean_of_the_last(outages: tuple[float, ...]) -> float:
    """The mean of the largest of geometric numbers, by inclusion and exclusion."""
    some = [each for n in range(1, len(outages) + 1) for each in itertools.combinations(outages, n)]
    return sum((-1) ** (len(each) + 1) / (1 - math.prod(each)) for each in some)


SPREAD = [(0.0,), (0.0, 0.3), (0.1,) * 5, (0.5, 0.1, 1e-12), (0.99, 0.2, 0.95), (0.9995, 0.999, 0.1), (1 - 1e-9,) * 2]


@pytest.mark.parametrize("outages", SPREAD)
def test_a_block_is_sent_until_the_last_has_it(outages: tuple[float, ...]) -> None:
    assert count_sends(np.array(outages)) == pytest.approx(mean_of_the_last(outages), rel=1e-6)


@pytest.mark.parametrize("snrs_db", ["10,10,10,10", "10,13,16,19"])
def test_a_broadcast_over_fading_is_repeated_until_all_have_it(snrs_db: str) -> None:
    """At the rate that the weakest loses one time in ten, and a client of s times its SNR 1 - 0.9^(1 / s) times."""
    w = world(4, kind="rayleigh", snr_db=snrs_db)
    w.air.down(w.population(shared=BOTH), BOTH)
    down, snrs = w.air.totals["down"], [10 ** (float(each) / 10) for each in snrs_db.split(",")]
    sends = mean_of_the_last(tuple(1 - 0.9 ** (10 / snr) for snr in snrs))
    assert down.uses == pytest.approx(down.bits / 4 / math.log2(1 - 10 * math.log(0.9)) * sends)


@pytest.mark.parametrize("pilots", [(2, 11), (0,)])
def test_error_free_exchange_takes_pilots_and_prefixes_as_features_do(pilots: tuple[int, ...]) -> None:
    """Of a slot's 14 symbols those with data, each longer by a fourteenth; labels of split training too."""
    air, channel = {"rate": "fixed", "backoff_db": 3.0}, {"kind": "ofdm", "subcarriers": 12, "pilots": pilots}
    w = world(3, air, **channel)
    w.air.up(w.population(), BOTH)
    up, overhead = w.air.totals["up"], 14 / (14 - len(pilots)) * 15 / 14
    assert up.uses == up.energy_j == pytest.approx(up.bits / 2 * overhead)
    filled = 4.0 * (14 - len(pilots)) * 10  # numbers in ten slots of a client's four subcarriers, two a symbol
    of_data = w.air.link.cost(np.array([2 * filled]), np.array([0]))
    assert of_data.uses[0] == of_data.energy[0] == pytest.approx(filled * overhead)


@pytest.mark.parametrize("repeat", [True, False])
def test_clients_without_coverage_take_no_part(repeat: bool) -> None:
    """Those at -20 dB, up or down; a broadcast is at the rate of the others."""
    air = {"rate": "mcs", "coverage": "none", **({} if repeat else {"repeat": False, "outage": 1e-9})}
    w = world(4, air, snr_db="10,-20,10,0", downlink_snr_db="10,10,-20,0")
    assert w.sample().tolist() == [0, 3] and w.air.arrivals.summarize()["unreached"] == 2
    w.air.down(w.population(shared=BOTH).select(w.sample()), BOTH)
    assert w.air.totals["down"].uses == pytest.approx(w.air.totals["down"].bits / 2 / QPSK), "of the one at 0 dB"
    before, after = arms.rounds(w)
    assert worlds.gap(after.model, before.model) > 0
    assert world(4, {"rate": "mcs", "coverage": "none"}, snr_db=-20.0).sample().size == 0


@pytest.mark.parametrize("snr_db", ["inf", -300.0])
@pytest.mark.parametrize(
    "channel",
    [{}, {"kind": "rayleigh"}, {"kind": "rayleigh", "coherence": "symbol"}, {"kind": "ofdm", "subcarriers": 8}],
)
def test_rates_without_noise_and_with_nothing_else(channel: dict[str, Any], snr_db: Any) -> None:
    """Without noise no use is taken; in noise alone very many are, in proportion to the noise."""
    w = world(2, {"rate": "capacity"}, **channel, snr_db=snr_db)
    w.air.up(w.population(), BOTH)
    uses = w.air.totals["up"].uses
    assert uses == 0 if snr_db == "inf" else 1e29 < uses < 1e36


@pytest.fixture
def city(tmp_path: Path) -> str:
    """Four clients, every other one with a line of sight, the others over Rayleigh fading."""
    generator = torch.Generator().manual_seed(3)
    a = torch.ones(4, 2000, 1, dtype=torch.complex128)
    a[1::2] = torch.randn(2, 2000, 1, generator=generator, dtype=torch.complex128)
    np.savez(tmp_path / "city.npz", a=a.numpy(), tau=np.zeros((4, 1)))
    return str(tmp_path / "city.npz")


@pytest.fixture(params=[False, True], ids=["sight first", "fading first"])
def order(request: Any) -> np.ndarray:
    return np.array([1, 0, 3, 2]) if request.param else np.arange(4)


def swapped(city: str, order: np.ndarray) -> str:
    with np.load(city) as file:
        np.savez(city.replace("city", "other"), a=file["a"][order], tau=file["tau"][order])
    return city.replace("city", "other")


def test_uncoded_numbers_are_unbiased_for_every_client(city: str, order: np.ndarray) -> None:
    """E[a] is of each client's own channel: at 0 dB 1/2 with a line of sight, 0.404 over Rayleigh fading."""
    w = world(
        4,
        {"parameters": "analog", "rate": "fixed", "backoff_db": 3.0},
        kind="cir",
        path=swapped(city, order),
        snr_db=0.0,
    )
    sent, parts = torch.randn(4, 400, generator=torch.Generator().manual_seed(0), dtype=torch.float64), []
    for round_ in range(1, 801):
        w.session.tally.begin(round_)
        got = w.air.send("up", "x", sent, np.arange(4), np.full(4, 400))
        parts.append((got * sent).sum(1) / sent.square().sum(1))
    each = torch.stack(parts)
    assert ((each.mean(0) - 1).abs() < 5 * each.std(0) / len(each) ** 0.5).all()


def test_each_client_is_in_outage_by_its_own_fading(city: str, order: np.ndarray) -> None:
    """One time in ten over Rayleigh fading, and never with a line of sight, where rounding alone could lose a block."""
    w, arrived = world(4, {"repeat": False}, kind="cir", path=swapped(city, order)), []
    for round_ in range(1, 401):
        w.session.tally.begin(round_)
        arrived.append(w.arrived(np.arange(4)))
    lost = 1 - np.mean(arrived, 0)[np.argsort(order)]
    assert (lost[::2] == 0).all() and (np.abs(lost[1::2] - 0.1) < 5 * (0.09 / 400) ** 0.5).all()
    rates = w.air.rates.choose("up", np.arange(4), np.full(4, 1e3))[np.argsort(order)]
    assert rates[::2] == pytest.approx(math.log2(11), rel=1e-6)
    assert rates[1::2] == pytest.approx(math.log2(1 - 10 * math.log(0.9)), abs=0.15)


def test_a_client_that_is_blocked_for_longer_than_the_outage_is_refused_or_left_out(tmp_path: Path) -> None:
    """Client 1 hears nothing in a fifth of its times."""
    a = np.ones((2, 5, 1), dtype=complex)
    a[1, 0] = 0
    np.savez(tmp_path / "tunnel.npz", a=a, tau=np.zeros((2, 1)))
    channel = {"kind": "cir", "path": str(tmp_path / "tunnel.npz")}
    for name in ("capacity", "mcs"):
        w = world(2, {"rate": name, "outage": 0.1}, **channel)
        with refuses("air.rate", "client 1", 0.1):
            w.air.up(w.population(), BOTH)
        w = world(2, {"rate": name, "outage": 0.3}, **channel)
        w.air.up(w.population(), BOTH)
        assert 0 < w.air.totals["up"].uses < np.inf
    w = world(2, {"rate": "mcs", "outage": 0.1, "coverage": "none"}, **channel)
    assert w.sample().tolist() == [0]


def test_all_at_once_is_unbiased_for_clients_that_differ(city: str, order: np.ndarray) -> None:
    air = {"parameters": "analog", "access": "superposed", "rate": "fixed", "backoff_db": 3.0}
    w = world(4, air, kind="cir", path=swapped(city, order))
    pop, errors = models(w), []
    for round_ in range(1, 401):
        w.session.tally.begin(round_)
        mean = w.air.average(moved(pop, 1.0), "head.", w.weights(pop.ids), since=pop)
        exact = moved(pop, 1.0).cohorts[0].tensors["head.0.weight"].mean(0, keepdim=True)
        errors.append((mean["head.0.weight"] - exact).mean())
    assert has_mean(torch.stack(errors), 0.0)


@pytest.mark.parametrize("air", [{}, {"repeat": False}, {"parameters": "analog", "rate": "fixed", "backoff_db": 3.0}])
def test_clients_with_shares_of_the_band_train(air: dict[str, Any]) -> None:
    w = world(2, air, kind="ofdm", subcarriers=8, shares=(0.25, 0.75), profile="tdl-a")
    before, after = arms.rounds(w)
    assert worlds.gap(after.model, before.model) > 0


@pytest.mark.parametrize("precision", ["float32", "float64"])
def test_one_fixed_gain_loses_nothing_in_any_precision(precision: str, monkeypatch: Any) -> None:
    """A link of one's own whose |h| is always 0.7, which rounding alone could lose."""

    class Fixed(Link):
        def draw(self, sizes, d, generator, dtype=torch.float32):  # type: ignore[no-untyped-def]
            noise = super().draw(sizes, d, generator, dtype)
            return noise | {"fading": torch.full((sum(sizes), 1), 0.7, dtype=dtype).to(dtype.to_complex())}

        def gain(self, drawn):  # type: ignore[no-untyped-def]
            return drawn["fading"]

    monkeypatch.setitem(LINKS._added, "fixed", Fixed)
    air = {"rate": "capacity", "repeat": False}
    w = worlds.world("fedavg", (4, 4), air=air, channel={"kind": "fixed", "snr_db": 10.0}, precision=precision)
    assert w.arrived(np.arange(2)).all()


def test_a_broadcast_has_the_whole_band_to_itself() -> None:
    """Beside no other user: Gamma(4) of four antennas, each with a fourth of the power.

    On all 40 subcarriers of OFDM, as of a link with one client.
    """
    w = world(4, kind="rayleigh", antennas=4, users=2)
    expected, alone = (math.log2(1 + s * special.gammaincinv(4, 0.1)) for s in (10 / 4, 10))
    rates = w.air.rates.choose("down", np.arange(4), np.ones(4), broadcast=True)
    assert rates == pytest.approx(expected, rel=1e-6)
    assert (w.air.rates.choose("up", np.arange(4), np.ones(4)) < alone - 0.3).all()
    found = []
    for clients in (1, 4):
        w = world(clients, kind="ofdm", subcarriers=40, profile="tdl-c", delay_spread_ns=1000.0)
        found.append(w.air.rates.choose("down", np.arange(1), np.full(1, 1e5), broadcast=True)[0])
    assert found[0] == found[1]


def test_a_model_over_fades_of_a_symbol_has_nearly_the_ergodic_rate() -> None:
    """The model has 8,544 bits, some 2,470 uses at 10 dB, taken as 2,048: a quantile of the mean over so many fades."""
    long = rate(kind="rayleigh", coherence="symbol") / 0.9
    gains = np.random.default_rng(0).exponential(size=(4000, 2048))
    assert long == pytest.approx(np.quantile(np.log2(1 + 10 * gains).mean(1), 0.1), rel=0.003)


def test_a_block_of_many_fades_is_lost_as_often_as_it_says() -> None:
    for options in ({"kind": "rayleigh", "coherence": "symbol"}, {"kind": "ofdm", "subcarriers": 800}):
        w, arrived = world(100, {"repeat": False, "outage": 0.3}, **options), []
        for round_ in range(1, 5):
            w.session.tally.begin(round_)
            w.air.up(w.population(), BOTH)
            arrived.append(w.arrived(np.arange(100)))
        assert abs(np.mean(arrived) - 0.7) < 5 * (0.21 / 400) ** 0.5 + 0.02
