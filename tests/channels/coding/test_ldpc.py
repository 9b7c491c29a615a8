"""QAM, the LDPC decoder and the modem, against Sionna, closed forms and Shannon's limit."""

from __future__ import annotations

import itertools
import math
from types import SimpleNamespace

import pytest
import torch
from torch import Tensor

from channels import theory
from channels.coding import ldpc
from channels.coding.ldpc import code
from channels.coding.modem import Modem, codewords, modem
from channels.coding.qam import QAM, SIZES

CPU = torch.device("cpu")


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def coin(*shape: int, seed: int) -> Tensor:
    return torch.randint(2, shape, generator=seeded(seed))


def noisy(symbols: Tensor, snr_db: float, seed: int = 5) -> Tensor:
    noise = torch.randn(symbols.shape, dtype=symbols.dtype, generator=seeded(seed))
    return symbols + theory.noise_power(snr_db) ** 0.5 * noise


def lost(chosen: Modem, snr_db: float, blocks: int, seed: int = 1) -> Tensor:
    """Which blocks arrive wrong, `[blocks]`."""
    bits = coin(blocks, chosen.bits, seed=seed)
    got, _ = chosen.receive(noisy(chosen.symbols(bits), snr_db, seed + 1), None)
    return (got != bits.bool()).any(1)


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


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("per_bit_db", [0.0, 4.0])
def test_uncoded_bit_error_rate(size, per_bit_db, within):
    """The signs of the soft bits are the nearest point's bits; the independent unit is the symbol."""
    qam = QAM(size, CPU)
    snr_db = per_bit_db + 10 * math.log10(qam.bits)
    bits = coin(100_000, qam.bits, seed=2)
    wrong = (qam.llr(noisy(qam.symbols(bits), snr_db)) < 0) != bits.bool()
    within(wrong.double().mean(1), theory.bit_error_rate(qam.bits, snr_db))


@pytest.mark.parametrize(("k", "n", "m", "snr_db"), [(64, 128, 4, 7.0), (114, 128, 4, 14.0), (38, 128, 2, -1.0)])
def test_as_many_blocks_are_lost_as_with_sionna_s_belief_propagation(k, n, m, snr_db, sionna):
    """The same blocks and noise, five standard errors of a difference.

    Ours may be better, since 20 layered iterations do more than 20 of Sionna's.
    """
    blocks, ours, qam = 400, code(k, n, m, CPU), QAM(2**m, CPU)
    encoder = sionna.Encoder(k, n, num_bits_per_symbol=m, device="cpu")
    bits = coin(blocks, k, seed=3)
    coded = ours.encode(bits)
    assert torch.equal(coded, encoder(bits.float()))
    llr = qam.llr(noisy(qam.symbols(coded), snr_db))
    wrong = (ours.decode(llr)[0] != bits.bool()).any(1).double()
    decoder = sionna.Decoder(encoder, num_iter=20, device="cpu")
    theirs = (decoder(-llr / theory.noise_power(snr_db)) != bits).any(1).double()
    assert 0.02 < theirs.mean() < 0.6  # in the middle of the waterfall, where decoders differ
    error = math.sqrt(float(wrong.var() + theirs.var()) / blocks)
    assert wrong.mean() < theirs.mean() + 5 * error


CODES = [(12, 16, 4), (12, 60, 2), (64, 128, 4), (116, 128, 4), (234, 256, 8), (300, 1500, 2), (7500, 8192, 8)]


@pytest.mark.parametrize(("k", "n", "m"), CODES)
def test_without_noise_every_code_decodes(k, n, m):
    """Up to the highest rate, where bits that were not sent hang together."""
    chosen, bits = code(k, n, m, CPU), coin(20, k, seed=4)
    got, good = chosen.decode(1 - 2 * chosen.encode(bits))
    assert torch.equal(got, bits.bool()) and good.all()


def test_a_codeword_depends_on_no_other_and_not_on_the_scale():
    chosen = code(64, 128, 4, CPU)
    llr = torch.randn(50, 128, generator=seeded(5)) + 1.0 * (1 - 2 * chosen.encode(coin(50, 64, seed=6)))
    together, good = chosen.decode(llr)
    assert 0 < good.sum() < 50
    for i in range(0, 50, 7):
        alone, own = chosen.decode(llr[i : i + 1])
        assert torch.equal(alone[0], together[i]) and own[0] == good[i]
    for scale in (2.0**-40, 2.0**40):
        assert torch.equal(chosen.decode(llr * scale)[0], together)


def test_a_decoded_word_is_a_codeword():
    """What says that all parity checks hold encodes to bits that agree with its own decisions."""
    chosen = code(64, 128, 4, CPU)
    sent = coin(200, 64, seed=7)
    llr = torch.randn(200, 128, generator=seeded(8)) + 1.2 * (1 - 2 * chosen.encode(sent))
    got, good = chosen.decode(llr)
    wrong = (got != sent.bool()).any(1)
    assert (wrong & ~good).any() and not (wrong & good).float().mean() > 0.05  # few errors go unnoticed
    nothing, none = chosen.decode(torch.zeros(2, 128))
    assert nothing.shape == (2, 64) and none.shape == (2,)
    empty, not_one = chosen.decode(torch.zeros(0, 128))
    assert empty.shape == (0, 64) and not_one.shape == (0,)


def test_fewer_blocks_are_lost_at_a_higher_snr_and_a_lower_rate():
    """The waterfall: within 2.5 dB from most to almost none; each step by more than five standard errors."""
    blocks = 600
    by_snr = [float(lost(modem(128, 64, 16, CPU), snr, blocks).double().mean()) for snr in (5.5, 6.5, 8.0)]
    by_rate = [float(lost(modem(k, 64, 16, CPU), 6.5, blocks).double().mean()) for k in (160, 128, 90)]
    for rates in (by_snr, by_rate):
        for worse, better in itertools.pairwise(rates):
            spread = worse * (1 - worse) + better * (1 - better)
            assert worse - better > 5 * math.sqrt(spread / blocks)
        assert rates[0] > 0.7 and rates[-1] < 0.05


@pytest.mark.parametrize(("modulation", "bits"), [(4, 512), (16, 1024), (64, 2304), (256, 3072)])
def test_shannon_s_limit(modulation, bits):
    """512 uses. 1 dB below the limit of the rate nothing arrives; 3.5 dB above it all but one in a hundred does."""
    chosen = modem(bits, 512, modulation, CPU)
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
    ],
)
def test_codewords_keep_to_the_limits_of_ldpc(bits, uses, modulation, words):
    """Padding up to 12 bits and to rate 1/5; segments of at most 8,448 bits; uses left over are silent."""
    assert codewords(bits, uses, modulation) == words
    chosen, sent = modem(bits, uses, modulation, CPU), coin(3, bits, seed=9)
    symbols = chosen.symbols(sent)
    used = words[0] * words[2] // (modulation.bit_length() - 1)
    assert symbols.shape == (3, uses) and not symbols[:, used:].any() and symbols[:, :used].all()
    got, good = chosen.receive(symbols, None)
    assert torch.equal(got, sent.bool()) and good.all()


def test_a_block_that_does_not_fit_is_one_line():
    with pytest.raises(ValueError, match=r"^bits: 4 do not fit into 2 uses of 4 bits; codewords hold 12 at least$"):
        modem(4, 2, 16, CPU)
    for wrong, reason in ((12, "no power of two"), (1, "no power of two"), (32, "no square")):
        with pytest.raises(ValueError, match=rf"^modulation: a constellation of {wrong} points is {reason}; known are"):
            QAM(wrong, CPU)


@pytest.mark.parametrize("modulation", SIZES)
def test_scrambling_keeps_the_power_at_one(modulation):
    """For bits that are all equal too: |x|^2 of random symbols has a variance below 0.4 for every QAM."""
    chosen = modem(2048, 4096, modulation, CPU)
    for bits in (torch.zeros(1, 2048), torch.ones(1, 2048)):
        power = chosen.symbols(bits).abs().square()
        assert abs(power.mean() - 1) < 5 * math.sqrt(0.4 / 4096)


def test_soft_bits_weigh_symbols_by_their_gain():
    """Half of the symbols in a deep fade: with |h|^2 in the soft bits the others carry the block, and only then."""
    chosen, bits = modem(64, 64, 16, CPU), coin(300, 64, seed=10)
    gain = torch.ones(300, 64, dtype=torch.complex64)
    gain[:, ::2] = 0.03j
    heard = noisy(gain * chosen.symbols(bits), 16.0)
    right = (chosen.receive(heard, gain)[0] == bits.bool()).all(1).double().mean()
    unweighted = (chosen.receive(heard / gain, None)[0] == bits.bool()).all(1).double().mean()
    assert right > 0.95 and unweighted < 0.5


def test_limits_are_5g_s():
    assert (ldpc.SHORTEST, ldpc.LONGEST, ldpc.HIGHEST_RATE) == (12, 8448, 948 / 1024)
