"""Several users on one resource: SINRs against closed forms, limits of combining, fading that goes on over rounds."""

from __future__ import annotations

import math
from copy import copy

import numpy as np
import pytest
import torch
from scipy import special

from semcom.channels import Meter, make_link, theory
from semcom.channels.fading import SLOTS, Rayleigh
from semcom.channels.ofdm.link import OFDM
from semcom.channels.users import Fades, control_power, separate_users, weigh_antennas
from tests.channels.draws import keys
from tests.samples import has_mean

N = 40_000
COMBININGS = ("mrc", "zf", "mmse")


def drawn(combining="mmse", antennas=4, users=3, n=N, powers=None, **options):
    link = make_link("rayleigh", antennas=antennas, users=users, combining=combining, **options)
    fades = None if powers is None else Fades((), 0, powers=torch.tensor(powers, dtype=torch.float64))
    return link, link.draw([n], 2, torch.Generator().manual_seed(1), torch.float64, fades)


def sinr(link, up, snr_db):
    no = torch.tensor(10 ** (-snr_db / 10), dtype=torch.float64).view(1, 1)
    others = link.interference(up, no)
    return (link.gain_at(up, no).abs().square() / (no + (0 if others is None else others))).flatten()


@pytest.mark.parametrize("snr_db", [0.0, 15.0])
@pytest.mark.parametrize(("antennas", "users"), [(4, 3), (2, 2), (1, 2), (3, 5)])
@pytest.mark.parametrize("combining", COMBININGS)
def test_the_sinr_has_its_distribution(combining, antennas, users, snr_db):
    """Within five standard errors at quantiles all over the range."""
    if combining == "zf" and users > antennas:
        pytest.skip("users cannot be told apart")
    found = sinr(*drawn(combining, antennas, users), snr_db)
    for x in np.quantile(found.numpy(), [0.01, 0.1, 0.5, 0.9]):
        p = theory.combined_cdf(combining, x, 10 ** (-snr_db / 10), antennas, [1.0] * (users - 1))
        assert abs(float((found < x).double().mean()) - p) < 5 * math.sqrt(p * (1 - p) / N)


@pytest.mark.parametrize("snr_db", [0.0, 15.0])
@pytest.mark.parametrize(
    ("antennas", "powers"),
    [(4, (1.0, 1e-3)), (4, (1.0, 1e3)), (2, (1.0, 10.0, 0.1)), (1, (1.0, 4.0)), (3, (1.0, 2.0, 0.3, 0.3, 30.0))],
)
@pytest.mark.parametrize("combining", COMBININGS)
def test_the_sinr_beside_unlike_powers_has_its_distribution(combining, antennas, powers, snr_db):
    """Gamma(N) / (no + sum of p_j Exp), Gamma(N - U + 1) / no, and Gao et al.'s sum, at quantiles all over."""
    if combining == "zf" and len(powers) > antennas:
        pytest.skip("users cannot be told apart")
    no, found = 10 ** (-snr_db / 10), sinr(*drawn(combining, antennas, len(powers), powers=powers), snr_db)
    for x in np.quantile(found.numpy(), [0.01, 0.1, 0.5, 0.9]):
        p = theory.combined_cdf(combining, x, no, antennas, powers[1:])
        assert abs(float((found < x).double().mean()) - p) < 5 * math.sqrt(p * (1 - p) / N)
        assert theory.CombinedLaw(combining, no, antennas, powers[1:]).quantile(p) == pytest.approx(x, rel=1e-6)


def test_mrc_in_numbers():
    """One antenna and p_2 = r by hand: P(SINR < x) = 1 - e^(-x no) / (1 + r x). A user 30 dB above drowns the other."""
    for x, no, r in ((0.3, 0.1, 2.0), (5.0, 0.01, 1000.0)):
        for combining in ("mrc", "mmse"):
            expected = 1 - math.exp(-x * no) / (1 + r * x)
            assert theory.combined_cdf(combining, x, no, 1, [r]) == pytest.approx(expected, rel=1e-12)
    weak, strong = (float(sinr(*drawn("mrc", 4, 2, powers=(1.0, r)), 10.0).median()) for r in (1e3, 1e-3))
    assert weak < 0.01 and strong > 30


@pytest.mark.parametrize("combining", COMBININGS)
def test_symbols_that_are_sent_arrive_with_that_sinr(combining):
    """y = sum of sqrt(p_j) h_j x_j + sqrt(no) n with Gaussian symbols, combined by other words of the same weights."""
    rng, no, powers, units, symbols = np.random.default_rng(5), 0.2, np.array([1.0, 100.0, 0.05]), 200, 2000

    def normal(*shape):
        return (rng.standard_normal(shape) + 1j * rng.standard_normal(shape)) / 2**0.5

    h, x, n = normal(units, 4, 3), normal(units, 3, symbols), normal(units, 4, symbols)
    y = (h * powers**0.5) @ x + no**0.5 * n
    others = h[:, :, 1:] * powers[1:] ** 0.5
    w = {
        "mrc": h[:, :, :1],
        "zf": np.linalg.pinv(h).conj().swapaxes(1, 2)[:, :, :1],
        "mmse": np.linalg.inv(others @ others.conj().swapaxes(1, 2) + no * np.eye(4)) @ h[:, :, :1],
    }[combining]
    w = (w / np.linalg.norm(w, axis=1, keepdims=True)).conj().swapaxes(1, 2)
    gain = (w @ h[:, :, :1])[:, 0, 0]
    error = (np.abs((w @ y)[:, 0] - gain[:, None] * x[:, 0]) ** 2).mean(1)
    apart = separate_users(torch.from_numpy(h)[:, None], combining, torch.from_numpy(powers))
    link = make_link("rayleigh", antennas=4, users=3, combining=combining)
    found = sinr(link, apart, -10 * math.log10(no)).numpy()
    ratio = found * error / np.abs(gain) ** 2
    assert np.abs(ratio - 1).max() < 5 / symbols**0.5 and abs(ratio.mean() - 1) < 5 / (units * symbols) ** 0.5


@pytest.mark.parametrize("combining", ["mmse", "mrc"])
@pytest.mark.parametrize("antennas", [64, 200])
def test_many_antennas_neither_overflow_nor_cancel(antennas: int, combining: str):
    """With 200 Rayleigh gains g^2 is nearly N: the SINR beside another user is near N s, or limited by interference."""
    for snr in (1e-30, 1e-3, 1.0, 1e3):
        law = theory.CombinedLaw(combining, 1 / snr, antennas, (1.0,))
        middle = law.quantile(0.5)
        assert law.below(middle) == pytest.approx(0.5, abs=1e-6) and law.quantile(0.1) < middle < law.quantile(0.9)
        alone = antennas * snr if combining == "mmse" else antennas / (1 / snr + 0.7)
        assert middle == pytest.approx(alone, rel=0.15)


def test_powers_are_as_they_are_or_the_weakest():
    """Relative to the first user. Lowered powers give every user the weakest SNR, and without noise all are alike."""
    snr_db = torch.tensor([[10.0, 40.0, 7.0], [0.0, 0.0, 0.0]])
    same, powers = control_power(snr_db, "none")
    assert torch.equal(same, snr_db) and torch.equal(powers[1], torch.ones(3).double())
    torch.testing.assert_close(powers[0], torch.tensor([1.0, 1000.0, 10**-0.3]).double())
    lowered, powers = control_power(snr_db, "weakest")
    assert lowered.tolist() == [[7.0] * 3, [0.0] * 3] and torch.equal(powers, torch.ones(2, 3).double())
    assert torch.equal(control_power(torch.full((1, 2), math.inf), "none")[1], torch.ones(1, 2).double())


def test_alike_powers_change_nothing():
    """Bit for bit, so that runs with equal SNRs keep their results."""
    for combining in COMBININGS:
        (_, a), (_, b) = (drawn(combining, n=50, powers=powers) for powers in (None, (1.0, 1.0, 1.0)))
        assert a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


@pytest.mark.parametrize("combining", COMBININGS)
def test_closed_forms_agree_where_they_meet(combining):
    """Without other users: Gamma(N). MMSE in strong noise is MRC, and the slope of outages is the diversity order."""
    x, no = 0.7, 0.3
    if combining == "zf":
        assert theory.combined_cdf("zf", x, no, 4, []) == pytest.approx(special.gammainc(4, x * no))
    elif combining == "mmse":
        assert theory.combined_cdf("mmse", x, no, 4, []) == pytest.approx(special.gammainc(4, x * no))
    order = {"zf": 2, "mmse": 2, "mrc": 0}[combining]  # N - U + 1 = 2; with mrc interference leaves a floor
    low, high = (theory.combined_cdf(combining, 0.1, no, 4, [1.0, 1.0]) for no in (1e-3, 1e-4))
    assert math.log10(low / high) == pytest.approx(order, abs=0.02)


@pytest.mark.parametrize(("antennas", "users", "order"), [(2, 2, 1), (3, 2, 2), (4, 2, 3)])
@pytest.mark.parametrize("combining", ["zf", "mmse"])
def test_outages_fall_with_the_antennas_that_are_left(combining, antennas, users, order):
    """P(SINR < x) falls by `order` decades for 10 dB: the slope between two SNRs of the same draws."""
    link, up = drawn(combining, antennas, users)
    x = {1: 0.1, 2: 1.0, 3: 3.0}[order]
    rare, often = ((sinr(link, up, snr_db) < x).double().sum() for snr_db in (10.0, 0.0))
    expected = [theory.combined_cdf(combining, x, no, antennas, [1.0] * (users - 1)) for no in (0.1, 1.0)]
    assert abs(float(rare) - N * expected[0]) < 5 * math.sqrt(N * expected[0])
    assert float(often / rare) == pytest.approx(expected[1] / expected[0], rel=5 / math.sqrt(float(rare)))
    high, low = (theory.combined_cdf(combining, x, no, antennas, [1.0] * (users - 1)) for no in (0.01, 0.001))
    assert math.log10(high / low) == pytest.approx(order, abs=0.05)


def test_mmse_is_the_best_of_each_realisation_and_has_both_limits():
    """It is (h^H (R + no)^-1 h), at least the others' SINR. Weak noise gives zero forcing and strong noise MRC."""
    gains = torch.randn(500, 4, 3, dtype=torch.complex128, generator=torch.Generator().manual_seed(3))
    own, others = gains[..., :1], gains[..., 1:]
    apart = {name: separate_users(gains, name) for name in COMBININGS}
    for no in (1e-6, 0.1, 1e6):
        g, interference = weigh_antennas(*apart["mmse"].values(), torch.full((500,), no, dtype=torch.float64))
        best = (g.square() / (no + interference)).numpy()
        inside = others @ others.mH + no * torch.eye(4, dtype=torch.float64)
        expected = (own.mH @ torch.linalg.solve(inside, own)).real.flatten().numpy()
        np.testing.assert_allclose(best, expected, rtol=1e-8)
        zf = (apart["zf"]["fading"].abs().square() / no).numpy()
        mrc = (apart["mrc"]["fading"].abs().square() / (no + apart["mrc"]["others"])).numpy()
        assert (best >= zf * (1 - 1e-9)).all() and (best >= mrc * (1 - 1e-9)).all()
        if no != 0.1:
            np.testing.assert_allclose(best, zf if no < 1 else mrc, rtol=1e-3)


@pytest.mark.parametrize("combining", COMBININGS)
def test_what_arrives_has_that_sinr(combining):
    """The estimate of MMSE has the error 1 / (1 + SINR). The meter counts interference as noise."""
    link, up = drawn(combining, n=N)
    meter, sent = Meter(), torch.ones(1, N, 1, dtype=torch.complex128)
    got = link.transmit(sent, {k: t[None] for k, t in up.items()}, torch.tensor([5.0]).double(), meter=meter)
    ratio = sinr(link, up, 5.0)
    assert has_mean(((got.flatten() - 1).abs().square() - 1 / (1 + ratio)).real, 0.0)
    no = torch.tensor([[10**-0.5]])
    others = link.interference(up, no)
    power = link.gain_at(up, no).abs().square().mean() / (no + (0 if others is None else others)).mean()
    assert meter.snr_db() == pytest.approx(float(10 * power.log10()), abs=0.1)


@pytest.mark.parametrize("kind", ["rayleigh", "rician"])
def test_one_user_is_antennas_alone_bit_for_bit(kind):
    usual, one = make_link(kind, antennas=3), make_link(kind, antennas=3, users=1)
    a, b = (link.draw([5, 2], 8, *keys(4)) for link in (usual, one))
    assert a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


@pytest.mark.parametrize("kind", ["rayleigh", "rician"])
@pytest.mark.parametrize("coherence", ["symbol", "sample", "batch", "round"])
def test_users_of_a_group_meet_the_same_matrix(kind, coherence):
    """Each of two users hears the other's signal through the other's gains, however long they send."""
    link = make_link(kind, antennas=2, users=2, combining="mrc", coherence=coherence)
    sizes = ([3] * (SLOTS + 5), [3] * 4)
    first, other = (
        link.draw(own, 4, *keys(9), torch.float64, Fades(keys(*seeds), 1))
        for own, seeds in zip(sizes, ((1, 2), (2, 1)), strict=True)
    )
    n = 12
    crossed = first["others"][:n] * first["fading"][:n].abs().square()  # |h_1^H h_2|^2, from both sides
    torch.testing.assert_close(crossed, other["others"] * other["fading"].abs().square())
    assert (first["fading"][:n] != other["fading"]).any()


@pytest.mark.parametrize("kind", ["rayleigh", "rician"])
def test_padding_has_no_nan(kind):
    link = make_link(kind, antennas=2, users=2)
    up = {
        k: torch.nn.functional.pad(t, [0, 0] * (t.ndim - 1) + [0, 2])[None]
        for k, t in link.draw([3], 4, *keys(0)).items()
    }
    assert link(torch.randn(1, 5, 4), up, torch.tensor([10.0])).isfinite().all()


# -- fading over rounds ----------------------------------------------------------------------------------------------


def test_the_correlation_over_rounds_is_that_of_jakes():
    """E[h(t + n) h(t)*] = J0(2 pi n f_D T) over many clients, within five standard errors. The power is 1."""
    link, clients, doppler = make_link("rician", coherence="round", round_doppler=0.13), 800, 0.13

    def h(round_):
        return torch.stack(
            [link.draw([1], 2, *keys(0), torch.float64, Fades(keys(k), round_))["fading"][0, 0] for k in range(clients)]
        )

    start = h(7)
    for after in (0, 1, 2, 4, 9):
        products = h(7 + after) * start.conj()
        for part, expected in ((products.real, theory.time_correlation(doppler, after)), (products.imag, 0.0)):
            assert abs(float(part.mean()) - expected) < 5 * float(part.std()) / clients**0.5 + 1e-12


def test_fading_that_moves_is_rayleigh_s_and_follows_from_its_seed_alone():
    """|h|^2 is exponential up to the finite number of waves. A round gives the same h without the rounds before it."""
    link = make_link("rayleigh", coherence="round", round_doppler=0.5, antennas=2)
    power = (
        torch.stack(
            [link.draw([1], 2, *keys(0), torch.float64, Fades(keys(k), 3))["fading"][0, 0] for k in range(1500)]
        )
        .abs()
        .square()
    )
    for a in (0.5, 2.0):
        p = float(theory.power_cdf(a, 0.0, 2))
        assert abs(float((power < a).double().mean()) - p) < 5 * math.sqrt(p * (1 - p) / 1500) + 0.01
    again = link.draw([4, 1], 8, *keys(0), torch.float64, Fades(keys(5), 3))["fading"]
    assert again.shape == (5, 1) and (again == again[0]).all() and float(again[0].abs().square()) == float(power[5])
    still = make_link("rayleigh", coherence="round", round_doppler=0.0)
    one, other = (still.draw([1], 2, *keys(0), torch.float64, Fades(keys(1), t))["fading"] for t in (1, 99))
    assert torch.equal(one, other)


class Near(Rayleigh):
    """Client k is received with the amplitude k."""

    client = 1

    def of(self, client):
        link = copy(self)
        link.client = client
        return link

    def gains(self, shape, generator, dtype):
        return self.client * super().gains(shape, generator, dtype)

    def moving(self, turns, antennas, generator):
        return self.client * super().moving(turns, antennas, generator)


@pytest.mark.parametrize(
    "options", [{}, {"coherence": "round", "round_doppler": 0.2}, {"users": 2, "antennas": 2, "combining": "mrc"}]
)
def test_links_of_clients_that_differ_fade_by_themselves(options):
    """Twice the amplitude has twice the gain, draw by draw, and four times the interference of the same neighbour."""
    link, clients = Near(Rayleigh.Options(**options)), [1, 2]
    fades = [Fades(keys(8, 9)[: link.users], 3, clients=[k, 1][: link.users]) for k in clients]
    one, two = link.draw_all(clients, [[5]] * 2, 4, keys(1, 1), torch.float64, fades=fades if options else None)
    torch.testing.assert_close(two["fading"].abs(), 2 * one["fading"].abs())
    if link.users > 1:
        loud = Fades(keys(8, 9), 3, clients=[1, 2])
        (beside,) = link.draw_all([1], [[5]], 4, keys(1), torch.float64, fades=[loud])
        no = torch.ones(1, 1, dtype=torch.float64)
        torch.testing.assert_close(link.interference(beside, no), 4 * link.interference(one, no))


def test_an_ofdm_link_of_clients_that_differ_draws_for_each_alone():
    class Flipped(OFDM):
        def of(self, client):
            link = super().of(client)
            link.gain_of = client
            return link

        def _elements(self, *args):
            return [{"fading": self.gain_of * made["fading"]} for made in super()._elements(*args)]

    usual, own = (kind(OFDM.Options(profile="tdl-a")).in_band(3, 3, 5, 4) for kind in (OFDM, Flipped))
    sizes, of = [[5]] * 3, ("noise", "fading")
    plain, made = (link.draw_all([0, 1, 2], sizes, 4, keys(3, 4, 5), torch.float64) for link in (usual, own))
    for k in range(3):
        expected = {"noise": plain[k]["noise"], "fading": k * plain[k]["fading"]}
        torch.testing.assert_close({name: made[k][name] for name in of}, expected)
