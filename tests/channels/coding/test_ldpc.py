"""QAM, the LDPC decoder and the modem, against Sionna, closed forms and Shannon's limit."""

from __future__ import annotations

import itertools
import math
import os
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import Tensor

from semcom.channels import theory
from semcom.channels.coding import ldpc
from semcom.channels.coding.ldpc import make_ldpc_code
from semcom.channels.coding.modem import Modem, make_modem, split_into_codewords
from semcom.channels.coding.qam import QAM, SIZES
from tests.channels.draws import seeded

CPU = torch.device("cpu")


def coin(*shape: int, seed: int) -> Tensor:
    return torch.randint(2, shape, generator=seeded(seed))


def noisy(symbols: Tensor, snr_db: float, seed: int = 5) -> Tensor:
    noise = torch.randn(symbols.shape, dtype=symbols.dtype, generator=seeded(seed))
    return symbols + theory.noise_power(snr_db) ** 0.5 * noise


def power(snr_db: float) -> Tensor:
    """The noise power that the receiver knows, `[1, 1]`."""
    return torch.tensor([[theory.noise_power(snr_db)]])


def lost(chosen: Modem, snr_db: float, blocks: int) -> Tensor:
    """Which blocks arrive wrong, `[blocks]`."""
    bits = coin(blocks, chosen.bits, seed=1)
    got, _ = chosen.receive(noisy(chosen.symbols(bits), snr_db, seed=2), None, power(snr_db))
    return (got != bits.bool()).any(1)


def broken(blocks: int) -> tuple[ldpc.Code, Tensor]:
    """Build a short code and soft bits `[blocks, 128]` that decode for some blocks only."""
    chosen = make_ldpc_code(64, 128, 4, CPU)
    sent, noise = 1 - 2 * chosen.encode(coin(blocks, 64, seed=6)), 0.85
    return chosen, 2 / noise**2 * (sent + noise * torch.randn(blocks, 128, generator=seeded(5)))


def unread(k: int, n: int, m: int) -> ldpc.Code:
    """A code that decodes as on an accelerator, where no codeword leaves before the last iteration."""
    chosen = ldpc.Code(k, n, m, CPU)
    chosen._stops = False
    return chosen


@pytest.fixture(scope="module")
def sionna() -> SimpleNamespace:
    with torch.random.fork_rng():
        from sionna.phy.fec.ldpc import LDPC5GDecoder, LDPC5GEncoder
        from sionna.phy.mapping import Demapper, Mapper
    return SimpleNamespace(Encoder=LDPC5GEncoder, Decoder=LDPC5GDecoder, Mapper=Mapper, Demapper=Demapper)


@pytest.mark.parametrize("size", SIZES)
def test_constellations_and_soft_bits_are_sionna_s(size, sionna):
    qam = QAM(size, CPU)
    bits = coin(20, 60 * qam.bits, seed=1)
    symbols = qam.symbols(bits)
    torch.testing.assert_close(symbols, sionna.Mapper("qam", qam.bits, device="cpu")(bits.float()))
    received = noisy(symbols, 9.0)
    theirs = sionna.Demapper("maxlog", "qam", qam.bits, device="cpu")(received, torch.tensor(0.25))
    torch.testing.assert_close(qam.llr(received), -0.25 * theirs, rtol=1e-5, atol=1e-5)


WATERFALL = [(64, 128, 4, 7.0, 400), (38, 128, 2, -1.0, 400), (1024, 2048, 4, 6.0, 50)]
"""k, n, bits per symbol, an SNR at which some blocks are lost, and a number of blocks."""


@pytest.mark.parametrize(("k", "n", "m", "snr_db", "blocks"), WATERFALL)
def test_no_more_is_lost_than_with_sionna_s_belief_propagation(k, n, m, snr_db, blocks, sionna):
    """Neither blocks nor bits: the mean difference on the same noise, within three standard errors of its own.

    Ours may be better: its 24 iterations, in two turns each, do more than 20 of Sionna's.
    """
    ours, qam, bits = make_ldpc_code(k, n, m, CPU), QAM(2**m, CPU), coin(blocks, k, seed=3)
    encoder = sionna.Encoder(k, n, num_bits_per_symbol=m, device="cpu")
    coded = ours.encode(bits)
    assert torch.equal(coded, encoder(bits.float()))
    llr = qam.llr(noisy(qam.symbols(coded), snr_db)) / theory.noise_power(snr_db)
    wrong = ours.decode(llr)[0] != bits.bool()
    theirs = sionna.Decoder(encoder, num_iter=20, device="cpu")(-llr) != bits
    assert 0.02 < theirs.any(1).double().mean() < 0.8  # in the middle of the waterfall, where decoders differ
    for one, other in ((wrong.any(1), theirs.any(1)), (wrong.double().mean(1), theirs.double().mean(1))):
        more = one.double() - other.double()
        assert more.mean() <= 3 * more.std() / math.sqrt(blocks)


@pytest.mark.parametrize("degree", [2, 3, 8, 19])
def test_a_check_speaks_as_the_hyperbolic_tangent_has_it(degree):
    """One check's message is 2 atanh(prod tanh(LLR / 2)) of the others, within the error of Mitchell's logarithm.

    The tolerance is twice its 0.086 (an octave is ln 2 of an LLR) plus 5 % for each other bit, where LLRs are small.
    """
    turn = ldpc._Turn([np.arange(degree)], 0, CPU)
    llr = 4 * torch.randn(degree, 2000, dtype=torch.float64, generator=seeded(1))
    messages = torch.zeros(degree, 2000)
    turn.speak(messages, (llr * ldpc.HALF).float())
    tanh = (llr / 2).tanh()
    exact = torch.stack([2 * torch.cat([tanh[:i], tanh[i + 1 :]]).prod(0).atanh() for i in range(degree)])
    said = messages.double() / ldpc.HALF
    assert (said * exact >= 0).all()
    assert ((said - exact).abs() <= 0.25 + 0.1 * exact.abs()).all()
    assert (said - exact).mean().abs() < 0.01


def test_nothing_is_said_of_a_check_with_a_bit_that_is_not_known():
    """A check with an unknown bit informs that bit only. A certain or infinite bit keeps the others' messages."""
    turn = ldpc._Turn([np.arange(3)], 0, CPU)
    messages = torch.zeros(3, 2)
    turn.speak(messages, torch.tensor([[0.0, math.inf], [3.0, 3.0], [-3.0, -3.0]]) * ldpc.HALF)
    said = messages / ldpc.HALF
    assert said[1:, 0].abs().max() < 1e-6 and said[0, 0] < -1
    torch.testing.assert_close(said[1:, 1], torch.tensor([-3.0, 3.0]), rtol=0.1, atol=0)


CODES = [(12, 16, 4), (12, 60, 2), (64, 128, 4), (116, 128, 4), (234, 256, 8), (300, 1500, 2), (7500, 8192, 8)]


@pytest.mark.parametrize(("k", "n", "m"), CODES)
def test_without_noise_every_code_decodes(k, n, m):
    """Up to the highest rate, where bits that were not sent hang together."""
    chosen, bits = make_ldpc_code(k, n, m, CPU), coin(20, k, seed=4)
    for llr in (10.0, 1e30, math.inf):
        got, good = chosen.decode(llr * (1 - 2 * chosen.encode(bits)))
        assert torch.equal(got, bits.bool()) and good.all()


def test_a_codeword_depends_on_no_other():
    """Not where it ends up in the vectors of a processor either, nor in its blocks."""
    chosen, llr = broken(50)
    together, good = chosen.decode(llr)
    assert 5 < good.sum() < 45
    for some in (slice(0, 1), slice(7, 8), slice(3, 20), slice(11, 50), slice(None, None, 3)):
        alone, own = chosen.decode(llr[some])
        assert torch.equal(alone, together[some]) and torch.equal(own, good[some])


@pytest.mark.parametrize(("k", "n", "m"), [(64, 128, 4), (116, 128, 4), (500, 1500, 2)])
def test_an_accelerator_gets_the_same_bits(k, n, m, monkeypatch):
    """It continues with decoded words, unlike a CPU. Neither blocks nor the number of threads changes the bits."""
    chosen, bits = make_ldpc_code(k, n, m, CPU), coin(24, k, seed=7)
    strength = 14 * torch.linspace(0.1, 1, 24)[:, None].square()
    sent = 1 - 2 * chosen.encode(bits)
    llr = strength * sent + (2 * strength).sqrt() * torch.randn(24, n, generator=seeded(8))
    expected, good = chosen.decode(llr)
    assert 3 < good.sum() < 21
    got, same = unread(k, n, m).decode(llr)
    assert torch.equal(got, expected) and torch.equal(same, good)
    monkeypatch.setattr(ldpc, "BLOCK", 8 * chosen._edges)
    assert torch.equal(chosen.decode(llr)[0], expected)
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        assert torch.equal(chosen.decode(llr)[0], expected)
    finally:
        torch.set_num_threads(threads)


KERNEL = """
import torch
from semcom.channels.coding import fused, ldpc

code = ldpc.make_ldpc_code(12, 24, 2, torch.device("cpu"))
llr = torch.randn(2, 24, generator=torch.Generator().manual_seed(3)) + torch.tensor([[3.0], [0.0]])
expected, held = code.decode(llr)
messages = code._begin(llr)[0].T.contiguous()
beliefs, good = messages[:, code._edges :].contiguous(), torch.empty_like(held)
bits = torch.empty(2, 12, dtype=torch.bool)
fused.decode(messages, beliefs, bits, good, code.tables, code.first, ldpc.ROUNDS, ldpc.CONSTANTS)
print(held.tolist(), good.tolist(), torch.equal(bits, expected))
"""


def test_the_kernel_of_a_gpu_decodes_the_same_words():
    """Triton interprets it on the host, some seconds for a word: of one that decodes, and one that does not."""
    pytest.importorskip("triton")
    words, env = [sys.executable, "-c", KERNEL], {**os.environ, "TRITON_INTERPRET": "1"}
    found = subprocess.run(words, env=env, capture_output=True, text=True, check=True).stdout
    assert found == "[True, False] [True, False] True\n"


@pytest.mark.parametrize("stops", [False, True])
def test_bits_are_those_at_which_the_checks_first_held(stops, monkeypatch):
    """Uses checks that report 0 for all bits in the first round and 1 afterwards."""

    class Turncoat:
        said = 0

        def speak(self, messages: Tensor, belief: Tensor) -> None:
            self.said += 1
            messages.abs_().mul_(1 if self.said <= ldpc.ITERATIONS else -1)

    chosen = unread(64, 128, 4)
    monkeypatch.setattr(chosen, "_stops", stops)
    monkeypatch.setattr(chosen, "_turns", [Turncoat()])
    bits, good = chosen.decode(torch.full((3, 128), -5.0))
    assert not bits.any() and good.all()


def test_what_is_decoded_after_some_rounds_stays_as_it_is(monkeypatch):
    chosen, llr = unread(64, 128, 4), broken(200)[1]
    bits, good = chosen.decode(llr)
    for rounds in range(1, ldpc.ROUNDS):
        monkeypatch.setattr(ldpc, "ROUNDS", rounds)
        early, done = chosen.decode(llr)
        assert done.sum() > 0 and torch.equal(early[done], bits[done]) and good[done].all()


def test_a_decoded_word_is_a_codeword():
    """A word that satisfies all parity checks encodes to bits that agree with its own decisions."""
    chosen, llr = broken(200)
    got, good = chosen.decode(llr)
    wrong = (got != coin(200, 64, seed=6).bool()).any(1)
    assert (wrong & ~good).any() and not (wrong & good).float().mean() > 0.05  # few errors go unnoticed
    nothing, none = chosen.decode(torch.zeros(2, 128))
    assert nothing.shape == (2, 64) and none.shape == (2,)
    empty, not_one = chosen.decode(torch.zeros(0, 128))
    assert empty.shape == (0, 64) and not_one.shape == (0,)


def test_fewer_blocks_are_lost_at_a_higher_snr_and_a_lower_rate():
    """The waterfall: from most blocks to almost none within 2.5 dB, with each step over five standard errors."""
    blocks = 300
    by_snr = [float(lost(make_modem(128, 64, 16, CPU), snr, blocks).double().mean()) for snr in (5.5, 6.5, 8.0)]
    by_rate = [float(lost(make_modem(k, 64, 16, CPU), 6.5, blocks).double().mean()) for k in (160, 128, 90)]
    for rates in (by_snr, by_rate):
        for worse, better in itertools.pairwise(rates):
            spread = worse * (1 - worse) + better * (1 - better)
            assert worse - better > 5 * math.sqrt(spread / blocks)
        assert rates[0] > 0.7 and rates[-1] < 0.05


@pytest.mark.parametrize(("modulation", "bits"), [(4, 512), (16, 1024), (64, 2304), (256, 3072)])
def test_shannon_s_limit(modulation, bits):
    """512 uses. 1 dB below the limit of the rate no block arrives, and 3.5 dB above it at least 99 in 100 do."""
    chosen = make_modem(bits, 512, modulation, CPU)
    limit = 10 * math.log10(2 ** (bits / 512) - 1)
    assert lost(chosen, limit - 1, 30).all()
    assert lost(chosen, limit + 3.5, 100).double().mean() <= 0.06  # one in a hundred, and five standard errors


@pytest.mark.parametrize(
    ("bits", "uses", "modulation", "words"),
    [
        (64, 32, 16, (1, 64, 128)),
        (8, 32, 4, (1, 13, 64)),
        (20000, 4096, 256, (3, 6667, 10920)),
        (4, 4, 16, (1, 12, 16)),
        (4158, 6912, 4, (2, 2079, 6912)),  # rate 0.30, at which the larger base graph has no code
    ],
)
def test_codewords_keep_to_the_limits_of_ldpc(bits, uses, modulation, words):
    """Padding goes up to 12 bits and to rate 1/5, segments have at most 8,448 bits, and spare uses are silent."""
    assert split_into_codewords(bits, uses, modulation) == words
    chosen, sent = make_modem(bits, uses, modulation, CPU), coin(3, bits, seed=9)
    symbols = chosen.symbols(sent)
    used = words[0] * words[2] // (modulation.bit_length() - 1)
    assert symbols.shape == (3, uses) and not symbols[:, used:].any() and symbols[:, :used].all()
    got, good = chosen.receive(symbols, None, torch.zeros(1, 1))
    assert torch.equal(got, sent.bool()) and good.all()


@pytest.mark.parametrize("modulation", SIZES)
def test_scrambling_keeps_the_power_at_one(modulation):
    """For bits that are all equal too: |x|^2 of random symbols has a variance below 0.4 for every QAM."""
    chosen = make_modem(512, 1024, modulation, CPU)
    for bits in (torch.zeros(1, 512), torch.ones(1, 512)):
        power = chosen.symbols(bits).abs().square()
        assert abs(power.mean() - 1) < 5 * math.sqrt(0.4 / 1024)


def test_soft_bits_weigh_symbols_by_their_gain():
    """Half of the symbols in a deep fade: with |h|^2 in the soft bits the others carry the block, and only then."""
    chosen, bits = make_modem(64, 64, 16, CPU), coin(300, 64, seed=10)
    gain = torch.ones(300, 64, dtype=torch.complex64)
    gain[:, ::2] = 0.03j
    heard = noisy(gain * chosen.symbols(bits), 16.0)
    right = (chosen.receive(heard, gain, power(16.0))[0] == bits.bool()).all(1).double().mean()
    unweighted = (chosen.receive(heard / gain, None, power(16.0))[0] == bits.bool()).all(1).double().mean()
    assert right > 0.95 and unweighted < 0.5


def test_limits_are_5g_s():
    assert (ldpc.SHORTEST, ldpc.LONGEST, ldpc.HIGHEST_RATE) == (12, 8448, 948 / 1024)
