"""Statistics of clients' fading against closed forms, and against draws and integrals made here."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy import integrate, special, stats

from semcom.channels import PROFILES, Link, make_link, theory
from semcom.channels.fading import Rayleigh
from semcom.channels.law import Continuous, Listed
from semcom.channels.link import SAMPLES, complex_normal
from semcom.channels.ofdm.profiles import Profile
from semcom.channels.statistics import ClientStatistics, Sender, Statistics
from tests.samples import has_mean

TEN = Sender(snr=10.0)


class Sampled(Link):
    """Rayleigh fading without a closed-form law, so that its statistics are drawn."""

    def draw(self, sizes, d, generator, dtype=torch.float32):
        return {"fading": complex_normal((sum(sizes), 1), generator, dtype)}

    def gain(self, drawn):
        return drawn["fading"]


def of(kind: str, **options: object) -> Statistics:
    return Statistics(make_link(kind, **options))


@pytest.mark.parametrize("antennas", [1, 2, 4])
@pytest.mark.parametrize("p", [1e-6, 0.001, 0.1, 0.9])
def test_the_quantile_of_rayleigh_fading(p: float, antennas: int) -> None:
    """P(N, q) = p with the lower gamma function. With one antenna q = -ln(1 - p)."""
    q = of("rayleigh", antennas=antennas).law.quantile(p)
    assert special.gammainc(antennas, q) == pytest.approx(p, rel=1e-9)
    if antennas == 1:
        assert q == pytest.approx(-math.log1p(-p), rel=1e-9)


@pytest.mark.parametrize("k_factor_db", [-30.0, 0.0, 9.0, 30.0, 79.0])
def test_the_quantile_of_rician_fading(k_factor_db: float) -> None:
    """Of |h|, by SciPy's Rice distribution, 1 - Q1."""
    k = 10 ** (k_factor_db / 10)
    q = of("rician", k_factor_db=k_factor_db).law.quantile(0.1)
    assert stats.rice.cdf(math.sqrt(q), math.sqrt(2 * k), scale=(2 + 2 * k) ** -0.5) == pytest.approx(0.1, abs=1e-5)


@pytest.mark.parametrize("k_factor_db", [90.0, 100.0])
def test_a_line_of_sight_alone_does_not_fade(k_factor_db: float) -> None:
    fading = of("rician", k_factor_db=k_factor_db)
    assert fading.law.quantile(0.1) == pytest.approx(1, abs=3e-4)
    assert fading.shrink(0.1) == pytest.approx(1 / 1.1, rel=1e-6)


@pytest.mark.parametrize("threshold", [1e-6, 1e-3, 0.1, 2.0])
@pytest.mark.parametrize("antennas", [1, 3])
def test_truncated_inversion_down_to_deep_thresholds(threshold: float, antennas: int) -> None:
    """E1(t), or Gamma(N - 1, t) / Gamma(N). A symbol is sent with probability 1 - P(N, t)."""
    c, q = of("rayleigh", antennas=antennas).invert(threshold, 0.0)
    n = antennas - 1
    assert c == pytest.approx(special.gammaincc(n, threshold) / n if n else special.exp1(threshold), rel=1e-9)
    assert q == pytest.approx(special.gammaincc(antennas, threshold), rel=1e-9)


def normal(rng: np.random.Generator, n: int) -> np.ndarray:
    return (rng.normal(size=n) + 1j * rng.normal(size=n)) / math.sqrt(2)


@pytest.mark.parametrize(
    ("k", "error", "threshold"), [(0.0, 0.1, 0.1), (1.0, 0.2, 0.1), (8.0, 0.1, 0.5), (8.0, 0.0, 0.5)]
)
def test_inversion_with_errors_in_what_is_known(k: float, error: float, threshold: float) -> None:
    """Against a million channels drawn by NumPy. Over Rayleigh fading these are E1(t / m) / m and exp(-t / m) / m."""
    rng, n = np.random.default_rng(0), 1_000_000
    h = math.sqrt(k / (1 + k)) * np.exp(2j * np.pi * rng.random(n)) + normal(rng, n) / math.sqrt(1 + k)
    g = h + math.sqrt(error) * normal(rng, n)
    kept = np.abs(g) ** 2 >= threshold
    for found, each in zip(
        theory.inversion_means(threshold, error, k), (kept / np.abs(g) ** 2, kept * (h / g).real), strict=True
    ):
        assert has_mean(each, found)
    if not k:
        m = 1 + error
        expected = special.exp1(threshold / m) / m, math.exp(-threshold / m) / m
        assert of("rayleigh").invert(threshold, error) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("no", [1e-3, 0.1, 1.0, 100.0])
def test_what_an_mmse_equaliser_leaves(no: float) -> None:
    """1 - no e^no E1(no) for one antenna. For two, E[g / (g + no)] with g of Gamma(2), by SciPy's quadrature."""
    assert of("rayleigh").shrink(no) == pytest.approx(1 - no * special.exp1(no) * math.exp(no), rel=1e-9)
    two, _ = integrate.quad(lambda g: g * g * math.exp(-g) / (g + no), 0, math.inf)
    assert of("rayleigh", antennas=2).shrink(no) == pytest.approx(two, rel=1e-7)
    assert of("awgn").shrink(no) == 1


def test_draws_are_as_many_as_their_stated_error_needs() -> None:
    """Five times sqrt((1 - p) / (p n)) of the quantile, and a deviation below 1/2 of a over sqrt(n)."""
    fading = Statistics(Sampled(Link.Options()))
    for p in (0.1, 0.01, 0.001):
        error = 5 * math.sqrt((1 - p) / (p * SAMPLES))
        assert fading.law.quantile(p) == pytest.approx(-math.log1p(-p), rel=error)
    assert fading.shrink(0.1) == pytest.approx(of("rayleigh").shrink(0.1), abs=5 * 0.5 / math.sqrt(SAMPLES))


def test_a_subclass_that_fades_otherwise_has_no_law_of_its_parent() -> None:
    """Four antennas in one: |h|^2 is Gamma(4) / 4."""

    class Steady(Rayleigh):
        def gains(self, shape, generator, dtype):
            powers = complex_normal((4, *shape), generator, dtype).abs().square().mean(0)
            return powers.sqrt().to(dtype.to_complex())

    fading = Statistics(Steady(Rayleigh.Options()))
    assert fading.law.quantile(0.1) == pytest.approx(special.gammaincinv(4, 0.1) / 4, rel=0.01)


# -- blocks of data --------------------------------------------------------------------------------------------------


def test_a_block_that_meets_one_h_is_lost_by_its_quantile() -> None:
    for fading in (of("rayleigh"), of("rayleigh", coherence="round"), of("ofdm", profile="rayleigh")):
        limit = fading.find_limit(replace(TEN, uses=2.0**20), 0.1)
        assert limit == pytest.approx(math.log2(1 - 10 * math.log(0.9)), rel=1e-9)
        assert fading.find_outage(TEN, limit) == pytest.approx(0.1, abs=1e-6)
        assert fading.find_outage(TEN, 1.0) == pytest.approx(1 - math.exp(-0.1), rel=1e-5)


def test_a_long_block_has_the_ergodic_capacity() -> None:
    """e^(1/s) E1(1/s) / ln 2: 2.907 bit at 10 dB."""
    limit = of("rayleigh", coherence="symbol").find_limit(replace(TEN, uses=2.0**22), 0.1)
    assert limit == pytest.approx(theory.ergodic_capacity(10.0), rel=1e-3)


@pytest.mark.parametrize("uses", [1, 2])
def test_a_short_block_of_independent_fades(uses: int) -> None:
    """P(sum of log2(1 + s g_i) < m r), m = 2: the integral over g_1 of the law of g_2."""
    fading, s = of("rayleigh", coherence="symbol"), 10.0
    rate = fading.find_limit(Sender(s, uses=float(uses)), 0.1)

    def lost(g: float) -> float:
        return -math.expm1(-max(0.0, (2 ** (2 * rate) / (1 + s * g) - 1) / s)) * math.exp(-g)

    chance = 1 - math.exp(-(2**rate - 1) / s) if uses == 1 else integrate.quad(lost, 0, math.inf)[0]
    assert chance == pytest.approx(0.1, abs=5 * (0.09 / SAMPLES) ** 0.5)


def test_a_block_of_many_fades_against_draws_of_all_of_them() -> None:
    """Of 500 fades the library draws 64. The reference draws all of them."""
    fading, rng = of("rayleigh", coherence="symbol"), np.random.default_rng(1)
    sender = replace(TEN, uses=500.0)
    means = np.log2(1 + 10 * rng.exponential(size=(20_000, 500))).mean(1)
    spread = means.std()
    for p in (0.02, 0.1, 0.5):
        assert fading.find_limit(sender, p) == pytest.approx(np.quantile(means, p), abs=0.1 * spread)
    drawn = [fading.draw_information(sender, torch.Generator().manual_seed(k)) for k in range(2000)]
    assert np.mean(drawn) == pytest.approx(means.mean(), abs=5 * spread / 2000**0.5)
    assert np.std(drawn) == pytest.approx(spread, rel=0.1)


class Independent(Profile):
    """Every resource element has an h of its own."""

    def response(self, clients, frames, times, rate, width, spacing_hz, generators, device=None):
        each = zip(frames, generators, strict=True)
        return torch.cat([complex_normal((n, times, width), g, torch.float32) for n, g in each])


def test_resource_elements_that_fade_independently_are_symbols_that_do(monkeypatch) -> None:
    monkeypatch.setitem(PROFILES._added, "independent", Independent)
    link = make_link("ofdm", profile="independent", subcarriers=4)
    found = Statistics(link.of(0)).find_limit(replace(TEN, uses=48.0), 0.1)
    symbols = of("rayleigh", coherence="symbol").find_limit(replace(TEN, uses=56.0), 0.1)  # pilots are in between
    assert found == pytest.approx(symbols, rel=0.01)


def test_a_block_over_a_moving_channel_lies_between_both_ends() -> None:
    """A longer or wider block spans more fades. Over hours it has nearly the ergodic capacity."""
    found = []
    for subcarriers, uses in ((4, 1.0), (4, 2.0**10), (400, 100 * 2.0**10), (4, 2.0**30)):
        link = make_link("ofdm", profile="tdl-c", delay_spread_ns=300.0, subcarriers=subcarriers)
        found.append(Statistics(link.of(0)).find_limit(replace(TEN, uses=uses), 0.1))
    block, ergodic = math.log2(1 - 10 * math.log(0.9)), theory.ergodic_capacity(10.0)
    assert found == sorted(found)
    assert found[0] == pytest.approx(block, rel=0.1) and found[-1] == pytest.approx(ergodic, rel=0.02)


# -- clients that differ ---------------------------------------------------------------------------------------------


@pytest.fixture
def city(tmp_path: Path) -> str:
    """A client with a line of sight, one over Rayleigh fading, and one with a single time in a notch of its band."""
    rng = np.random.default_rng(2)
    a, tau = np.zeros((3, 4000, 2), dtype=complex), np.zeros((3, 2))
    a[0, :, 0], a[1, :, 0] = 1.0, normal(rng, 4000)
    a[2], tau[2, 1] = [1.0, -0.9], 1e-9
    np.savez(tmp_path / "city.npz", a=a, tau=tau)
    return str(tmp_path / "city.npz")


def test_each_client_has_statistics_of_its_own(city: str) -> None:
    """E[a] is 1/(1 + no) and 1 - no e^no E1(no). A client without fading loses no block at any outage."""
    link = make_link("cir", path=city, subcarriers=3)
    with pytest.warns(UserWarning, match="path: over its subcarriers"):
        clients = ClientStatistics(link.in_band(3, 3, 50, 2))
    sight, fading, notch = (clients.of("up", k) for k in range(3))
    assert sight.shrink(0.1) == pytest.approx(1 / 1.1, rel=1e-6)
    assert fading.shrink(0.1) == pytest.approx(of("rayleigh").shrink(0.1), abs=5 * 0.3 / 4000**0.5)
    assert notch.shrink(0.1) == pytest.approx(1 / (1 + 0.1 * 1.81 / 0.01), rel=1e-3)
    for one in (sight, notch):
        assert one.find_outage(TEN, one.find_limit(TEN, 0.1)) == 0
    rate = fading.find_limit(TEN, 0.1)
    assert rate == pytest.approx(math.log2(1 - 10 * math.log(0.9)), abs=0.1) and fading.find_outage(TEN, rate) == 0.1


def test_without_noise_nothing_arrives_of_what_is_blocked(tmp_path: Path) -> None:
    """A client that is heard at nine of ten times."""
    a = np.ones((1, 10, 1), dtype=complex)
    a[0, 3] = 0
    np.savez(tmp_path / "tunnel.npz", a=a, tau=np.zeros((1, 1)))
    blocked = Statistics(make_link("cir", path=str(tmp_path / "tunnel.npz"), subcarriers=2).of(0))
    assert blocked.shrink(0.0) == pytest.approx(0.9)
    silent = Sender(math.inf, uses=10)
    assert blocked.find_limit(silent, 0.05) == 0 and blocked.find_limit(silent, 0.2) > 100


def test_estimates_of_each_client_are_as_good_as_its_own(monkeypatch) -> None:
    """A client at rest and a client with another h in every symbol: interpolation is exact or useless."""

    class Unlike(Independent):
        def response(self, clients, frames, times, rate, width, spacing_hz, generators, device=None):
            h = super().response(clients, frames, times, rate, width, spacing_hz, generators)
            still = torch.tensor(clients).repeat_interleave(torch.tensor(frames)) == 0
            return torch.where(still[:, None, None], h[:, :1, :1].expand_as(h), h)

    monkeypatch.setitem(PROFILES._added, "unlike", Unlike)
    link = make_link("ofdm", profile="unlike", csi="ls", subcarriers=1)
    generators = [torch.Generator().manual_seed(k) for k in range(2)]
    drawn = link.draw_all([1, 0], [[4], [4]], 2, generators, torch.float64)
    for own, (low, high) in zip(drawn, ((-0.2, 0.2), (0.99, 1.01)), strict=True):
        part = own["moments"][..., 0]
        assert ((part > low) & (part < high)).all()


def test_lists_hold_their_values_with_the_same_chance() -> None:
    law = Listed.of(np.array([[3.0, 1.0], [2.0, 4.0]]))
    assert [law.quantile(p) for p in (0.0, 0.2, 0.25, 0.5, 1.0)] == [1, 1, 2, 3, 4]
    assert law.below(2.0) == 0.25 and law.mean(np.square, 2.0) == (4 + 9 + 16) / 4
    assert Continuous(stats.expon()).mean(np.square) == pytest.approx(2)


@pytest.mark.parametrize("coherence", ["sample", "symbol"])
def test_a_sender_that_inverts_its_channel_has_the_rate_of_one_that_does_not_fade(coherence: str) -> None:
    """|a h| is 1 at every h, so all blocks carry log2(1 + snr), of which an MMSE equaliser leaves 1 / (1 + no)."""

    class Inverts(Rayleigh):
        def amplitude(self, gain, no):  # type: ignore[no-untyped-def]
            return 1 / gain.abs()

    of, sender = Statistics(Inverts(Rayleigh.Options(coherence=coherence))), Sender(10.0)
    assert [of.find_limit(sender, p) for p in (0.001, 0.5)] == pytest.approx([math.log2(11)] * 2)
    assert of.find_outage(sender, 3.4) == 0 and of.find_outage(sender, 3.5) == 1
    assert of.shrink(0.1) == pytest.approx(1 / 1.1)
