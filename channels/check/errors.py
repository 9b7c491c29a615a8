"""Checks of equalisers' mean square errors and of uncoded bit errors, with Sionna's channels measured beside ours."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import lru_cache
from types import SimpleNamespace
from typing import Literal, get_args

import torch
from torch import Tensor

from semcom.channels import theory
from semcom.channels.check.fading import draw_checked_gains, square_gains
from semcom.channels.check.finding import Finding, find_difference, find_mean
from semcom.channels.check.lab import Lab
from semcom.channels.ofdm.profiles import lend_generators_to_sionna

UNITS = 200_000
NO = 0.1
LEAST = 0.01
"""|h|^2 below which the mean square error of ZF is not averaged: its mean over all h is infinite."""
CONSTELLATIONS = {"QPSK": (2, (4.0, 10.0)), "16-QAM": (4, (10.0, 16.0))}
"""Bits per symbol, and SNRs in dB, of each constellation."""
Owner = Literal["ours", "Sionna"]


def check_equaliser_errors(lab: Lab) -> Iterator[Finding]:
    """Measure the mean square error of QPSK symbols over Rayleigh fading at no = 0.1."""
    bits = lab.bits(UNITS, 2, key="equalisers")
    sent = torch.view_as_complex((1 - 2 * bits) / math.sqrt(2))[:, None]
    power = square_gains(draw_checked_gains(lab, "rayleigh", UNITS, 1, "equalised"))[
        :, 0
    ]  # of the same realisation as below

    def error(equaliser: str) -> Tensor:
        link = lab.make("rayleigh", equaliser=equaliser)
        return square_gains(lab.transmit(link, sent, -10 * math.log10(NO), "equalised") - sent)[:, 0]

    zf, known = error("zf"), power > LEAST
    yield find_mean("MSE of ZF where |h|^2 > 0.01", zf[known], theory.mean_square_error("zf", NO, LEAST))
    yield find_mean("MSE of ZF given h, times |h|^2/no", zf * power / NO, 1.0)
    yield find_mean("MSE of biased MMSE", error("mmse"), theory.mean_square_error("mmse", NO))
    yield find_mean("MSE without equaliser", error("none"), theory.mean_square_error("none", NO))


def check_bit_errors(lab: Lab) -> Iterator[Finding]:
    """Measure bit error rates of max-log decisions: ours, Sionna's, and one against the other."""
    for kind, fades in (("awgn", False), ("rayleigh", True)):
        for name, (bits, levels) in CONSTELLATIONS.items():
            for snr_db in levels:
                found = {}
                for owner in get_args(Owner):
                    title = f"BER {name}, {'Rayleigh' if fades else 'AWGN'}, {snr_db:g} dB"
                    wrong = measure_bit_errors(lab, kind, bits, snr_db, UNITS, owner)
                    expected = theory.bit_error_rate(bits, snr_db, fades)
                    found[owner] = find_mean(f"{title}, {owner}", wrong, expected)
                    yield found[owner]
                yield find_difference(f"{title}, ours less Sionna's", found["ours"], found["Sionna"])


def measure_bit_errors(lab: Lab, kind: str, bits: int, snr_db: float, symbols: int, owner: Owner = "ours") -> Tensor:
    """Measure the fraction of wrong bits in each symbol, float64 `[symbols]`: 0, 1/bits, ..., 1.

    Over Rayleigh fading each symbol has its own h, known to the receiver. The bits of a symbol share it and are not
    independent, so the symbol is the independent unit.

    Args:
        lab: device and seed.
        kind: "awgn" or "rayleigh".
        bits: per symbol of a Gray-mapped square QAM.
        snr_db: Es/N0.
        symbols: number of symbols.
        owner: whose channel is measured. Constellation and max-log demapper are Sionna's for both.
    """
    parts, key = _import_sionna(), f"{owner} {kind} {bits} {snr_db}"
    sent = lab.bits(symbols, bits, key=f"bits {key}")
    x = parts.Mapper("qam", bits, device=str(lab.device))(sent)  # [symbols, 1]
    received = (_send_through_our_link if owner == "ours" else _send_through_sionna)(lab, kind, x, snr_db, key)
    demapper = parts.Demapper("maxlog", "qam", bits, hard_out=True, device=str(lab.device))
    return (demapper(received, torch.ones((), device=lab.device)) != sent).double().mean(-1)


def _send_through_our_link(lab: Lab, kind: str, x: Tensor, snr_db: float, key: str) -> Tensor:
    """Send symbols `[n, 1]` through our link."""
    link = lab.make(kind, equaliser="zf") if kind == "rayleigh" else lab.make(kind)
    return lab.transmit(link, x, snr_db, key)


def _send_through_sionna(lab: Lab, kind: str, x: Tensor, snr_db: float, key: str) -> Tensor:
    """Send symbols `[n, 1]` through Sionna's channel."""
    parts, no, device = _import_sionna(), theory.noise_power(snr_db), str(lab.device)
    with lend_generators_to_sionna([lab.generator(f"Sionna {key}")]):
        if kind == "awgn":
            return parts.AWGN(device=device)(x, no)
        y, h = parts.FlatFadingChannel(1, 1, return_channel=True, device=device)(x, no)
        return y / h[:, 0]


@lru_cache(maxsize=1)
def _import_sionna() -> SimpleNamespace:
    """Import the parts of Sionna that are measured beside ours, and leave torch's global generator unchanged."""
    with torch.random.fork_rng():  # importing reseeds it
        from sionna.phy.channel import AWGN, FlatFadingChannel
        from sionna.phy.mapping import Demapper, Mapper
    return SimpleNamespace(AWGN=AWGN, FlatFadingChannel=FlatFadingChannel, Mapper=Mapper, Demapper=Demapper)
