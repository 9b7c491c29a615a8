"""Noise and fading coefficients against their closed forms."""

from __future__ import annotations

import math

import pytest
import torch
from scipy import stats

from channels import make_link, theory
from channels.fading import COHERENCES

FIVE_SIGMA = 2 * stats.norm.sf(5)  # two-sided probability, the smallest p-value that a test here accepts
N = 100_000


def test_noise_has_variance_no_and_the_kurtosis_of_a_complex_gaussian(stack, within):
    link = make_link("awgn")
    sent = torch.ones(1, N, dtype=torch.complex128)
    up = {name: tensor[0] for name, tensor in stack(link, [1], 2 * N).items()}
    no = 10**-0.7
    noise = link.transmit(sent, up, torch.tensor([7.0], dtype=torch.float64)) - sent
    within(noise.abs().square(), no)
    within(noise.real.square(), no / 2)
    within(noise.imag.square(), no / 2)
    within(noise.real * noise.imag, 0.0)
    # u = |n|^2 / no is exponential; by the delta method mean(u^2) / mean(u)^2 has variance
    # (var u^2 - 8 cov(u^2, u) + 16 var u) / N = (20 - 32 + 16) / N = 4 / N.
    power = noise.abs().square()
    kurtosis = power.square().mean() / power.mean().square()
    assert abs(kurtosis - 2) < 5 * 2 / math.sqrt(N)


def test_rayleigh_power_and_phase():
    link = make_link("rayleigh", coherence="sample")
    h = link.draw([N], 2, torch.Generator().manual_seed(1), torch.float64)["fading"][:, 0]
    power = h.abs().square()
    assert abs(power.mean() - 1) < 5 / math.sqrt(N)  # var|h|^2 = 1
    assert abs(power.var() - 1) < 5 * math.sqrt(8 / N)  # variance of a sample variance: (mu4 - 1) / N, mu4 = 9
    for a in (0.1, 1.0, 3.0):
        p = theory.power_cdf(a)
        assert abs((power < a).double().mean() - p) < 5 * math.sqrt(p * (1 - p) / N)
    assert stats.kstest(power.numpy(), "expon").pvalue > FIVE_SIGMA
    assert stats.kstest(h.angle().numpy(), stats.uniform(-math.pi, 2 * math.pi).cdf).pvalue > FIVE_SIGMA


@pytest.mark.parametrize("k_factor_db", [-100.0, 0.0, 6.0, 100.0])
def test_rician_power_and_k_factor(k_factor_db):
    """|h|^2 is noncentral chi-square: mean 1, variance (1 + 2 K) / (1 + K)^2, from which the K-factor follows."""
    k = 10 ** (k_factor_db / 10)
    link = make_link("rician", k_factor_db=k_factor_db)
    h = link.draw([N], 2, torch.Generator().manual_seed(4), torch.float64)["fading"][:, 0]
    power = h.abs().square()
    law = stats.ncx2(2, 2 * k, scale=1 / (2 * (k + 1)))  # |h|^2 = (a^2 + b^2), a, b normal of variance 1 / (2 (K + 1))
    variance = theory.power_variance(k)
    assert law.var() == pytest.approx(variance, rel=1e-4) if k < 1e6 else variance < 1e-9
    assert abs(power.mean() - 1) < 5 * math.sqrt(variance / N)
    assert abs(h.mean()) < 5 / math.sqrt(N)  # the line of sight has no fixed phase
    assert stats.kstest(h.angle().numpy(), stats.uniform(-math.pi, 2 * math.pi).cdf).pvalue > FIVE_SIGMA
    if k < 1e6:
        fourth = float(law.stats(moments="k")) + 3
        assert abs(power.var() - variance) < 5 * variance * math.sqrt((fourth - 1) / N)
        assert stats.kstest(power.numpy(), law.cdf).pvalue > FIVE_SIGMA


def test_rician_line_of_sight_and_scatter_are_told_apart():
    """Without scatter |h| is 1; without a line of sight the link is Rayleigh, from the same numbers."""
    draw = {k: make_link("rician", k_factor_db=k).draw([50], 2, torch.Generator().manual_seed(5)) for k in (100, -100)}
    rayleigh = make_link("rayleigh").draw([50], 2, torch.Generator().manual_seed(5))
    assert torch.allclose(draw[100]["fading"].abs(), torch.ones(50, 1), atol=1e-4)
    assert torch.allclose(draw[-100]["fading"], rayleigh["fading"], atol=1e-4)


@pytest.mark.parametrize("kind", ["rayleigh", "rician"])
@pytest.mark.parametrize("coherence", COHERENCES)
def test_fading_is_equal_inside_a_block_and_independent_across_blocks(kind, coherence):
    """Blocks by hand; neighbouring blocks are uncorrelated: mean(h1 conj(h2)) has variance 1 / pairs in each case."""
    sizes, s, rounds = [3, 2], 4, 2000
    link = make_link(kind, coherence=coherence)
    generator = torch.Generator().manual_seed(2)
    h = torch.stack([link.draw(sizes, 2 * s, generator, torch.float64)["fading"] for _ in range(rounds)])
    h = h.expand(rounds, 5, s)
    block = {
        "symbol": torch.arange(20).view(5, 4),
        "sample": torch.arange(5)[:, None].expand(5, 4),
        "batch": torch.tensor([0, 0, 0, 1, 1])[:, None].expand(5, 4),
        "round": torch.zeros(5, 4, dtype=torch.int64),
    }[coherence]
    one = h[0].flatten()
    assert torch.equal(one[:, None] == one[None], block.flatten()[:, None] == block.flatten()[None])
    first = torch.stack([h[:, block == i][:, 0] for i in range(int(block.max()) + 1)], 1)  # [rounds, blocks]
    series = first.flatten()  # the blocks in the order of time, over the rounds' borders too
    correlation = (series[:-1] * series[1:].conj()).mean()
    assert abs(correlation) < 5 / math.sqrt(len(series) - 1)


def test_received_snr_of_a_block_is_exponential(stack):
    """Blocks of 8 symbols at 10 dB: |h|^2 / no has mean 10, and 1 - exp(-0.1) of the blocks fall below 0 dB."""
    blocks = 20_000
    link = make_link("rayleigh", equaliser="none", coherence="sample")
    up = stack(link, [blocks], 16, (3,))
    silent = {"noise": up["noise"] * 0, "fading": up["fading"]}
    ones = torch.ones(1, blocks, 8, dtype=torch.complex128)
    snr_db = torch.tensor([10.0], dtype=torch.float64)
    faded = link.transmit(ones, silent, snr_db)
    noise = link.transmit(ones, up, snr_db) - faded
    received = faded.abs().square().mean(-1).flatten() / noise.abs().square().mean()
    no_error = 1 / math.sqrt(8 * blocks)  # relative standard error of the measured noise
    assert abs(received.mean() - 10) < 5 * 10 * math.hypot(1 / math.sqrt(blocks), no_error)
    outage = theory.power_cdf(0.1)
    assert abs((received < 1).double().mean() - outage) < 5 * (
        math.sqrt(outage * (1 - outage) / blocks) + 0.1 * math.exp(-0.1) * no_error
    )
    assert stats.kstest((received / received.mean()).numpy(), "expon").pvalue > FIVE_SIGMA


@pytest.mark.parametrize("antennas", [1, 2, 4])
@pytest.mark.parametrize("kind", ["rayleigh", "rician", "ofdm"])
def test_combined_antennas_have_the_power_of_all(kind, antennas, within):
    """g^2 = sum |h_i|^2 is Gamma(N) over Rayleigh fading: mean and variance N; outages fall as a^N / N!."""
    frames = 5000 if kind == "ofdm" else N
    link = make_link(kind, antennas=antennas, **({"profile": "rayleigh"} if kind == "ofdm" else {}))
    h = link.draw([1] * frames, 2, torch.Generator().manual_seed(8), torch.float64)["fading"][:, 0]
    power, k = h.abs().square(), 10**0.9 if kind == "rician" else 0.0
    within(power, antennas)
    within((power - antennas).square(), antennas * theory.power_variance(k))
    for a in (0.3, 1.0, 3.0):
        p = theory.power_cdf(a, k, antennas)
        assert abs((power < a).double().mean() - p) < 5 * math.sqrt(p * (1 - p) / frames)
    small = 1e-3
    assert theory.power_cdf(small, 0.0, antennas) == pytest.approx(small**antennas / math.factorial(antennas), rel=2e-3)


@pytest.mark.parametrize("antennas", [2, 4])
def test_the_bit_error_rate_falls_with_the_power_of_the_antennas(antennas, stack, within):
    """QPSK against its closed form, whose slope at high SNRs is N decades for 10 dB."""
    link = make_link("rayleigh", equaliser="mmse", coherence="symbol", antennas=antennas)
    signs = 1.0 - 2.0 * torch.randint(2, (N, 2), generator=torch.Generator().manual_seed(9)).double()
    sent = torch.view_as_complex(signs / math.sqrt(2))[None]
    up = {name: t[0] for name, t in stack(link, [1], 2 * N, (10,)).items()}
    for snr_db in (-6.0, 4.0):
        got = torch.view_as_real(link.transmit(sent, up, torch.tensor([snr_db], dtype=torch.float64)))[0]
        within((got * signs < 0).double().mean(-1), theory.bit_error_rate(2, snr_db, True, antennas))
    high = [theory.bit_error_rate(2, snr_db, True, antennas) for snr_db in (40.0, 50.0)]
    assert math.log10(high[0] / high[1]) == pytest.approx(antennas, rel=1e-3)


def test_one_antenna_is_drawn_as_ever_and_two_are_two():
    """Two antennas' gain is the root of the summed powers of the gains that one antenna's generator gives next."""
    drawn = make_link("rayleigh").draw([6], 2, torch.Generator().manual_seed(1), torch.float64)
    both = make_link("rayleigh", antennas=2).draw([3], 2, torch.Generator().manual_seed(2), torch.float64)
    generator = torch.Generator().manual_seed(2)
    torch.randn(3, 1, dtype=torch.complex128, generator=generator)  # the noise
    h = torch.randn(2, 3, 1, dtype=torch.complex128, generator=generator)
    torch.testing.assert_close(both["fading"].abs(), h.abs().square().sum(0).sqrt())
    assert not both["fading"].imag.any() and drawn["fading"].imag.all()
