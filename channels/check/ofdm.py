"""Checks of the link `ofdm`: lossless transmission, no leakage between users, fades of power 1, and pilot estimates."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Tensor

from semcom.channels import PROFILES, Link, theory
from semcom.channels.check.fading import square_gains
from semcom.channels.check.finding import Finding, epsilon, find_largest_error, find_mean
from semcom.channels.check.lab import Lab
from semcom.channels.ofdm.grid import SLOT
from semcom.channels.ofdm.profiles import import_sionna
from semcom.channels.power import normalise_power

FRAMES = {"rayleigh": 20_000, "tdl": 2000, "cdl": 500}
"""Frames that are drawn for each kind of profile, few enough to take seconds."""
WIDTH = 2000
"""Subcarriers of the channel estimates."""
SNR_DB = 10.0
MOVING = 5000
"""Frames of the correlations in time and frequency, and of MMSE."""
LIGHT = 299_792_458.0
"""Speed of light, m/s."""


def check_ofdm_transparency(lab: Lab) -> Iterator[Finding]:
    """Check that zero-forcing of a known channel is transparent: for features without noise, for gradients always."""
    for profile in ("rayleigh", "tdl-a", "cdl-a"):
        link = lab.make("ofdm", profile=profile, equaliser="zf", downlink="ideal")
        sent = lab.normal(50, 64, key="sent").requires_grad_()
        received = lab.features(link, sent, math.inf, f"transparency {profile}")
        apart = received.detach() - normalise_power(sent.detach())
        yield find_largest_error(f"OFDM {profile}, ZF, no noise: received less sent", apart, 4 * epsilon(torch.float32))
        weights = lab.normal(50, 64, key="weights")
        yield find_largest_error(
            f"OFDM {profile}, ZF, {SNR_DB:g} dB: gradient less that of an ideal link",
            _measure_gradient(lab, link, sent, weights, profile)
            - _measure_gradient(lab, lab.make("ideal"), sent, weights, profile),
            epsilon(torch.float32) * float(weights.abs().max()),
        )


def _measure_gradient(lab: Lab, link: Link, sent: Tensor, weights: Tensor, key: str) -> Tensor:
    """Compute the gradient of the features that belongs to the gradient `weights` at the receiver."""
    received = lab.features(link, sent, SNR_DB, f"gradient {key}")
    return torch.autograd.grad(received, sent, weights)[0]


def check_ofdm_leaks(lab: Lab) -> Iterator[Finding]:
    """Check that the users of a band are separate: features and gradients of either user do not depend on the other."""
    link = lab.make("ofdm", profile="tdl-a", csi="ls").in_band(2, 2, 50, 64)
    ways = [[lab.draw(link.of(k), [50], 64, f"{way} of user {k}") for k in (0, 1)] for way in ("uplink", "downlink")]
    up, down = ({name: torch.cat([drawn[name] for drawn in way]) for name in way[0]} for way in ways)
    mine, other = lab.normal(1, 50, 64, key="mine"), lab.normal(1, 50, 64, key="other")
    received, gradients = [], []
    for scale in (1.0, -3.0):
        features = torch.cat([mine, scale * other.exp()]).requires_grad_()
        at_station = link(features, up, lab.snr(SNR_DB).expand(2), down=down)
        (gradient,) = torch.autograd.grad((at_station.square() * torch.cat([mine, other])).sum(), features)
        received.append(at_station[0].detach())
        gradients.append(gradient[0])
    yield find_largest_error(
        "OFDM, two users: change at one when the other sends something else", received[0] - received[1], 0.0
    )
    yield find_largest_error("OFDM, two users: change of one's gradient then", gradients[0] - gradients[1], 0.0)


def check_ofdm_profiles(lab: Lab) -> Iterator[Finding]:
    """Measure E|h|^2 of a resource element, with a frame as the independent unit."""
    for profile in filter(PROFILES.ships, PROFILES.names()):
        link = lab.make("ofdm", profile=profile, equaliser="none")
        frames = FRAMES[profile.split("-")[0]]
        drawn = lab.draw(link, [1] * frames, 2, f"profile {profile}")
        h = link.transmit(lab.ones(1, frames, 1), drawn, lab.snr(math.inf))
        yield find_mean(f"OFDM {profile}: E|h|^2", square_gains(h), 1.0)
    link = lab.make("ofdm", profile="tdl-a", equaliser="none")
    sent, key = lab.ones(500, 32), "noise of ofdm"
    added = lab.transmit(link, sent, SNR_DB, key) - lab.transmit(link, sent, math.inf, key)
    yield find_mean("OFDM: noise per resource element at 10 dB, no", square_gains(added), theory.noise_power(SNR_DB))


def check_ofdm_doppler(lab: Lab) -> Iterator[Finding]:
    """Measure the correlation of an element with later ones of its subcarrier: that of Jakes' spectrum."""
    speed, carrier, apart = 300.0, 3.5e9, (1, 3, 9)
    link = lab.make("ofdm", profile="tdl-a", pilots=(), speed_mps=speed, subcarriers=1)
    h = lab.draw(link, [1] * MOVING, 2 * SLOT, "doppler")["fading"][0]
    for n in apart:
        expected = theory.time_correlation(speed * carrier / LIGHT, n * 15 / 14 / 15e3)
        yield from _compare_correlation(
            f"OFDM tdl-a, {speed:g} m/s: E[h h*] {n} symbols apart", h[:, n] * h[:, 0].conj(), expected
        )


def check_ofdm_delay(lab: Lab) -> Iterator[Finding]:
    """Measure the correlation of an element with others of its OFDM symbol: the transform of the profile's paths."""
    spread, apart = 300e-9, (10, 40, 100)
    link = lab.make("ofdm", profile="tdl-a", delay_spread_ns=1e9 * spread, subcarriers=max(apart) + 1)
    h = lab.draw(link, [1] * MOVING, 2 * (max(apart) + 1), "delay")["fading"][0]
    paths = import_sionna().TDL("A", spread, 3.5e9, device="cpu")  # for its table alone
    powers, delays = paths.mean_powers.double().numpy(), paths.delays.double().numpy()
    for n in apart:
        expected = theory.frequency_correlation(powers, delays, n * 15e3)
        yield from _compare_correlation(
            f"OFDM tdl-a, 300 ns: E[h h*] {15 * n} kHz apart", h[:, 0] * h[:, n].conj(), expected
        )


def _compare_correlation(title: str, products: Tensor, expected: complex) -> Iterator[Finding]:
    """Measure the mean of independent products."""
    yield find_mean(f"{title}, real", products.real, expected.real)
    yield find_mean(f"{title}, imaginary", products.imag, expected.imag)


def check_ofdm_estimates(lab: Lab) -> Iterator[Finding]:
    """Measure E|estimate - h|^2 of least squares, with one pilot symbol over a constant channel, and the MSE of MMSE.

    The first is no on every subcarrier.
    """
    link = lab.make("ofdm", profile="rayleigh", csi="ls", pilots=0, subcarriers=WIDTH)
    for snr_db in (0.0, 10.0, 20.0, 30.0):
        no = theory.noise_power(snr_db)
        drawn = lab.draw(link, [1] * 20, 2 * WIDTH, f"estimates {snr_db}")  # 20 frames with one data symbol each
        deviation = torch.full((1, 1, 1), math.sqrt(no), device=lab.device)
        estimate, h = link.estimate(drawn, deviation), link.gain(drawn)
        assert estimate is not None and h is not None
        yield find_mean(
            f"OFDM: squared error of LS at the pilots, {snr_db:g} dB, no", square_gains(estimate.gain - h), no
        )
    link = lab.make("ofdm", profile="rayleigh", csi="ls", pilots=0, subcarriers=1)
    for snr_db in (-10.0, 10.0):
        no, sent = theory.noise_power(snr_db), lab.ones(1, MOVING, 1)
        drawn = lab.draw(link, [1] * MOVING, 2, f"MMSE of LS {snr_db}")
        error = square_gains(link.transmit(sent, drawn, lab.snr(snr_db)) - sent)
        expected = theory.mean_square_error("mmse", no, known=1 / (1 + no))
        yield find_mean(f"OFDM: MSE of MMSE with LS, {snr_db:g} dB", error, expected)
