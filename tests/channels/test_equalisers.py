"""Equalisers without gain and without noise. Their errors are measured in test_check.py."""

from __future__ import annotations

import math

import pytest
import torch

from semcom.channels import make_link


@pytest.mark.parametrize("kind", ["mmse", "zf"])
def test_a_gain_of_zero_gives_zero_not_nan(kind):
    """Lost symbols arrive as zeros and have no gradient. Without noise MMSE would divide zero by zero."""
    link = make_link("rayleigh", equaliser=kind)
    drawn = {"noise": torch.zeros(1, 2, 4).to(torch.complex64), "fading": torch.zeros(1, 2, 1).to(torch.complex64)}
    for snr_db in (10.0, math.inf):
        sent = torch.randn(1, 2, 8, generator=torch.Generator().manual_seed(6)).requires_grad_()
        received = link(sent, drawn, torch.tensor([snr_db]))
        assert torch.equal(received, torch.zeros(1, 2, 8))
        (gradient,) = torch.autograd.grad(received, sent, torch.randn_like(received))
        assert torch.equal(gradient, torch.zeros(1, 2, 8))


def test_without_noise_zero_forcing_and_mmse_invert_the_channel(stack):
    symbols = torch.randn(2, 3, 4, dtype=torch.complex128, generator=torch.Generator().manual_seed(5))
    for equaliser in ("zf", "mmse"):
        link = make_link("rayleigh", equaliser=equaliser)
        received = link.transmit(symbols, stack(link, [3], 8, (6, 7)), torch.full((2,), math.inf))
        torch.testing.assert_close(received, symbols, rtol=1e-12, atol=1e-12)
