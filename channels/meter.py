"""Meter of the SNR that a receiver really had, and of the bits and blocks that it got wrong."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from channels.power import to_features


class Meter:
    """Meter that adds up received signal power |h x|^2 and noise power |n|^2, in units of the transmit power.

    Of a link that sends bits it counts `errors` too: wrong bits, bits, lost blocks and blocks, where a block is lost if
    any of its bits is wrong. All sums are float64 tensors on the device of the link (None before the first use), so
    adding never waits for the device. Padding does not count. A link without noise adds none.
    """

    def __init__(self) -> None:
        self.signal: Tensor | None = None
        self.noise: Tensor | None = None
        self.errors: Tensor | None = None

    def add(self, signal: Tensor, noise: Tensor | None, unit: Tensor | float, mask: Tensor | None) -> None:
        """Add the powers of one transmission.

        Args:
            signal: faded symbols h x, complex `[k, ..., n]`.
            noise: that was added to them, of the same shape (None: none).
            unit: r.m.s. of unit-power symbols in these tensors, broadcastable to `[k, ..., 1]`.
            mask: bool `[k, ...]`, True for valid samples (None: for all).
        """
        heard = _measure_energy(signal, unit, mask)
        self.signal = heard if self.signal is None else self.signal.add_(heard)  # in place, for steps in a CUDA graph
        disturbed = torch.zeros_like(heard) if noise is None else _measure_energy(noise, unit, mask)
        self.noise = disturbed if self.noise is None else self.noise.add_(disturbed)

    def count(self, wrong: Tensor, mask: Tensor | None) -> None:
        """Add blocks of bits, wrong ones True, bool `[k, b, bits]`; the mask is that of `add`."""
        valid = torch.ones_like(wrong[..., 0]) if mask is None else mask
        lost, blocks = (wrong.any(-1) & valid).sum(), valid.sum()
        bad = (wrong & valid.unsqueeze(-1)).sum()
        errors = torch.stack([bad, blocks * wrong.shape[-1], lost, blocks]).double()
        self.errors = errors if self.errors is None else self.errors.add_(errors)

    def snr_db(self) -> float:
        """Return the received SNR in dB: inf without noise, nan when nothing was sent. Waits for the device."""
        signal = 0.0 if self.signal is None else float(self.signal)
        noise = 0.0 if self.noise is None else float(self.noise)
        return ratio_db(signal, noise)

    def take(self, device: torch.device) -> Tensor:
        """Return the sums of signal and noise, and `errors`, float64 `[6]` on `device`, and begin again."""
        sums = torch.zeros(6, dtype=torch.float64, device=device)
        for at, t in ((0, self.signal), (1, self.noise), (slice(2, None), self.errors)):
            if t is not None:
                sums[at] = t
        self.signal = self.noise = self.errors = None
        return sums


def ratio_db(signal: float, noise: float) -> float:
    """Return an SNR in dB from the two powers: inf without noise, nan without a signal."""
    if signal == 0.0 or noise == 0.0:
        return math.nan if signal == 0.0 else math.inf
    ratio = signal / noise
    return 10.0 * (math.log10(ratio) if ratio else math.log10(signal) - math.log10(noise))  # which may underflow


def _measure_energy(symbols: Tensor, unit: Tensor | float, mask: Tensor | None) -> Tensor:
    """Return the sum of |symbol / unit|^2 over valid samples, 0-dim float64; with a unit of zero nothing was sent."""
    power = torch.linalg.vector_norm(to_features(symbols), dim=-1).square()
    if isinstance(unit, Tensor):
        power = power / unit.squeeze(-1).square().clamp_min(torch.finfo(power.dtype).tiny)
    else:
        power = power / unit**2
    return (power if mask is None else torch.where(mask, power, 0.0)).sum(dtype=torch.float64)
