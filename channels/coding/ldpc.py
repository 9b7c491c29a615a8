"""5G LDPC codes (3GPP TS 38.212): an encoder and a decoder with codewords along the last axis, over Sionna's graphs.

The decoder is belief propagation by sum-product, as in Sionna: a check sends each of its bits 2 atanh of the product of
tanh(LLR / 2) over its other bits. Checks are updated in two turns, every other row of the base graph in each, and an
iteration of that does as much as one and a half of all checks at once. A float's bits, read as an integer, are its
logarithm to base 2 within 0.09 [Mitchell]. This approximation decodes as well as the exact logarithm, is faster on a
CPU, and gives the same result on every device, since only sums, products, quotients and conversions round. Codewords do
not depend on each other. On a GPU one kernel decodes all of them (`semcom.channels.coding.fused`). Where there is none,
all iterations are carried out, and the host never waits either.

[Mitchell] J. N. Mitchell, "Computer multiplication and division using binary logarithms", IRE Trans. Electronic
Computers EC-11(4), 1962.
"""

from __future__ import annotations

import importlib.util
import logging
import math
from collections.abc import Sequence
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

LOG = logging.getLogger(__name__)
SHORTEST, LONGEST = 12, 8448
"""Information bits of a codeword."""
LONGEST_SLOW, SLOW_RATE = 3824, 1 / 3
"""Most information bits up to code rate 1/3: those of 5G's smaller base graph; the other has no such rate."""
LOWEST_RATE, HIGHEST_RATE = 1 / 5, 948 / 1024
"""Code rates: the lowest of Sionna's encoder, the highest of 5G."""
ROUNDS, ITERATIONS = 8, 3
"""Times that the parity checks are looked at, and iterations before each of them."""
TURNS = 2
"""Parts of the checks, which speak in turn."""
BLOCK, VECTOR = 2**19, 8
"""Messages worked on at once on a CPU, few enough for its caches, by whole vectors of codewords."""
ONE, OCTAVE = 0x3F800000, 2.0**23
"""Bits of the float 1, read as an integer, and their growth when it doubles."""
HALF = OCTAVE / math.log(4)
"""Half an LLR of 1 as a difference of such integers: the unit of all beliefs and messages."""
CERTAIN = 10 * OCTAVE
"""Belief from which a bit is certain, an LLR of 14: float32 cannot distinguish tanh from 1 beyond it."""
CONSTANTS = {"ITERATIONS": ITERATIONS, "ONE": ONE, "CERTAIN": CERTAIN}
TRIED = 64
"""Words that the kernel of a GPU is tried on."""
UNKNOWN = 1e-6
"""LLR of a bit that was not sent.

Where such bits hang together, as they do in short codes above rate 0.85, a small guess has to grow until it settles
them: from 1e-20 that takes too many iterations, and 1e-2 is heard among the others.
"""


@lru_cache(maxsize=32)
def make_ldpc_code(k: int, n: int, m: int, device: torch.device) -> Code:
    """Build the `Code` of these numbers, once."""
    return Code(k, n, m, device)


class Code:
    """Code of k information bits in n coded ones, rate-matched, and interleaved for symbols of m bits.

    Args:
        k: information bits, 12 to 8,448, or to 3,840 up to rate 1/4.
        n: coded bits, a multiple of m, with k/n from 1/5 to 948/1024.
        m: bits per symbol.
        device: of its tensors.
    """

    def __init__(self, k: int, n: int, m: int, device: torch.device) -> None:
        self.k, self.n, self._m = k, n, m
        encoder = _make_sionna_encoder(k, n, m)
        sendable = np.r_[2 * encoder.z : k, encoder.k_ldpc : encoder.n_ldpc]  # in order
        sent = sendable[encoder.out_int.numpy()]
        checks = _share_out_checks(encoder, sent)
        known = np.unique(np.concatenate([np.arange(k), sent, *(check for part in checks for check in part)]))
        parts = [[np.searchsorted(known, check) for check in part] for part in checks]
        made = _find_generator(encoder)[sent]
        self._coded = _Sums(np.split(made.indices, made.indptr[1:-1]), device)
        self._parity = _Sums([check for part in parts for check in part], device)
        starts = np.cumsum([0, *(sum(map(len, part)) for part in parts)])
        self._turns = [_Turn(part, start, device) for part, start in zip(parts, starts, strict=False)]
        edges = int(starts[-1])
        ends = np.concatenate([turn.bits.cpu().numpy() for turn in self._turns] + [np.arange(len(known))])
        terms = np.split(np.argsort(ends, kind="stable"), np.cumsum(np.bincount(ends))[:-1])
        self._beliefs = _Sums(terms, device)
        self._edges, self._known = edges, len(known)
        self._sent = torch.as_tensor(edges + np.searchsorted(known, sent), device=device)
        self._stops = device.type == "cpu"  # where codewords may leave early, for which the host has to read
        self._terms, self.first = terms, len(parts[0])
        self._whole = False
        self._whole = not self._stops and self._try_kernel()

    @cached_property
    def tables(self) -> dict[str, Tensor]:
        """The graph for a kernel, int32 with -1 where there is nothing, by name.

        "rows" and "ends" are the message and the bit of each edge of a check, `[checks, degree]`, with the `first` ones
        to speak before the others; "terms" are the messages to each bit.
        """
        edges = [turn.list_edges() for turn in self._turns]
        lists = {name: [each for own in edges for each in own[name]] for name in ("rows", "ends")}
        return {name: _pad_table(each, self._sent.device) for name, each in {**lists, "terms": self._terms}.items()}

    def encode(self, bits: Tensor) -> Tensor:
        """Encode information bits (0 or 1, any type) `[N, k]` to codewords, float32 0 or 1 `[N, n]`."""
        rows = bits.T.to(torch.float32, memory_format=torch.contiguous_format)
        return self._coded(rows).remainder_(2).T

    def decode(self, llr: Tensor) -> tuple[Tensor, Tensor]:
        """Decode to information bits, bool `[N, k]`, and whether all parity checks hold, bool `[N]`.

        The bits are those at which the checks first held, or those of the last iteration.

        Args:
            llr: ln p(0)/p(1) of the coded bits, float32 `[N, n]`.
        """
        if self._whole:
            return self._decode_at_once(llr)
        block = max(1, BLOCK // self._edges // VECTOR) * VECTOR if self._stops else max(1, len(llr))
        parts = [self._rounds(*self._begin(part), ROUNDS) for part in llr.split(block)]
        return torch.cat([bits for bits, _ in parts], 1).T, torch.cat([good for _, good in parts])

    def decode_messages(self, messages: Tensor) -> tuple[Tensor, Tensor]:
        """Decode from messages at the start, `[N, edges + bits]`, as `decode` does."""
        rows = messages.T.contiguous()
        bits, good = self._rounds(rows, rows[self._edges :], ROUNDS)
        return bits.T.contiguous(), good

    def _decode_at_once(self, llr: Tensor) -> tuple[Tensor, Tensor]:
        """Decode by one kernel, in which each codeword stops by itself."""
        messages = llr.new_zeros(len(llr), self._edges + self._known)
        messages[:, self._edges :] = UNKNOWN * HALF
        messages.index_copy_(1, self._sent, llr * HALF)
        beliefs = messages[:, self._edges :].contiguous()
        decoded: tuple[Tensor, Tensor] = torch.ops.semcom.decode_ldpc(messages, beliefs, self.k, self.n, self._m)
        return decoded

    def _try_kernel(self) -> bool:
        """Check whether there is the kernel, and whether it decodes noisy words as single operations do."""
        if not define_kernel():
            return False
        words = 1.0 + torch.randn(TRIED, self.n, generator=torch.Generator().manual_seed(0))
        llr = (2 * words).to(self._sent.device)
        try:
            (bits, good), (expected, held) = self._decode_at_once(llr), self.decode(llr)
        except Exception as error:  # whatever Triton or its compiler raises
            LOG.info("digital: no kernel decodes on this GPU: %s", str(error).partition("\n")[0])
            return False
        # Sums may be rounded otherwise: a word that just decodes may fail.
        return bool((good != held).sum() <= TRIED // 16) and bool((bits == expected)[good & held].all())

    def _begin(self, llr: Tensor) -> tuple[Tensor, Tensor]:
        """Start the messages, those of the channel in the last rows, and the beliefs: sums of messages to each bit."""
        messages = llr.new_zeros(self._edges + self._known, len(llr))
        messages[self._edges :] = UNKNOWN * HALF
        messages.index_copy_(0, self._sent, (llr * HALF).T)
        return messages, messages[self._edges :]

    def _rounds(self, messages: Tensor, belief: Tensor, rounds: int) -> tuple[Tensor, Tensor]:
        """Run `rounds` rounds, which change `messages`. Return bits `[k, N]` and whether the checks hold `[N]`."""
        for turn in ITERATIONS * self._turns:
            turn.speak(messages, belief)
            belief = self._beliefs(messages)
        ones = belief < 0
        bits, good = ones[: self.k], self._parity(ones.float()).remainder_(2).sum(0) == 0
        if rounds == 1:
            return bits, good
        if not self._stops:  # every codeword goes on, decoded or not: to leave some out, the host would have to read
            later, then = self._rounds(messages, belief, rounds - 1)
            return torch.where(good, bits, later), good | then
        left = (~good).nonzero().flatten()
        if len(left):
            some = messages.index_select(1, left), belief.index_select(1, left)
            bits[:, left], good[left] = self._rounds(*some, rounds - 1)
        return bits, good


class _Turn:
    """Checks that speak at the same time: lists of their bits. Their messages begin at row `start` of all."""

    def __init__(self, checks: Sequence[np.ndarray], start: int, device: torch.device) -> None:
        checks = sorted(checks, key=len)
        degrees, self._counts = map(np.ndarray.tolist, np.unique([len(check) for check in checks], return_counts=True))
        numbers = np.split(np.arange(len(checks)), np.cumsum(self._counts)[:-1])
        alike = [np.stack([checks[i] for i in those], 1) for those in numbers]  # [degree, checks] each
        self._sizes = [bits.size for bits in alike]
        self.bits = torch.as_tensor(np.concatenate([bits.ravel() for bits in alike]), device=device)
        self._checks = torch.as_tensor(
            np.concatenate([np.tile(those, d) for those, d in zip(numbers, degrees, strict=True)]), device=device
        )
        self._rows = slice(start, start + len(self.bits))

    def list_edges(self) -> dict[str, list[np.ndarray]]:
        """List the message ("rows") and the bit ("ends") of each edge, for every check."""
        order = np.argsort(self._checks.cpu().numpy(), kind="stable")
        cuts = np.cumsum(np.bincount(self._checks.cpu().numpy()))[:-1]
        return {
            "rows": np.split(order + self._rows.start, cuts),
            "ends": np.split(self.bits.cpu().numpy()[order], cuts),
        }

    def speak(self, messages: Tensor, belief: Tensor) -> None:
        """Update the messages of these checks, given the belief in each bit, `[bits, N]`."""
        own = messages[self._rows]
        # A check hears each bit without its own last message: its own opinion must not come back to it.
        said = belief.index_select(0, self.bits).sub_(own).clamp_(-CERTAIN, CERTAIN).int()
        low = torch.rsub(said, ONE - 1).view(torch.float32)  # the 1 keeps it from being `high`, and tanh from 0
        high = said.add_(ONE).view(torch.float32)
        tanh = (high - low).div_(high.add_(low))
        products = belief.new_empty(sum(self._counts), belief.shape[1])
        for part, out in zip(tanh.split(self._sizes), products.split(self._counts), strict=True):
            torch.prod(part.unflatten(0, (-1, len(out))), 0, out=out)
        product = products.index_select(0, self._checks)
        above = (tanh + product).view(torch.int32)  # (1 + y) / (1 - y), for y = product / tanh
        torch.mul(above.sub_(tanh.sub_(product).view(torch.int32)), 0.5, out=own)


def _pad_table(lists: Sequence[np.ndarray], device: torch.device) -> Tensor:
    """Lay out lists side by side, int32 `[lists, longest]`, with -1 behind their ends."""
    table = np.full((len(lists), max(map(len, lists))), -1, np.int32)
    for row, numbers in zip(table, lists, strict=True):
        row[: len(numbers)] = numbers
    return torch.as_tensor(table, device=device)


@lru_cache(maxsize=1)
def define_kernel() -> bool:
    """Define the operation `semcom::decode_ldpc` of torch, which is one kernel on a GPU; False without Triton.

    It changes messages and beliefs, `[N, ...]`, and gives the bits and whether the checks hold.
    """
    if importlib.util.find_spec("triton") is None:
        return False

    def on_host(messages: Tensor, beliefs: Tensor, k: int, n: int, m: int) -> tuple[Tensor, Tensor]:
        return make_ldpc_code(k, n, m, messages.device).decode_messages(messages)

    def on_gpu(messages: Tensor, beliefs: Tensor, k: int, n: int, m: int) -> tuple[Tensor, Tensor]:
        from semcom.channels.coding import fused

        code = make_ldpc_code(k, n, m, messages.device)
        bits, good = (torch.empty(len(messages), *s, dtype=torch.bool, device=messages.device) for s in ((k,), ()))
        with torch.cuda.device(messages.device):
            fused.decode(messages, beliefs, bits, good, code.tables, code.first, ROUNDS, CONSTANTS)
        return bits, good

    _library.define("decode_ldpc(Tensor(a!) messages, Tensor(b!) beliefs, int k, int n, int m) -> (Tensor, Tensor)")
    _library.impl("decode_ldpc", on_host, "CPU")
    _library.impl("decode_ldpc", on_gpu, "CUDA")
    return True


_library = torch.library.Library("semcom", "FRAGMENT")


class _Sums:
    """Sums of the rows of a table that lists name: `[rows, N]` to `[lists, N]`."""

    def __init__(self, lists: Sequence[np.ndarray], device: torch.device) -> None:
        self._rows = torch.as_tensor(np.concatenate(lists).astype(np.int64), device=device)
        self._starts = torch.as_tensor(np.cumsum([0, *map(len, lists[:-1])]), device=device)

    def __call__(self, table: Tensor) -> Tensor:
        if not table.shape[1]:  # some processors' kernels of embedding_bag refuse an empty table
            return table.new_zeros(len(self._starts), 0)
        return functional.embedding_bag(self._rows, table, self._starts, mode="sum")


def _share_out_checks(encoder: Any, sent: np.ndarray) -> list[list[np.ndarray]]:
    """List the bits of each check, with the rows of the base graph shared out among the turns.

    Fillers are known to be 0 and left out. So is a check with a bit that was not sent and has no other check: it
    carries no information.
    """
    pcm = encoder.pcm.tocsr()
    silent = np.bincount(pcm.indices, minlength=encoder.n_ldpc) == 1
    silent[sent] = False
    rows: dict[int, list[np.ndarray]] = {}
    for i, check in enumerate(np.split(pcm.indices, pcm.indptr[1:-1])):
        if not silent[check].any():
            rows.setdefault(i // encoder.z, []).append(check[(check < encoder.k) | (check >= encoder.k_ldpc)])
    return [[check for row in list(rows.values())[i::TURNS] for check in row] for i in range(TURNS)]


def _find_generator(encoder: Any) -> Any:
    """Find the information bits whose sum gives each bit of a codeword, as a sparse matrix `[bits, k]` of ones.

    The first four rows of the base graph add up to a row that leaves only the first parity bits, and each further row
    then adds one unknown bit.
    """
    from scipy import sparse  # takes long to import, and few runs send codewords

    pcm, z = encoder.pcm.tocsr().astype(np.int64), encoder.z
    core = [pcm[i * z : (i + 1) * z] for i in range(4)]
    bits = sparse.eye(encoder.k_ldpc, encoder.k, dtype=np.int64, format="csr")  # fillers are 0
    for checks in (_reduce_modulo_two(sum(core[1:], core[0])), *core[:3], pcm[4 * z :]):
        known, count = bits.shape[0], checks.shape[0]
        new = checks[:, known : known + count].T @ (checks[:, :known] @ bits)
        bits = sparse.vstack([bits, _reduce_modulo_two(new)], format="csr")
    return bits


def _reduce_modulo_two(matrix: Any) -> Any:
    """Set a sparse matrix to 1 where an entry is odd, and drop the other entries."""
    matrix = matrix.tocsr()
    matrix.data %= 2
    matrix.eliminate_zeros()
    return matrix


def _make_sionna_encoder(k: int, n: int, m: int) -> Any:
    """Make Sionna's encoder. Its import takes seconds and reseeds torch's global generators, which are put back."""
    with torch.random.fork_rng(devices=range(torch.cuda.device_count())):
        from sionna.phy.fec.ldpc import LDPC5GEncoder
    return LDPC5GEncoder(k, n, num_bits_per_symbol=m, device="cpu", check_input=False)
