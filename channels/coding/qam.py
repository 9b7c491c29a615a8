"""Square QAM with 5G's Gray mapping (3GPP TS 38.211, 5.1), and the max-log demapper."""

from __future__ import annotations

import math

import torch
from torch import Tensor

SIZES = (4, 16, 64, 256)
"""Constellation sizes that 5G has, all square."""


def count_symbol_bits(modulation: int) -> int:
    """Count the bits per symbol of a constellation. Raises ValueError unless its size is one of `SIZES`."""
    if modulation not in SIZES:
        power = modulation > 1 and math.log2(modulation).is_integer()
        reason = "no square" if power else "no power of two"
        raise ValueError(f"modulation: a constellation of {modulation} points is {reason}; known are 4, 16, 64 and 256")
    return modulation.bit_length() - 1


class QAM:
    """Constellation with E|symbol|^2 = 1.

    Its bits alternate between I and Q, so the two parts are Gray-mapped amplitudes of their own, and demapping takes
    2 sqrt(size) distances instead of `size`.

    Args:
        size: number of points, one of `SIZES`.
        device: of its tensors.
    """

    def __init__(self, size: int, device: torch.device) -> None:
        self.bits = count_symbol_bits(size)
        half = self.bits // 2
        labels = torch.arange(2**half)[:, None] >> torch.arange(half - 1, -1, -1) & 1
        level = torch.zeros(2**half)
        for j in range(half - 1, -1, -1):  # (1 - 2 b0) (4 - (1 - 2 b1) (2 - (1 - 2 b2))), from the inside
            level = (1 - 2 * labels[:, j]) * (2 ** (half - 1 - j) - level)
        self.levels = (level * math.sqrt(1.5 / (size - 1))).to(device)  # mean square (size - 1) / 3 per part, times 2
        self._places = (2 ** torch.arange(half - 1, -1, -1)).to(device)

    def symbols(self, bits: Tensor) -> Tensor:
        """Map bits (0 or 1, any type) `[..., s * bits per symbol]` to symbols, complex64 `[..., s]`."""
        parts = bits.long().unflatten(-1, (bits.shape[-1] // self.bits, self.bits // 2, 2))
        return torch.view_as_complex(self.levels[(parts * self._places[:, None]).sum(-2)])

    def llr(self, received: Tensor) -> Tensor:
        """Compute max-log log p(0)/p(1), times the noise variance, of `[..., s]`: `[..., s * m]`, float32."""
        parts = torch.view_as_real(received.to(torch.complex64))
        distance = (parts - self.levels.view(-1, *[1] * parts.ndim)).square()  # the levels before all else
        each = []
        for j in range(self.bits // 2):
            nearest = distance.unflatten(0, (2**j, 2, -1)).amin((0, 2))  # of the points with bit 0, and with bit 1
            each.append(nearest[1] - nearest[0])
        return torch.stack(each, -2).flatten(-3)
