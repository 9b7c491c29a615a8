"""The average effect of channels on uncoded numbers, and the sum over the air, against closed forms."""

from __future__ import annotations

import math

import pytest
import torch
from scipy import special
from torch import Tensor

from semcom.channels import make_link
from semcom.channels.link import complex_normal
from semcom.channels.statistics import Statistics
from semcom.channels.superposition import Inversion
from tests.samples import has_mean

N, S, SLACK = 6, 40_000, 1e-12
"""Clients, symbols of each, and what rounding adds to five standard errors."""


def complexes(seed: int, *shape: int) -> Tensor:
    return complex_normal(shape, torch.Generator().manual_seed(seed), torch.float64)


def generator() -> torch.Generator:
    return torch.Generator().manual_seed(5)


SCALES = torch.linspace(0.5, 2.0, N, dtype=torch.float64)[:, None]


def numbers() -> Tensor:
    return SCALES * complexes(1, N, S)


def inversion(threshold: float, csi_error: float = 0.0, kind: str = "rayleigh") -> Inversion:
    """N clients that are alike."""
    means = torch.tensor([Statistics(make_link(kind)).invert(threshold, csi_error)] * N, dtype=torch.float64)
    return Inversion(threshold, csi_error, *means.unbind(1))


@pytest.mark.parametrize("csi_error", [0.0, 0.1])
@pytest.mark.parametrize("threshold", [0.1, 0.5])
def test_what_is_sent_is_unbiased(threshold: float, csi_error: float) -> None:
    """|g|^2 is exponential of mean m = 1 + error, and exp(-threshold / m) of the symbols are sent."""
    m = 1 + csi_error
    arrives, kept = inversion(threshold, csi_error).invert(complexes(3, N, 50_000), generator())
    assert has_mean(kept.double(), math.exp(-threshold / m), SLACK)
    assert has_mean(arrives.real, 1.0, SLACK) and has_mean(arrives.imag, 0.0, SLACK)
    sent = kept.sum(0).double()  # clients that send a symbol
    assert has_mean(sent, N * math.exp(-threshold / m), SLACK)


def test_clients_that_fade_otherwise_are_unbiased_too_and_the_loudest_sets_alpha() -> None:
    """One client does not fade (c = q = 1), one does (c = E1(t), q = e^-t), and one is always below the threshold."""
    t, snr = 0.5, torch.tensor([10.0, 10.0, 10.0], dtype=torch.float64)
    c, q = special.exp1(t), math.exp(-t)
    unlike = Inversion(t, 0.0, *torch.tensor([[1.0, 1.0], [c, q], [0.0, 0.0]], dtype=torch.float64).unbind(1))
    gains = torch.stack([torch.ones(S, dtype=torch.complex128), complexes(3, S), torch.full((S,), 0.1 + 0j)])
    arrives, kept = unlike.invert(gains, generator())
    for k, part in enumerate((1.0, 1.0, 0.0)):
        assert has_mean(arrives[k].real, part, SLACK)
    assert kept[0].all() and not kept[2].any()
    assert unlike.measure_loudness(snr).tolist() == pytest.approx([0.1**0.5, (c / 10) ** 0.5 / q, 0.0])


def test_the_sum_over_awgn_has_the_error_of_its_weakest_client() -> None:
    """1 / alpha^2 = max of r_k^2 / snr_k."""
    values, snr = numbers(), torch.tensor([10.0, 10.0, 0.0, 10.0, 10.0, 10.0], dtype=torch.float64)
    quiet = inversion(0.1, kind="awgn")
    error = quiet.error(values, None, complexes(2, S), quiet.measure_loudness(snr))
    powers = values.abs().square().mean(1) / 10 ** (snr / 10)
    assert powers.argmax() == 2
    assert has_mean(error.abs().square(), float(powers[2]), SLACK)


@pytest.mark.parametrize("threshold", [0.1, 0.5])
def test_the_sum_over_rayleigh_has_the_error_of_truncation_and_noise(threshold: float) -> None:
    """(1/P - 1) sum of r_k^2 + c max of r_k^2 / snr / P^2."""
    values, snr, p = numbers(), torch.full((N,), 10.0, dtype=torch.float64), math.exp(-threshold)
    inverse = inversion(threshold)
    arrives, _ = inverse.invert(complexes(3, N, S), generator())
    error = inverse.error(values, arrives, complexes(2, S), inverse.measure_loudness(snr))
    powers = values.abs().square().mean(1)
    expected = (1 / p - 1) * powers.sum() + special.exp1(threshold) * powers.max() / 10 / p**2
    assert float(error.abs().square().mean()) == pytest.approx(float(expected), rel=0.03)
    assert has_mean(error.real, 0.0, SLACK)


def test_no_client_exceeds_its_mean_power() -> None:
    """x_k = alpha v_k / g_k has mean square snr_k for the client that sets alpha, less for the others."""
    values, snr, threshold = numbers(), torch.tensor([5.0] * N, dtype=torch.float64), 0.2
    inverse, gains = inversion(threshold), complexes(3, N, S)
    one, loudness = complexes(2, S), inverse.measure_loudness(snr)
    error, quiet = (inverse.error(values, inverse.invert(gains, generator())[0], n, loudness) for n in (one, None))
    alpha = 1 / ((error - quiet) / one).abs().mean()
    q = math.exp(-threshold)
    sent = torch.where(gains.abs().square() >= threshold, values / gains, 0.0) * alpha / q
    powers = sent.abs().square().mean(1) / 10 ** (snr / 10)
    assert powers.argmax() == N - 1 and float(powers.max()) == pytest.approx(1.0, rel=0.03)


def test_without_noise_and_fading_nothing_is_lost() -> None:
    values, snr = numbers(), torch.full((N,), math.inf, dtype=torch.float64)
    quiet = inversion(0.1, kind="awgn")
    assert not quiet.error(values, None, complexes(2, S), quiet.measure_loudness(snr)).any()


def test_loads_are_powers_over_the_largest() -> None:
    """Equal updates over AWGN at 20 and 0 dB: alpha is the weak one's, the strong one needs a 100th of its power."""
    values, snr_db = numbers()[:1].expand(N, -1), torch.tensor([20.0, 0.0] * (N // 2), dtype=torch.float64)
    quiet = inversion(0.1, kind="awgn")
    loud = quiet.measure_loudness(snr_db)
    assert quiet.find_loads(values, loud).tolist() == pytest.approx([0.01, 1.0] * (N // 2))
    assert quiet.find_loads(0 * values, loud).tolist() == [1.0] * N, "alpha is as large as one likes"
