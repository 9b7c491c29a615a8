"""Meter of the SNR that a receiver really had, and of the bits and blocks that it got wrong."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from semcom.channels.power import to_features


class Meter:
    """Meter that adds up received signal power |h x|^2 and noise power |n|^2, in units of the transmit power.

    On a link that sends bits it also counts `errors`: wrong bits, bits, lost blocks and blocks. A block with a wrong
    bit is lost. Padding does not count, and a link without noise adds zero noise.

    Attributes:
        sums: signal, noise and the four counts, float64 `[6]` on the device of the link, so that adding never waits for
            the device (None before the first use). It stays in place, for steps in a CUDA graph.
    """

    def __init__(self) -> None:
        self.sums: Tensor | None = None

    @property
    def signal(self) -> Tensor | None:
        """The signal power so far."""
        return None if self.sums is None else self.sums[0]

    @property
    def noise(self) -> Tensor | None:
        """The noise power so far."""
        return None if self.sums is None else self.sums[1]

    @property
    def errors(self) -> Tensor | None:
        """The counts so far, `[4]`."""
        return None if self.sums is None else self.sums[2:]

    def add(self, signal: Tensor, noise: Tensor | None, unit: Tensor | float, mask: Tensor | None) -> None:
        """Add the powers of one transmission.

        Args:
            signal: faded symbols h x, complex `[k, ..., n]`.
            noise: noise added to them, of the same shape (None: no noise).
            unit: r.m.s. of unit-power symbols in these tensors, broadcastable to `[k, ..., 1]`.
            mask: bool `[k, ...]`, True for valid samples (None: all are valid).
        """
        sums, parts = self._sums_on(signal.device), [signal] if noise is None else [signal, noise]
        if signal.is_cpu or (isinstance(unit, Tensor) and unit.numel() != len(signal)):
            for i, part in enumerate(parts):
                sums[i].add_(_measure_energy(part, unit, mask))
            return
        # The same by a third of the launches. An array of a CPU keeps the order of its sums, and so their last bits.
        norms = sums.new_empty(len(parts), len(signal))
        for part, out in zip(parts, norms, strict=True):
            _measure_norms(part, mask, out)
        if isinstance(unit, Tensor):
            norms.div_(unit.view(-1).clamp_min(torch.finfo(unit.dtype).tiny))
        total = torch.linalg.vector_norm(norms, dim=1)
        sums[: len(parts)].addcmul_(total, total, value=1.0 if isinstance(unit, Tensor) else unit**-2)

    def count(self, wrong: Tensor, mask: Tensor | None) -> None:
        """Add blocks of bits, True where wrong, bool `[k, b, bits]`. The mask is that of `add`."""
        valid = torch.ones_like(wrong[..., 0]) if mask is None else mask
        lost, blocks = (wrong.any(-1) & valid).sum(), valid.sum()
        bad = (wrong & valid.unsqueeze(-1)).sum()
        self._sums_on(wrong.device)[2:].add_(torch.stack([bad, blocks * wrong.shape[-1], lost, blocks]))

    def snr_db(self) -> float:
        """Compute the received SNR in dB: inf without noise, NaN without transmissions. Waits for the device."""
        return ratio_db(*([0.0, 0.0] if self.sums is None else self.sums[:2].tolist()))

    def take(self, device: torch.device) -> Tensor:
        """Return a copy of the sums, float64 `[6]` on `device`, and reset them."""
        if self.sums is None:
            return torch.zeros(6, dtype=torch.float64, device=device)
        taken = self.sums.to(device, copy=True)
        self.sums.zero_()
        return taken

    def _sums_on(self, device: torch.device) -> Tensor:
        if self.sums is None:
            self.sums = torch.zeros(6, dtype=torch.float64, device=device)
        return self.sums


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


def _measure_norms(symbols: Tensor, mask: Tensor | None, out: Tensor) -> None:
    """Write the norm of each client's valid symbols `[k, ..., n]` to `out`, float64 `[k]`."""
    rows = to_features(symbols)
    rows = rows if mask is None else torch.where(mask.unsqueeze(-1), rows, 0.0)
    torch.linalg.vector_norm(rows.flatten(1), dim=1, dtype=out.dtype, out=out)
