"""Meter of the SNR that a receiver really had, and of the bits and blocks that it got wrong."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from semcom.channels.power import to_features


class Meter:
    """Meter that adds up received signal power |h x|^2 and noise power |n|^2, in units of the transmit power.

    On a link that sends bits it also counts `errors`: wrong bits, bits, lost blocks and blocks. A block with a wrong
    bit is lost. All sums are float64 tensors on the device of the link (None before the first use), so adding never
    waits for the device. Padding does not count, and a link without noise adds zero noise.
    """

    def __init__(self) -> None:
        self.signal: Tensor | None = None
        self.noise: Tensor | None = None
        self.errors: Tensor | None = None

    def add(self, signal: Tensor, noise: Tensor | None, unit: Tensor | float, mask: Tensor | None) -> None:
        """Add the powers of one transmission.

        Args:
            signal: faded symbols h x, complex `[k, ..., n]`.
            noise: noise added to them, of the same shape (None: no noise).
            unit: r.m.s. of unit-power symbols in these tensors, broadcastable to `[k, ..., 1]`.
            mask: bool `[k, ...]`, True for valid samples (None: all are valid).
        """
        heard = _measure_energy(signal, unit, mask)
        self.signal = heard if self.signal is None else self.signal.add_(heard)  # in place, for steps in a CUDA graph
        disturbed = torch.zeros_like(heard) if noise is None else _measure_energy(noise, unit, mask)
        self.noise = disturbed if self.noise is None else self.noise.add_(disturbed)

    def count(self, wrong: Tensor, mask: Tensor | None) -> None:
        """Add blocks of bits, True where wrong, bool `[k, b, bits]`. The mask is that of `add`."""
        valid = torch.ones_like(wrong[..., 0]) if mask is None else mask
        lost, blocks = (wrong.any(-1) & valid).sum(), valid.sum()
        bad = (wrong & valid.unsqueeze(-1)).sum()
        errors = torch.stack([bad, blocks * wrong.shape[-1], lost, blocks]).double()
        self.errors = errors if self.errors is None else self.errors.add_(errors)

    def snr_db(self) -> float:
        """Compute the received SNR in dB: inf without noise, NaN without transmissions. Waits for the device."""
        signal = 0.0 if self.signal is None else float(self.signal)
        noise = 0.0 if self.noise is None else float(self.noise)
        return ratio_db(signal, noise)

    def take(self, device: torch.device) -> Tensor:
        """Return the sums of signal, noise and `errors`, float64 `[6]` on `device`, and reset them."""
        sums = torch.zeros(6, dtype=torch.float64, device=device)
        for at, t in ((0, self.signal), (1, self.noise), (slice(2, None), self.errors)):
            if t is not None:
                sums[at] = t
        self.signal = self.noise = self.errors = None
        return sums


def ratio_db(signal: float, noise: float) -> float:
    """Compute an SNR in dB from the two powers: inf without noise, NaN without a signal."""
    if signal == 0.0 or noise == 0.0:
        return math.nan if signal == 0.0 else math.inf
    ratio = signal / noise
    return 10.0 * (math.log10(ratio) if ratio else math.log10(signal) - math.log10(noise))  # which may underflow


def _measure_energy(symbols: Tensor, unit: Tensor | float, mask: Tensor | None) -> Tensor:
    """Sum |symbol / unit|^2 over valid samples, 0-dim float64. A unit of zero means that no signal was sent."""
    # Norms in the type of the symbols, their sum in float64: a round adds up millions of symbols.
    power = torch.linalg.vector_norm(to_features(symbols), dim=-1).square()
    if isinstance(unit, Tensor):
        power = power / unit.squeeze(-1).square().clamp_min(torch.finfo(power.dtype).tiny)
    else:
        power = power / unit**2
    return (power if mask is None else torch.where(mask, power, 0.0)).sum(dtype=torch.float64)
