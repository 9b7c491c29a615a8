"""Frequency responses of the profiles against 3GPP's tables, and the source of their randomness."""

from __future__ import annotations

import math
import sys

import pytest
import torch
from scipy import stats
from scipy.special import j0
from torch import Tensor

from semcom.channels import PROFILES, make_link
from semcom.channels.ofdm.profiles import ThreeGPP, import_sionna
from tests.samples import has_mean

FIVE_SIGMA = 2 * stats.norm.sf(5)
UNITS = 2000
RATE, SPACING = 14e3, 15e3
BUILT_IN = [name for name in PROFILES.names() if PROFILES.ships(name)]
TDL_A = {  # TR 38.901, Table 7.7.2-1: delay over the delay spread -> power in dB
    0.0: -13.4,
    0.3819: 0.0,
    0.4025: -2.2,
    0.5868: -4.0,
    0.4610: -6.0,
    0.5375: -8.2,
    0.6708: -9.9,
    0.5750: -10.5,
    0.7618: -7.5,
    1.5375: -15.9,
    1.8978: -6.6,
    2.2242: -16.7,
    2.1718: -12.4,
    2.4942: -15.2,
    2.5119: -10.8,
    3.0582: -11.3,
    4.0810: -12.7,
    4.4579: -16.2,
    4.5695: -18.3,
    4.7966: -18.9,
    5.0066: -16.6,
    5.3043: -19.9,
    9.6586: -29.7,
}
TDL_D = (-0.2, -13.5, -18.8, -21.0, -22.8, -17.9, -20.1, -21.9, -22.9, -27.8, -23.6, -24.8, -30.0, -27.7)
"""Table 7.7.2-4: powers in dB, the line of sight first."""
SIGHT_D = 10 ** (TDL_D[0] / 10) / sum(10 ** (power / 10) for power in TDL_D)


def profile(name: str, delay_spread_s: float = 300e-9, speed: float = 3.0) -> ThreeGPP:
    kind = PROFILES.get(name)
    assert issubclass(kind, ThreeGPP)
    return kind(delay_spread_s, 3.5e9, speed) if kind.disperses else kind()


def response(name: str, frames: int, times: int = 1, width: int = 1, seed: int = 0, **options: float) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    h = profile(name, **options).response([0], [frames], times, RATE, width, SPACING, [generator])
    assert h.shape == (frames, times, width) and h.dtype == torch.complex64
    return h.to(torch.complex128)


def taps(name: str) -> tuple[Tensor, Tensor]:
    """Delays over the delay spread, and powers, of a TDL."""
    if name == "tdl-a":
        powers = 10 ** (torch.tensor(list(TDL_A.values()), dtype=torch.float64) / 10)
        return torch.tensor(list(TDL_A), dtype=torch.float64), powers / powers.sum()
    model = profile(name, 1.0).model("cpu")
    return model.delays.double(), model.mean_powers.double()


@pytest.mark.parametrize("name", BUILT_IN)
def test_last_path_is_that_of_the_profile(name):
    _, delays = profile(name, 1.0).model("cpu")(1, 1, RATE)
    assert float(delays.max()) == pytest.approx(profile(name).last_path, rel=1e-6)
    assert profile(name).last_path_s == pytest.approx(300e-9 * float(delays.max()), rel=1e-6)


def test_the_delay_spread_is_what_was_asked_for():
    delays, powers = taps("tdl-a")
    assert float((powers * delays.square()).sum() - (powers * delays).sum() ** 2) == pytest.approx(1.0, abs=1e-3)


@pytest.mark.parametrize("name", ["tdl-a", "tdl-e"])
def test_frequency_correlation_is_the_transform_of_the_power_delay_profile(name):
    """E[h(f) h(f + D)*] = sum_l p_l exp(j 2 pi D tau_l)."""
    apart = (1, 10, 40, 100)
    delays, powers = taps(name)
    h = response(name, UNITS, width=apart[-1] + 1)[:, 0]
    for n in apart:
        expected = (powers * torch.polar(torch.ones_like(powers), 2 * math.pi * n * SPACING * 300e-9 * delays)).sum()
        product = h[:, 0] * h[:, n].conj()
        assert has_mean(product.real, float(expected.real))
        assert has_mean(product.imag, float(expected.imag))


@pytest.mark.parametrize(("name", "sight"), [("tdl-a", 0.0), ("tdl-d", SIGHT_D)])
def test_time_correlation_is_that_of_jakes_spectrum(name, sight):
    """Scattered paths follow J0(2 pi f_D t), and the line of sight turns with 0.7 f_D (TR 38.901, 7.7.2)."""
    speed = 500.0  # so that a few symbols are long
    doppler = 2 * math.pi * speed * 3.5e9 / 299_792_458
    h = response(name, UNITS, times=4, speed=speed)[:, :, 0]
    for n in range(1, 4):
        x = doppler * n / RATE
        product = h[:, n] * h[:, 0].conj()
        assert has_mean(product.real, (1 - sight) * j0(x) + sight * math.cos(0.7 * x))
        assert has_mean(product.imag, sight * math.sin(0.7 * x))


def test_rayleigh_is_flat_and_constant_over_a_frame_and_independent_across_frames():
    frames = 10_000
    h = response("rayleigh", frames, times=2, width=2)
    assert torch.equal(h, h[:, :1, :1].expand_as(h))
    first = h[:, 0, 0]
    assert stats.kstest(first.abs().square().numpy(), "expon").pvalue > FIVE_SIGMA
    assert stats.kstest(first.angle().numpy(), stats.uniform(-math.pi, 2 * math.pi).cdf).pvalue > FIVE_SIGMA
    assert abs((first[1:] * first[:-1].conj()).mean()) < 5 / math.sqrt(frames - 1)


@pytest.mark.parametrize("name", ["tdl-a", "cdl-d"])
def test_frames_are_independent_and_have_no_phase_of_their_own(name):
    frames = 500
    h = response(name, frames)[:, 0, 0]
    assert abs(h.mean()) < 5 / math.sqrt(frames)  # E|h|^2 = 1, also where there is a line of sight
    assert abs((h[1:] * h[:-1].conj()).mean()) < 5 / math.sqrt(frames - 1)


@pytest.mark.parametrize("name", ["rayleigh", "tdl-a", "cdl-a"])
def test_all_randomness_is_the_generator_s(name):
    """Sionna draws from our generator, advances it, and gets its own generator back unchanged."""
    own, ours = import_sionna().config.torch_rng("cpu"), torch.Generator().manual_seed(7)
    before, host = own.get_state(), torch.get_rng_state()
    one, two = (profile(name).response([0], [2], 3, RATE, 4, SPACING, [ours]) for _ in range(2))
    torch.manual_seed(99)
    own.manual_seed(5)
    again = torch.Generator().manual_seed(7)
    assert torch.equal(one, profile(name).response([0], [2], 3, RATE, 4, SPACING, [again])) and not torch.equal(
        one, two
    )
    assert torch.equal(two, profile(name).response([0], [2], 3, RATE, 4, SPACING, [again]))
    assert torch.equal(ours.get_state(), again.get_state())
    own.set_state(before)
    torch.set_rng_state(host)
    profile(name).response([0], [2], 3, RATE, 4, SPACING, [again])
    assert torch.equal(own.get_state(), before) and torch.equal(torch.get_rng_state(), host)


def test_importing_sionna_leaves_no_trace_in_the_global_generator(monkeypatch):
    """As in a fresh process without Sionna. The steps of the digital link leave no trace either."""
    for name in [name for name in sys.modules if name.split(".")[0] == "sionna"]:
        monkeypatch.delitem(sys.modules, name)
    caches = import_sionna.cache_clear, ThreeGPP.model.cache_clear
    [clear() for clear in caches]
    try:
        link = make_link("ofdm", csi="ls").in_band(2, 2, 3, 8)
        assert not any(name.startswith("sionna") for name in sys.modules)
        with torch.random.fork_rng():
            before = torch.get_rng_state()
            link.draw([3], 8, torch.Generator())
            assert "sionna.phy" in sys.modules
            link = make_link("digital", fading="rayleigh")
            up = {n: t[None] for n, t in link.draw([4], 64, torch.Generator().manual_seed(1)).items()}
            x = torch.zeros(1, 4, 64).requires_grad_()
            link(x, up, torch.tensor([9.0]), down=up).sum().backward()
            assert torch.equal(torch.get_rng_state(), before)
    finally:
        [clear() for clear in caches]
