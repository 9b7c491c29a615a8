"""Checks of the noise, of the power normalisation, and of links that must not change anything."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from semcom.channels import theory
from semcom.channels.check.fading import square_gains
from semcom.channels.check.finding import Finding, epsilon, find_largest_error, find_mean, find_second_moment
from semcom.channels.check.lab import Lab
from semcom.channels.power import PAIR, to_pairs

UNITS = 400_000
SNR_DB = 7.0
SCALES = (1e-6, 1e-3, 1.0, 1e3, 1e6)


def check_noise(lab: Lab) -> Iterator[Finding]:
    """Measure the noise of AWGN at 7 dB, on symbols and on features."""
    no = theory.noise_power(SNR_DB)
    sent = lab.ones(UNITS, 1)
    added = lab.transmit(lab.make("awgn"), sent, SNR_DB, "noise") - sent
    yield find_mean("noise per complex symbol, no", square_gains(added), no)
    yield find_mean("noise on the real part, no/2", added.real.square(), no / 2)
    yield find_mean("noise on the imaginary part, no/2", added.imag.square(), no / 2)
    yield find_mean("product of both parts", added.real * added.imag, 0.0)
    yield find_second_moment("kurtosis of the noise, E|n|^4/(E|n|^2)^2", square_gains(added), theory.KURTOSIS)
    features = lab.normal(UNITS // 64, 64, key="features")
    received = lab.features(lab.make("awgn"), features, SNR_DB, "noise on features")
    ideal = lab.features(lab.make("ideal"), features, SNR_DB, "")
    yield find_mean("noise per real feature, no", (received - ideal).square(), no)
    quiet = 0.1 * features
    received = lab.features(lab.make("awgn", power="free"), quiet, SNR_DB, "noise on free features")
    yield find_mean("the same of features of power 0.01, power free", (received - quiet).square(), no)


def check_symbol_power(lab: Lab) -> Iterator[Finding]:
    """Measure the mean power of the symbols of a sample at every scale of its features."""
    features = lab.normal(1000, 64, key="power")
    rounding = epsilon(torch.float32) * 32**0.5  # of a mean of 32 squares near 1
    for scale in SCALES:
        symbols = to_pairs(lab.features(lab.make("ideal"), scale * features, SNR_DB, "")) / PAIR
        yield find_largest_error(
            f"symbol power of features times {scale:g}, less 1", square_gains(symbols).mean(-1) - 1, rounding
        )
    silent = lab.features(lab.make("ideal"), 0 * features, SNR_DB, "")
    yield find_largest_error("what arrives of features that are all zero", silent, 0.0)
    plain = lab.features(lab.make("none"), features, SNR_DB, "")
    yield find_largest_error("what arrives without a channel, less what there was", plain - features, 0.0)
