"""Checks of the link `digital`: its quantiser, its constellations, and its code beside Sionna's."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Tensor

from semcom.channels import Meter, theory
from semcom.channels.check.finding import Finding, epsilon, find_largest_error, find_mean
from semcom.channels.check.lab import Lab
from semcom.channels.coding.ldpc import make_ldpc_code
from semcom.channels.coding.qam import QAM, SIZES
from semcom.channels.coding.quantise import STEPS

SYMBOLS = 100_000
BLOCKS = 400
CODES = ((64, 128, 4, 4.0), (38, 128, 2, -4.0), (234, 256, 8, 18.0))
"""Information bits, coded bits, bits per symbol, and an SNR low enough that decoders differ: few blocks arrive."""
PER_BIT_DB = 6.0
"""Eb/N0 of the uncoded bit errors."""


def check_link(lab: Lab) -> Iterator[Finding]:
    """Send features with one bit each: without noise only the quantiser errs, and meters count both kinds of error."""
    link, d, meter = lab.make("digital"), 64, Meter()
    sent = lab.normal(1, 2000, d, key="digital")
    sent = sent / sent.square().mean(-1, keepdim=True).sqrt()
    drawn = lab.draw(link, [2000], d, "digital")
    received = link(sent, drawn, lab.snr(math.inf), meter=meter)
    error = (received - sent).square().mean(-1)
    yield find_mean("digital, no noise: squared error of 1 bit per value", error, theory.one_bit_error(d, STEPS[1]))
    yield find_largest_error("digital, no noise: wrong bits", meter.take(lab.device)[2:3], 0.0)
    link(sent, drawn, lab.snr(10.0), meter=meter)
    noise = meter.take(lab.device)[1:2] / 2000 / (d // 2) / theory.noise_power(10.0)
    yield Finding("digital 10 dB: noise per symbol / no", 1.0, float(noise), 1 / math.sqrt(2000 * d / 2), 2000 * d // 2)


def check_constellations(lab: Lab) -> Iterator[Finding]:
    """Measure the power of each constellation, and the bit errors of hard decisions by its soft bits."""
    for size in SIZES:
        qam = QAM(size, lab.device)
        snr_db = PER_BIT_DB + 10 * math.log10(qam.bits)
        bits = lab.bits(SYMBOLS, qam.bits, key=f"QAM {size}")
        power = 2 * qam.levels.double().square().mean()
        yield find_largest_error(f"{size}-QAM: power of its points, less 1", power - 1, epsilon(torch.float32))
        heard = lab.transmit(lab.make("awgn"), qam.symbols(bits), snr_db, f"QAM {size}")
        wrong = ((qam.llr(heard) < 0) != bits.bool()).double().mean(-1)
        yield find_mean(
            f"{size}-QAM, AWGN: BER by our soft bits, {snr_db:.1f} dB", wrong, theory.bit_error_rate(qam.bits, snr_db)
        )


def check_codes(lab: Lab) -> Iterator[Finding]:
    """Compare our codewords and decoder with Sionna's: the same words, and as many wrong bits where blocks fail."""
    with torch.random.fork_rng():  # importing reseeds it
        from sionna.phy.fec.ldpc import LDPC5GDecoder, LDPC5GEncoder
    for k, n, m, snr_db in CODES:
        title, device = f"LDPC {k} of {n} bits", str(lab.device)
        ours, qam, bits = (
            make_ldpc_code(k, n, m, lab.device),
            QAM(2**m, lab.device),
            lab.bits(BLOCKS, k, key=f"LDPC {k} {n}"),
        )
        encoder = LDPC5GEncoder(k, n, num_bits_per_symbol=m, device=device)
        words = ours.encode(bits)
        yield find_largest_error(f"{title}: codewords less Sionna's", words - encoder(bits), 0.0)
        yield find_largest_error(
            f"{title}: wrong bits without noise", _measure_wrong_bits(ours.decode(20 * (1 - 2 * words))[0], bits), 0.0
        )
        heard = lab.transmit(lab.make("awgn"), qam.symbols(words), snr_db, title)
        llr = qam.llr(heard) / theory.noise_power(snr_db)
        theirs = LDPC5GDecoder(encoder, num_iter=20, device=device)(-llr)
        more = _measure_wrong_bits(ours.decode(llr)[0], bits) - _measure_wrong_bits(theirs.bool(), bits)
        yield find_mean(f"{title}, {snr_db:g} dB: BER less Sionna's", more, 0.0)


def _measure_wrong_bits(got: Tensor, bits: Tensor) -> Tensor:
    """Compute the fraction of wrong bits in each block."""
    return (got != bits.bool()).double().mean(1)
