"""Closed forms against the numbers of the literature, and against integrals and sums that do not share their code."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest
from scipy import integrate, special, stats

from semcom.channels import theory


def integral(value, k_factor: float = 0.0, low: float = 0.0) -> float:
    """Of `value` over the density of Rician power with E|h|^2 = 1, from `low` to 60, by quadrature."""
    k = k_factor

    def integrand(a: float) -> float:
        bent = 2 * math.sqrt(k * (1 + k) * a)
        return value(a) * (1 + k) * math.exp(-k - (1 + k) * a + bent) * special.ive(0, bent)

    edges = [low, *(a for a in (1e-4, 0.01, 0.1, 1.0, 4.0) if low < a), 60.0]
    return sum(integrate.quad(integrand, a, b, epsabs=1e-14, epsrel=1e-10)[0] for a, b in pairwise(edges))


def mean_over_fading(value, k_factor: float = 0.0, least: float = 0.0) -> float:
    """E[value(|h|^2) | |h|^2 > least]."""
    return integral(value, k_factor, least) / integral(lambda a: 1.0, k_factor, least)


def enumerated(bits: int, snr_db: float) -> float:
    """Compute the bit error rate of one axis of Gray-mapped QAM by enumerating sent and decided levels."""
    levels = 2 ** (bits // 2)
    gray = [i ^ (i >> 1) for i in range(levels)]
    at = np.arange(levels) * 2.0 - (levels - 1)
    deviation = math.sqrt(theory.noise_power(snr_db) / 2) * math.sqrt(2 * (at**2).mean())  # E|symbol|^2 = 2 mean(at^2)
    borders = np.concatenate([[-np.inf], (at[1:] + at[:-1]) / 2, [np.inf]])
    wrong = 0.0
    for i in range(levels):
        chance = np.diff(stats.norm.cdf((borders - at[i]) / deviation))
        wrong += sum(chance[j] * (gray[i] ^ gray[j]).bit_count() for j in range(levels))
    return wrong / levels / (bits // 2)


@pytest.mark.parametrize("bits", [2, 4, 6, 8])
@pytest.mark.parametrize("snr_db", [-3.0, 7.0, 14.0])
def test_bit_error_rate_over_awgn_counts_every_decision(bits, snr_db):
    assert theory.bit_error_rate(bits, snr_db) == pytest.approx(enumerated(bits, snr_db), rel=1e-9, abs=1e-15)


def test_bit_error_terms_of_qpsk_and_16_qam():
    """Q(sqrt(2g)), and [3Q(r) + 2Q(3r) - Q(5r)]/4 with r = sqrt(4g/5)."""
    (weight,), (factor,) = theory.bit_error_terms(2)
    assert (weight, factor) == (1, 1)
    weights, factors = theory.bit_error_terms(4)
    np.testing.assert_allclose(weights, [3 / 4, 2 / 4, -1 / 4], rtol=1e-15)
    np.testing.assert_allclose(factors, [2 / 5, 18 / 5, 10], rtol=1e-15)


@pytest.mark.parametrize(("bits", "snr_db"), [(2, 0.0), (4, 12.0), (6, 0.0)])
def test_bit_error_rate_over_rayleigh_is_the_mean_over_its_powers(bits, snr_db):
    mean = mean_over_fading(lambda a: enumerated(bits, snr_db + 10 * math.log10(a) if a else -200.0))
    assert theory.bit_error_rate(bits, snr_db, fading=True) == pytest.approx(mean, rel=1e-6)


def test_bit_error_rate_over_rayleigh_at_a_high_snr():
    """QPSK: 1 / (4 Eb/N0) for large Eb/N0. The difference 1 - sqrt(..) would be 0 here."""
    assert theory.bit_error_rate(2, 190.0, fading=True) == pytest.approx(2 / 4 * 1e-19, rel=1e-9)


@pytest.mark.parametrize(("snr_db", "bits"), [(0.0, 0.860), (10.0, 2.907), (20.0, 5.884)])
def test_ergodic_capacity(snr_db, bits):
    assert theory.ergodic_capacity(snr_db) == pytest.approx(bits, abs=5e-4)
    no = theory.noise_power(snr_db)
    assert theory.ergodic_capacity(snr_db) == pytest.approx(mean_over_fading(lambda a: math.log2(1 + a / no)), rel=1e-8)


def test_mean_square_errors():
    assert theory.mean_square_error("mmse", 0.1) == pytest.approx(0.2015, abs=5e-5)
    assert theory.mean_square_error("zf", 0.1, least=0.01) == pytest.approx(0.408, abs=5e-4)
    assert theory.mean_square_error("zf", 0.1) == math.inf
    assert theory.mean_square_error("none", 0.1) == 2.1
    assert theory.mean_square_error("mmse", 0.0) == 0 == theory.mean_square_error("zf", 0.0)
    assert theory.ergodic_capacity(math.inf) == math.inf
    for no in (0.01, 1.0, 30.0):
        mmse = mean_over_fading(lambda a, no=no: no / (a + no))
        assert theory.mean_square_error("mmse", no) == pytest.approx(mmse, rel=1e-7)
        zf = mean_over_fading(lambda a, no=no: no / a, least=0.1)
        assert theory.mean_square_error("zf", no, least=0.1) == pytest.approx(zf, rel=1e-7)


def test_scaled_exponential_integral_is_smooth_where_its_form_changes():
    """x e^x E1(x) = 1 - 1/x + 2/x^2 - ... Computed directly, exp(x) overflows from 710 on."""
    below, above = theory.scaled_exponential_integral(np.array([499.999, 500.001]))
    assert below == pytest.approx(above, rel=2e-5)
    assert theory.scaled_exponential_integral(1e300) == pytest.approx(1e-300)


@pytest.mark.parametrize("k_factor", [0.0, 0.5, 4.0])
def test_power_of_fading(k_factor):
    a = np.array([0.05, 0.7, 2.0])
    for least, p in zip(a, theory.power_cdf(a, k_factor), strict=True):
        below = (
            mean_over_fading(lambda x, least=least: float(x < least), k_factor) if k_factor else 1 - math.exp(-least)
        )
        assert p == pytest.approx(below, abs=1e-4)
    assert mean_over_fading(lambda x: x, k_factor) == pytest.approx(1, rel=1e-8)
    variance = mean_over_fading(lambda x: (x - 1) ** 2, k_factor)
    assert theory.power_variance(k_factor) == pytest.approx(variance, rel=1e-7)


def test_orthogonal_clients_share_time():
    """Four clients in one band: each has a quarter of it and takes four times as long."""
    assert theory.airtime_s(1000.0, 4, 1e6) == 4 * theory.airtime_s(1000.0, 1, 1e6) == 4e-3
