"""What uncoded numbers meet on average, and the sum over the air, against closed forms."""

from __future__ import annotations

import math

import pytest
import torch
from scipy import special
from torch import Tensor

from channels import make_link
from channels.link import complex_normal
from channels.superposition import SAMPLES, Inversion, average_superposed_gain, draw_superposed_gains

N, S = 6, 40_000
"""Clients, and symbols of each."""


def complexes(seed: int, *shape: int) -> Tensor:
    return complex_normal(shape, torch.Generator().manual_seed(seed), torch.float64)


def generator() -> torch.Generator:
    return torch.Generator().manual_seed(5)


def near(samples: Tensor, expected: float) -> bool:
    """Whether independent samples have this mean, within 5 standard errors."""
    return bool((samples.mean() - expected).abs() <= 5 * samples.std() / samples.numel() ** 0.5 + 1e-12)


SCALES = torch.linspace(0.5, 2.0, N, dtype=torch.float64)[:, None]


def numbers() -> Tensor:
    return SCALES * complexes(1, N, S)


@pytest.mark.parametrize("coherence", ["symbol", "sample", "round"])
@pytest.mark.parametrize("snr", [0.0, 10.0])
def test_an_mmse_equaliser_shrinks_by_its_mean_gain(coherence: str, snr: float) -> None:
    """Over Rayleigh fading E[a] = 1 - no e^no E1(no); a is in [0, 1], so its standard deviation is below 1/2."""
    link, no = make_link("rayleigh", coherence=coherence), 10 ** (-snr / 10)
    found = average_superposed_gain(link, draw_superposed_gains(link), torch.tensor([snr], dtype=torch.float64))
    assert found is not None
    assert float(found) == pytest.approx(1 - no * math.exp(no) * special.exp1(no), abs=2.5 / (SAMPLES / 4) ** 0.5)


@pytest.mark.parametrize(("kind", "options"), [("awgn", {}), ("rayleigh", {"equaliser": "zf"}), ("ideal", {})])
def test_nothing_else_shrinks(kind: str, options: dict[str, str]) -> None:
    link = make_link(kind, **options)
    assert average_superposed_gain(link, draw_superposed_gains(link), torch.tensor([0.0])) is None


@pytest.mark.parametrize("csi_error", [0.0, 0.1])
@pytest.mark.parametrize("threshold", [0.1, 0.5])
def test_the_means_of_truncated_inversion(threshold: float, csi_error: float) -> None:
    """With |g|^2 exponential of mean m = 1 + error: c = E1(threshold / m) / m, q = exp(-threshold / m) / m."""
    gains = complexes(0, 400_000)
    inversion, m = Inversion.over(gains, threshold, csi_error), 1 + csi_error
    assert inversion.power == pytest.approx(special.exp1(threshold / m) / m, rel=0.02)
    assert inversion.mean == pytest.approx(math.exp(-threshold / m) / m, rel=0.01)
    arrives, kept = inversion.invert(complexes(3, 8, 50_000), generator())
    assert near(kept.double(), math.exp(-threshold / m))
    assert near(arrives.real, 1.0) and near(arrives.imag, 0.0)
    sent = kept.sum(0).double()  # clients that send a symbol
    assert near(sent, 8 * math.exp(-threshold / m))


def test_the_sum_over_awgn_has_the_error_of_its_weakest_client() -> None:
    """1 / alpha^2 = max of r_k^2 / snr_k."""
    values, snr = numbers(), torch.tensor([10.0, 10.0, 0.0, 10.0, 10.0, 10.0], dtype=torch.float64)
    error = Inversion.over(None, 0.1).error(values, None, complexes(2, S), snr)
    powers = values.abs().square().mean(1) / 10 ** (snr / 10)
    assert powers.argmax() == 2
    assert near(error.abs().square(), float(powers[2]))


@pytest.mark.parametrize("threshold", [0.1, 0.5])
def test_the_sum_over_rayleigh_has_the_error_of_truncation_and_noise(threshold: float) -> None:
    """(1/P - 1) sum of r_k^2 + c max of r_k^2 / snr / P^2."""
    values, snr, p = numbers(), torch.full((N,), 10.0, dtype=torch.float64), math.exp(-threshold)
    inversion = Inversion.over(complexes(0, 400_000), threshold)
    arrives, _ = inversion.invert(complexes(3, N, S), generator())
    error = inversion.error(values, arrives, complexes(2, S), snr)
    powers = values.abs().square().mean(1)
    expected = (1 / p - 1) * powers.sum() + special.exp1(threshold) * powers.max() / 10 / p**2
    assert float(error.abs().square().mean()) == pytest.approx(float(expected), rel=0.03)
    assert near(error.real, 0.0)


def test_no_client_exceeds_its_mean_power() -> None:
    """x_k = alpha v_k / g_k has mean square snr_k for the client that sets alpha, less for the others."""
    values, snr, threshold = numbers(), torch.tensor([5.0] * N, dtype=torch.float64), 0.2
    inversion, gains = Inversion.over(complexes(0, 400_000), threshold), complexes(3, N, S)
    one = complexes(2, S)
    error = inversion.error(values, inversion.invert(gains, generator())[0], one, snr)
    quiet = inversion.error(values, inversion.invert(gains, generator())[0], None, snr)
    alpha = 1 / (((error - quiet) / one).abs().mean() * inversion.mean)
    sent = torch.where(gains.abs().square() >= threshold, values / gains, 0.0) * alpha
    powers = sent.abs().square().mean(1) / 10 ** (snr / 10)
    assert powers.argmax() == N - 1 and float(powers.max()) == pytest.approx(1.0, rel=0.03)


def test_without_noise_and_fading_nothing_is_lost() -> None:
    values, snr = numbers(), torch.full((N,), math.inf, dtype=torch.float64)
    assert not Inversion.over(None, 0.1).error(values, None, complexes(2, S), snr).any()
