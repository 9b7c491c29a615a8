"""The LDPC decoder of `semcom.channels.coding.ldpc` as one kernel of a GPU, in Triton: a program decodes one codeword.

The numbers are those of the operations one after the other, in their order. Each program ends when its codeword's
checks hold, and nothing waits for it.
"""

from __future__ import annotations

# mypy: disable-error-code="no-untyped-def, union-attr"
from collections.abc import Mapping

import triton
import triton.language as tl
from torch import Tensor

CHECKS, BITS = 128, 128
"""Checks and bits that a program works on at once."""


@triton.jit
def _compute_tanh(belief, own, ONE: tl.constexpr, CERTAIN: tl.constexpr):
    said = tl.minimum(tl.maximum(belief - own, -CERTAIN), CERTAIN).to(tl.int32)
    low = (ONE - 1 - said).to(tl.float32, bitcast=True)
    high = (said + ONE).to(tl.float32, bitcast=True)
    return tl.div_rn(high - low, high + low)


@triton.jit
def _decode(
    messages, beliefs, bits, good, rows, ends, terms, M, K, k, FIRST, C, rounds, D, B,
    ITERATIONS: tl.constexpr, ONE: tl.constexpr, CERTAIN: tl.constexpr, CHECKS: tl.constexpr, BITS: tl.constexpr,
):  # fmt: skip
    codeword = tl.program_id(0).to(tl.int64)
    messages += codeword * M
    beliefs += codeword * K
    done = 0
    number = 0
    while (number < rounds) & (done == 0):
        for turn in range(2 * ITERATIONS):
            begin = FIRST * (turn % 2)
            end = FIRST + (C - FIRST) * (turn % 2)
            for at in range(begin, end, CHECKS):
                check = at + tl.arange(0, CHECKS)
                product = tl.full([CHECKS], 1.0, tl.float32)
                for j in range(D):
                    row = tl.load(rows + check * D + j, mask=check < end, other=-1)
                    bit = tl.load(ends + check * D + j, mask=check < end, other=0)
                    belief = tl.load(beliefs + bit, mask=row >= 0, other=0.0)
                    own = tl.load(messages + row, mask=row >= 0, other=0.0)
                    product = tl.where(row >= 0, product * _compute_tanh(belief, own, ONE, CERTAIN), product)
                for j in range(D):
                    row = tl.load(rows + check * D + j, mask=check < end, other=-1)
                    bit = tl.load(ends + check * D + j, mask=check < end, other=0)
                    belief = tl.load(beliefs + bit, mask=row >= 0, other=0.0)
                    own = tl.load(messages + row, mask=row >= 0, other=0.0)
                    tanh = _compute_tanh(belief, own, ONE, CERTAIN)
                    above = (tanh + product).to(tl.int32, bitcast=True) - (tanh - product).to(tl.int32, bitcast=True)
                    tl.store(messages + row, above.to(tl.float32) * 0.5, mask=row >= 0)
            tl.debug_barrier()  # each thread sees what the others have written
            for at in range(0, K, BITS):
                bit = at + tl.arange(0, BITS)
                total = tl.full([BITS], 0.0, tl.float32)
                for j in range(B):
                    row = tl.load(terms + bit * B + j, mask=bit < K, other=-1)
                    total += tl.load(messages + row, mask=row >= 0, other=0.0)
                tl.store(beliefs + bit, total, mask=bit < K)
            tl.debug_barrier()
        wrong = 0
        for at in range(0, C, CHECKS):
            check = at + tl.arange(0, CHECKS)
            odd = tl.full([CHECKS], 0, tl.int32)
            for j in range(D):
                row = tl.load(rows + check * D + j, mask=check < C, other=-1)
                bit = tl.load(ends + check * D + j, mask=check < C, other=0)
                odd ^= (tl.load(beliefs + bit, mask=row >= 0, other=0.0) < 0).to(tl.int32)
            wrong += tl.sum(odd)
        done = (wrong == 0).to(tl.int32)
        number += 1
    for at in range(0, k, BITS):
        bit = at + tl.arange(0, BITS)
        tl.store(bits + codeword * k + bit, tl.load(beliefs + bit, mask=bit < k, other=0.0) < 0, mask=bit < k)
    tl.store(good + codeword, done != 0)


def decode(
    messages: Tensor,
    beliefs: Tensor,
    bits: Tensor,
    good: Tensor,
    tables: Mapping[str, Tensor],
    first: int,
    rounds: int,
    constants: Mapping[str, float],
) -> None:
    """Decode codewords by one kernel: fill `bits`, bool `[N, k]`, and `good`, bool `[N]`.

    Args:
        messages: float32 `[N, edges + known]`, which change.
        beliefs: float32 `[N, known]`, which change.
        bits, good: the results.
        tables: the graph, as `Code.tables`.
        first: number of checks that speak before the others.
        rounds: times that the checks are looked at.
        constants: ITERATIONS, ONE and CERTAIN of the decoder.
    """
    rows, ends, terms = (tables[name] for name in ("rows", "ends", "terms"))
    sizes = messages.shape[1], beliefs.shape[1], bits.shape[1], first, len(rows), rounds
    _decode[(len(messages),)](
        messages, beliefs, bits, good, rows, ends, terms, *sizes, rows.shape[1], terms.shape[1],
        **constants, CHECKS=CHECKS, BITS=BITS,
    )  # fmt: skip
