"""Gradients through the split link."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor
from torch.nn.functional import pad

from semcom.channels import make_link
from semcom.channels.equalise import EQUALISERS
from semcom.channels.power import to_features, to_pairs
from semcom.channels.split import Split
from tests.channels.draws import SNR, at_client, randn

K, B, D = 2, 3, 8


@pytest.mark.parametrize("equaliser", EQUALISERS)
@pytest.mark.parametrize("coherence", ["symbol", "batch"])
def test_gradient_is_exact_for_an_ideal_downlink(equaliser, coherence, stack):
    """Against finite differences, power normalisation included, for a fixed realisation."""
    link = make_link("rayleigh", equaliser=equaliser, coherence=coherence, downlink="ideal")
    up, down = stack(link, [2, 1], D, (1, 2)), stack(link, [2, 1], D, (3, 4))
    x = randn(K, B, D, seed=0).requires_grad_()
    assert torch.autograd.gradcheck(lambda x: link(x, up, SNR), x)
    assert torch.autograd.gradcheck(lambda x: link(x, up, SNR, down=down, down_snr_db=SNR), x)


@pytest.mark.parametrize("kind", ["ideal", "awgn"])
def test_gradient_is_exact_without_fading(kind, stack):
    link = make_link(kind)
    up = stack(link, [B], D, (1, 2))
    assert torch.autograd.gradcheck(lambda x: link(x, up, SNR), randn(K, B, D, seed=0).requires_grad_())


@pytest.mark.parametrize("kind", ["ideal", "awgn", "rayleigh"])
def test_zero_forcing_passes_the_gradient_unchanged(kind, stack):
    link = make_link(kind, **({"equaliser": "zf"} if kind == "rayleigh" else {}))
    gradient = randn(K, B, D, seed=1)
    assert torch.equal(at_client(link, gradient, stack(link, [B], D, (1, 2))), gradient)


def test_adjoint_of_an_unequalised_channel_is_the_conjugate_gain():
    """At h = 0.5 + 2j, (x1, x2) arrives as (0.5 x1 - 2 x2, 2 x1 + 0.5 x2). The gradient takes the transpose."""
    link = make_link("rayleigh", equaliser="none")
    h = torch.full((1, 1, 1), 0.5 + 2j, dtype=torch.complex128)
    x = torch.tensor([[[1.0, 0.0]]], dtype=torch.float64, requires_grad=True)
    received = Split.apply(x, link._hop({"fading": h}, SNR[:1], x, None), None, None)
    assert received.flatten().tolist() == [0.5, 2.0]
    (seen,) = torch.autograd.grad(received, x, torch.tensor([[[1.0, 2.0]]], dtype=torch.float64))
    assert seen.flatten().tolist() == [0.5 * 1 + 2 * 2, -2 * 1 + 0.5 * 2]


@pytest.mark.parametrize("equaliser", EQUALISERS)
def test_noisy_gradient_is_the_written_recipe(equaliser, stack):
    """Scale to r.m.s. 1, symbols, downlink, equaliser, features, scale back, adjoint: step by step as documented."""
    link = make_link("rayleigh", equaliser=equaliser, coherence="symbol")
    up, down = stack(link, [B], D, (1, 2)), stack(link, [B], D, (3, 4))
    gradient = 1e-3 * randn(K, B, D, seed=1)
    rms = gradient.square().mean((1, 2), keepdim=True).sqrt()
    symbols = to_pairs(gradient / rms) / math.sqrt(2)
    landed = rms * to_features(math.sqrt(2) * link.transmit(symbols, down, SNR + 1))
    power = up["fading"].abs().square()
    no = 10 ** (-SNR / 10)[:, None, None]
    effective = {"zf": torch.ones_like(power), "mmse": power / (power + no), "none": up["fading"]}[equaliser]
    expected = to_features(effective.conj().resolve_conj() * to_pairs(landed))
    torch.testing.assert_close(at_client(link, gradient, up, down, SNR + 1), expected, rtol=1e-12, atol=1e-18)


@pytest.mark.parametrize("equaliser", EQUALISERS)
def test_without_feedback_the_gradient_stays_as_it_arrives(equaliser, stack):
    """The adjoint of the effective gain is all that is missing."""
    up, gradient = stack(make_link("rayleigh"), [B], D, (1, 2)), randn(K, B, D, seed=1)
    x = randn(K, B, D, seed=0)
    x = (x / x.square().mean(-1, keepdim=True).sqrt()).requires_grad_()
    seen = {}
    for feedback in ("gain", "none"):
        link = make_link("rayleigh", equaliser=equaliser, feedback=feedback)
        (seen[feedback],) = torch.autograd.grad(link(x, up, SNR), x, gradient)
    along = (gradient * x).mean(-1, keepdim=True)  # what power normalisation takes away
    torch.testing.assert_close(seen["none"], gradient - along * x, rtol=1e-12, atol=1e-12)
    assert torch.allclose(seen["gain"], seen["none"]) == (equaliser == "zf")


def test_variance_of_the_downlink_noise(stack):
    """AWGN: a pair of gradients is rms sqrt(2) times its symbol with noise no/2 per real dimension, so rms^2 no."""
    b, d, rms, no = 500, 64, 1e-4, 10**-0.3
    link = make_link("awgn")
    up, down, snr_db = stack(link, [b], d, (1,)), stack(link, [b], d, (2,)), torch.tensor([3.0])
    gradient = randn(1, b, d, seed=1)
    gradient = rms * gradient / gradient.square().mean().sqrt()
    noise = at_client(link, gradient, up, down, snr_db=snr_db) - gradient
    n = b * d
    assert abs(noise.square().mean() / (rms**2 * no) - 1) < 5 * math.sqrt(2 / n)
    assert abs(noise.mean()) < 5 * rms * math.sqrt(no / n)
    assert abs((noise * gradient).mean()) < 5 * rms**2 * math.sqrt(no / n)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("kind", ["awgn", "rayleigh"])
def test_padding_neither_counts_nor_receives_gradient(kind, dtype, stack):
    """Padding holds a large gradient and noise, and neither reaches the valid samples."""
    link = make_link(kind)
    up, down = stack(link, [B], D, (1, 2), dtype), stack(link, [B], D, (3, 4), dtype)
    padded_up, padded_down = ({n: pad(t, (0, 0, 0, 2), value=1.0) for n, t in hop.items()} for hop in (up, down))
    mask = torch.tensor([True] * B + [False] * 2).expand(K, B + 2)
    gradient = randn(K, B + 2, D, seed=1).to(dtype)
    gradient[:, B:] = 1e6
    seen = at_client(link, gradient, padded_up, padded_down, mask=mask)
    alone = at_client(link, gradient[:, :B], up, down)
    tolerance = 8 * torch.finfo(dtype).eps
    torch.testing.assert_close(seen[:, :B], alone, rtol=tolerance, atol=tolerance)
    assert torch.equal(seen[:, B:], torch.zeros(K, 2, D, dtype=dtype))
    exact = at_client(link, gradient, padded_up, mask=mask)
    assert torch.equal(exact[:, B:], torch.zeros(K, 2, D, dtype=dtype))


def test_a_client_of_padding_alone_gets_zero(stack):
    link = make_link("rayleigh")
    up, down = stack(link, [B], D, (1, 2)), stack(link, [B], D, (3, 4))
    mask = torch.tensor([[True] * B, [False] * B])
    seen = at_client(link, randn(K, B, D, seed=1), up, down, mask=mask)
    assert torch.isfinite(seen).all() and not seen[1].any() and seen[0].all()


@pytest.mark.parametrize(
    ("kind", "options"), [("awgn", {}), ("rayleigh", {"equaliser": "zf"}), ("rayleigh", {"equaliser": "mmse"})]
)
def test_a_noiseless_downlink_is_an_ideal_one(kind, options, stack):
    link = make_link(kind, **options)
    up, down = stack(link, [B], D, (1, 2)), stack(link, [B], D, (3, 4))
    gradient = randn(K, B, D, seed=1)
    seen = at_client(link, gradient, up, down, torch.full((K,), math.inf))
    torch.testing.assert_close(seen, at_client(link, gradient, up), rtol=1e-12, atol=1e-15)


def test_a_zero_gradient_stays_zero(stack):
    link = make_link("rayleigh")
    up, down = stack(link, [B], D, (1, 2)), stack(link, [B], D, (3, 4))
    gradient = randn(K, B, D, seed=1)
    gradient[0] = 0
    seen = at_client(link, gradient, up, down)
    assert not seen[0].any() and seen[1].all()


@pytest.mark.parametrize("scale", [1e-12, 1e-3, 1e9])
def test_the_scale_of_the_gradient_travels_error_free(scale, stack):
    link = make_link("rayleigh")
    up, down = stack(link, [B], D, (1, 2)), stack(link, [B], D, (3, 4))
    gradient = randn(K, B, D, seed=1)
    seen = at_client(link, scale * gradient, up, down)
    torch.testing.assert_close(seen, scale * at_client(link, gradient, up, down), rtol=1e-12, atol=0.0)


def test_the_downlink_has_the_snr_of_the_uplink_unless_told(stack):
    link = make_link("awgn")
    up, down = stack(link, [B], D, (1, 2)), stack(link, [B], D, (3, 4))
    x = randn(K, B, D, seed=0).requires_grad_()
    weights = randn(K, B, D, seed=1)

    def gradient(**options) -> Tensor:
        return torch.autograd.grad((link(x, up, SNR, down=down, **options) * weights).sum(), x)[0]

    assert torch.equal(gradient(), gradient(down_snr_db=SNR))
    assert not torch.equal(gradient(), gradient(down_snr_db=SNR + 1))
