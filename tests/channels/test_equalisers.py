"""Mean square errors and bit error rates against their closed forms, through `Link.transmit`."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from channels import Link, make_link, theory

N = 100_000
NO = 0.1
SNR_DB = torch.tensor([10.0], dtype=torch.float64)


def symbol_link(kind: str) -> Link:
    """The link with ZF and a gain per symbol, where it fades."""
    return make_link(kind, **({} if kind == "awgn" else {"equaliser": "zf", "coherence": "symbol"}))


def qpsk(generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Bits [N, 2] and symbols [1, N] of unit power: bit 0 is positive."""
    bits = torch.randint(2, (N, 2), generator=generator)
    return bits, torch.view_as_complex((1.0 - 2.0 * bits.double()) / math.sqrt(2))[None]


def qam16(generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Bits [N, 4] and Gray-mapped symbols [1, N]: per dimension a sign bit and an inner/outer bit."""
    bits = torch.randint(2, (N, 2, 2), generator=generator)
    levels = (1.0 - 2.0 * bits[..., 0]) * (1.0 + 2.0 * bits[..., 1]) / math.sqrt(10)
    return bits.flatten(1), torch.view_as_complex(levels.double())[None]


def decide_qpsk(symbols: Tensor) -> Tensor:
    return (torch.view_as_real(symbols[0]) < 0).long()


def decide_qam16(symbols: Tensor) -> Tensor:
    """The signs of the max-log ratios: which side of 0, and which side of +-2/sqrt(10)."""
    parts = torch.view_as_real(symbols[0])
    return torch.stack([parts < 0, parts.abs() > 2 / math.sqrt(10)], -1).flatten(1).long()


@pytest.mark.parametrize("kind", ["awgn", "rayleigh"])
@pytest.mark.parametrize("bits", [2, 4])
@pytest.mark.parametrize("snr_db", [4.0, 10.0])
def test_uncoded_bit_error_rate(kind, bits, snr_db, stack, within):
    """Bits of a symbol share its h, so the independent unit is the symbol."""
    sent, symbols = (qpsk if bits == 2 else qam16)(torch.Generator().manual_seed(1))
    link = symbol_link(kind)
    up = {name: tensor[0] for name, tensor in stack(link, [1], 2 * N, (2,)).items()}
    received = link.transmit(symbols, up, torch.tensor([snr_db], dtype=torch.float64))
    wrong = (decide_qpsk if bits == 2 else decide_qam16)(received) != sent
    within(wrong.double().mean(-1), theory.bit_error_rate(bits, snr_db, fading=kind == "rayleigh"))


@pytest.mark.parametrize("kind", ["mmse", "zf", "none"])
def test_mean_square_error_after_equalising(kind, stack, within):
    """At no = 0.1: ZF no/|h|^2, truncated at |h|^2 > a: no e^a E1(a); MMSE no/(|h|^2 + no), mean no e^no E1(no)."""
    link = make_link("rayleigh", equaliser=kind, coherence="symbol")
    up = {name: tensor[0] for name, tensor in stack(link, [1], 2 * N, (3,)).items()}
    _, symbols = qpsk(torch.Generator().manual_seed(4))
    error = (link.transmit(symbols, up, SNR_DB) - symbols).abs().square()[0]
    power = up["fading"][0].abs().square()
    known = power > (0.01 if kind == "zf" else 0.0)
    within(error[known], theory.mean_square_error(kind, NO, least=0.01 if kind == "zf" else 0.0))
    if kind == "zf":  # given h: the error in units of no/|h|^2 is exponential with mean 1
        within(error * power / NO, 1.0)


@pytest.mark.parametrize("kind", ["mmse", "zf"])
def test_a_gain_of_zero_gives_zero_not_nan(kind):
    """What is lost arrives as zeros, and has no gradient; without noise MMSE would divide zero by zero."""
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
