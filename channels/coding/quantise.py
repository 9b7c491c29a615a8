"""Uniform quantisation of numbers of mean square 1 to a given number of bits in all."""

from __future__ import annotations

from functools import lru_cache

import torch
from torch import Tensor

STEPS = {1: 1.596, 2: 0.9957, 3: 0.5860, 4: 0.3352}
"""Step for each number of bits, with the least mean square error for Gaussian numbers of variance 1 [Max, Table II].

J. Max, "Quantizing for minimum distortion", IRE Trans. Inf. Theory 6(1). The range is step x 2^bits / 2 either way:
1.6, 2.0, 2.3 and 2.7. Numbers beyond are clipped to the outermost level. 256-QAM carries less than four bits.
"""


@lru_cache(maxsize=32)
def make_quantiser(s: int, bits: int, device: torch.device) -> Quantiser:
    """Build the `Quantiser` of these numbers, once."""
    return Quantiser(s, bits, device)


class Quantiser:
    """Quantiser of `s` pairs of numbers in `bits` bits, shared out evenly: the first pairs get one bit per number more.

    A number's level is the middle of its cell, and its label counts the cells from below. A pair without bits is not
    sent: it arrives as zeros.

    Args:
        s: pairs of numbers.
        bits: even, at most 8 s.
        device: of its tensors.
    """

    def __init__(self, s: int, bits: int, device: torch.device) -> None:
        each, more = divmod(bits // 2, s)
        self.s = s
        parts = [(2 * n, q) for n, q in ((more, each + 1), (s - more, each)) if n]
        self._parts = [(n, q, torch.arange(q - 1, -1, -1, device=device)) for n, q in parts]  # the highest bit first
        self.sent: Tensor | None = None
        """Complex 1 or 0 `[s]` for pairs that are sent or not (None: all are sent)."""
        if not each:
            self.sent = (torch.arange(s, device=device) < more).to(torch.complex64)

    def bits(self, values: Tensor) -> Tensor:
        """Quantise numbers `[N, 2 s]` to bits, int64 `[N, bits]`."""
        parts = []
        for numbers, (_, q, places) in zip(values.split([n for n, *_ in self._parts], 1), self._parts, strict=True):
            if q:
                cell = (numbers / STEPS[q] + 2 ** (q - 1)).floor().clamp(0, 2**q - 1).long()
                parts.append((cell.unsqueeze(-1) >> places & 1).flatten(1))
        return torch.cat(parts, 1)

    def values(self, bits: Tensor, dtype: torch.dtype) -> Tensor:
        """Reconstruct numbers `[N, 2 s]` from bits `[N, bits]`."""
        parts, start = [], 0
        for n, q, places in self._parts:
            if q:
                labels = bits[:, start : start + n * q].long().unflatten(1, (n, q))
                cell = (labels << places).sum(-1)
                parts.append((cell.to(dtype) + (0.5 - 2 ** (q - 1))) * STEPS[q])
            else:
                parts.append(torch.zeros(len(bits), n, dtype=dtype, device=bits.device))
            start += n * q
        return torch.cat(parts, 1)
