"""Bits over complex symbols: 5G LDPC, scrambling, QAM, and back by max-log demapping and decoding.

A block of bits becomes one codeword, or as few of equal length as LDPC's longest allows. Unused bits are padded with
zeros, also in a block of fewer bits than LDPC's shortest codeword or its lowest rate would hold.
"""

from __future__ import annotations

import math
from functools import lru_cache

import torch
from torch import Tensor

from semcom.channels.coding.ldpc import (
    HIGHEST_RATE,
    LONGEST,
    LONGEST_SLOW,
    LOWEST_RATE,
    SHORTEST,
    SLOW_RATE,
    make_ldpc_code,
)
from semcom.channels.coding.qam import QAM

LEAST_NOISE = 1e-30
"""Least noise power that soft bits are weighed by: less would overflow them."""


@lru_cache(maxsize=32)
def make_modem(bits: int, uses: int, modulation: int, device: torch.device) -> Modem:
    """Build the `Modem` of these numbers, once."""
    return Modem(bits, uses, modulation, device)


def split_into_codewords(bits: int, uses: int, modulation: int) -> tuple[int, int, int]:
    """Split `bits` bits in `uses` symbols: number of codewords, information and coded bits of each.

    Raises:
        ValueError: if they need a code rate that 5G does not have.
    """
    m = modulation.bit_length() - 1
    held = max(bits, math.ceil(LOWEST_RATE * uses * m))
    count = math.ceil(held / (LONGEST if held > SLOW_RATE * uses * m else LONGEST_SLOW))
    n = uses // count * m
    k = max(-(-bits // count), SHORTEST, math.ceil(LOWEST_RATE * n))
    if k > HIGHEST_RATE * n:
        raise ValueError(f"bits: {bits} do not fit into {uses} uses of {m} bits; codewords hold {SHORTEST} at least")
    return count, k, n


class Modem:
    """Modem for blocks of `bits` bits in `uses` symbols each.

    Args:
        bits: information bits of a block.
        uses: complex symbols of a block.
        modulation: constellation size, 4, 16, 64 or 256.
        device: of its tensors.

    Raises:
        ValueError: for another constellation, or too many bits.
    """

    def __init__(self, bits: int, uses: int, modulation: int, device: torch.device) -> None:
        self.bits, self.uses = bits, uses
        self._qam = QAM(modulation, device)
        self._count, self._k, self._n = split_into_codewords(bits, uses, modulation)
        self._used = self._count * self._n // self._qam.bits
        self._code = make_ldpc_code(self._k, self._n, self._qam.bits, device)
        # Scrambled as in 5G: bits that are not evenly 0 and 1 would change the power of the symbols.
        scramble = torch.randint(2, (self._n,), generator=torch.Generator().manual_seed(self._n))
        self._flip = (1.0 - 2.0 * scramble).to(device)

    def symbols(self, bits: Tensor) -> Tensor:
        """Modulate bits (0 or 1, any type) `[N, bits]` to symbols, complex64 `[N, uses]` with E|symbol|^2 = 1."""
        blocks = len(bits)
        filled = torch.nn.functional.pad(bits, (0, self._count * self._k - self.bits))
        coded = self._code.encode(filled.reshape(blocks * self._count, self._k))
        symbols = self._qam.symbols((1.0 - 2.0 * coded) * self._flip < 0).reshape(blocks, self._used)
        return torch.nn.functional.pad(symbols, (0, self.uses - self._used))

    def receive(self, received: Tensor, gain: Tensor | None, no: Tensor) -> tuple[Tensor, Tensor]:
        """Demodulate to bits, bool `[N, bits]`, and whether each block was decoded (all parity checks hold), `[N]`.

        Args:
            received: h x + n, complex `[N, uses]`.
            gain: h, known to the receiver, complex, `[N, uses]` or `[N, 1]` (None: 1).
            no: E|n|^2, known to the receiver, real, `[N, 1]` or `[1, 1]`. 0 counts as `LEAST_NOISE`.
        """
        blocks, used = len(received), self._used
        weight = 1 / no.to(torch.float32).clamp_min(LEAST_NOISE)
        if gain is not None:
            strength = (gain.real.square() + gain.imag.square()).to(torch.float32)
            received = received * gain.conj() / strength.clamp_min(torch.finfo(torch.float32).tiny)
            weight = strength * weight
        llr = self._qam.llr(received[:, :used]).unflatten(1, (used, self._qam.bits)) * weight[:, :used, None]
        bits, good = self._code.decode(llr.reshape(blocks * self._count, self._n) * self._flip)
        return bits.reshape(blocks, self._count * self._k)[:, : self.bits], good.view(blocks, self._count).all(1)
