"""Fading coefficients where the checks of test_check.py do not look: extremes of K, kinds with several antennas."""

from __future__ import annotations

import math

import pytest
import torch

from semcom.channels import make_link, theory
from tests.samples import has_mean


def test_rician_line_of_sight_and_scatter_are_told_apart():
    """Without scatter |h| is 1. Without a line of sight the link is Rayleigh, from the same numbers."""
    draw = {k: make_link("rician", k_factor_db=k).draw([50], 2, torch.Generator().manual_seed(5)) for k in (100, -100)}
    rayleigh = make_link("rayleigh").draw([50], 2, torch.Generator().manual_seed(5))
    assert torch.allclose(draw[100]["fading"].abs(), torch.ones(50, 1), atol=1e-4)
    assert torch.allclose(draw[-100]["fading"], rayleigh["fading"], atol=1e-4)


@pytest.mark.parametrize("antennas", [2, 4])
@pytest.mark.parametrize("kind", ["rician", "ofdm"])
def test_combined_antennas_have_the_power_of_all(kind, antennas):
    """g^2 = sum |h_i|^2 is Gamma(N) over Rayleigh fading: mean and variance N.

    Outages fall as a^N / N!, bit errors of QPSK by N decades for 10 dB.
    """
    frames = 5000 if kind == "ofdm" else 20_000
    link = make_link(kind, antennas=antennas, **({"profile": "rayleigh"} if kind == "ofdm" else {}))
    h = link.draw([1] * frames, 2, torch.Generator().manual_seed(8), torch.float64)["fading"][:, 0]
    power, k = h.abs().square(), 10**0.9 if kind == "rician" else 0.0
    assert has_mean(power, antennas)
    assert has_mean((power - antennas).square(), antennas * theory.power_variance(k))
    for a in (0.3, 1.0, 3.0):
        p = theory.power_cdf(a, k, antennas)
        assert abs((power < a).double().mean() - p) < 5 * math.sqrt(p * (1 - p) / frames)
    small = 1e-3
    assert theory.power_cdf(small, 0.0, antennas) == pytest.approx(small**antennas / math.factorial(antennas), rel=2e-3)
    high = [theory.bit_error_rate(2, snr_db, True, antennas) for snr_db in (40.0, 50.0)]
    assert math.log10(high[0] / high[1]) == pytest.approx(antennas, rel=1e-3)


def test_one_antenna_is_drawn_as_ever_and_two_are_two():
    """The gain of two antennas is the root of the summed powers of the next gains of the one-antenna generator."""
    drawn = make_link("rayleigh").draw([6], 2, torch.Generator().manual_seed(1), torch.float64)
    both = make_link("rayleigh", antennas=2).draw([3], 2, torch.Generator().manual_seed(2), torch.float64)
    generator = torch.Generator().manual_seed(2)
    torch.randn(3, 1, dtype=torch.complex128, generator=generator)  # the noise
    h = torch.randn(2, 3, 1, dtype=torch.complex128, generator=generator)
    torch.testing.assert_close(both["fading"].abs(), h.abs().square().sum(0).sqrt())
    assert not both["fading"].imag.any() and drawn["fading"].imag.all()
