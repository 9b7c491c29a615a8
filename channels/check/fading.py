"""Checks of fading, all of it as symbols see it: h is the answer of a link without noise to the symbol 1."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from itertools import product

import torch
from torch import Tensor

from semcom.channels import theory
from semcom.channels.check.finding import (
    Finding,
    epsilon,
    find_largest_error,
    find_mean,
    find_probability,
    find_second_moment,
)
from semcom.channels.check.lab import Lab

UNITS, ROUNDS = 200_000, 2000
K_FACTORS_DB = (0.0, 9.0)


def draw_checked_gains(lab: Lab, kind: str, blocks: int, n: int, key: str, **options: str | float) -> Tensor:
    """Draw h `[blocks, n]` of samples of n symbols."""
    link = lab.make(kind, equaliser="none", **options)
    return lab.transmit(link, lab.ones(blocks, n), math.inf, key)


def square_gains(h: Tensor) -> Tensor:
    """Compute |h|^2 of gains h."""
    return h.real.square() + h.imag.square()


def check_fading(lab: Lab) -> Iterator[Finding]:
    """Measure power, its distribution and phase of Rayleigh and Rician fading, and the K-factor of the latter."""
    h = draw_checked_gains(lab, "rayleigh", UNITS, 1, "fading")[:, 0]
    yield from _check_powers("Rayleigh", h, 0.0)
    yield from _check_phases(h)
    for k_factor_db in K_FACTORS_DB:
        name, k_factor = f"Rician K = {k_factor_db:g} dB", 10 ** (k_factor_db / 10)
        h = draw_checked_gains(lab, "rician", UNITS, 1, name, k_factor_db=k_factor_db)[:, 0]
        yield from _check_powers(name, h, k_factor)
        yield _estimate_k_factor(f"{name}: K", h, k_factor)
        yield find_mean(f"{name}: Re of E[h]", h.real, 0.0)  # its line of sight has any phase
        yield find_mean(f"{name}: Im of E[h]", h.imag, 0.0)
    yield _compare_turned_gains(lab)


def _compare_turned_gains(lab: Lab) -> Finding:
    """Compare the gains of 1 and j: a complex one is the same for both, separate ones on I and Q would not be."""
    h = draw_checked_gains(lab, "rayleigh", UNITS, 1, "fading")[:, 0]
    link = lab.make("rayleigh", equaliser="none")
    turned = lab.transmit(link, 1j * lab.ones(UNITS, 1), math.inf, "fading")[:, 0]
    return find_largest_error("Rayleigh: h seen by j less h seen by 1", turned / 1j - h, epsilon(torch.float32))


def _check_powers(name: str, h: Tensor, k_factor: float) -> Iterator[Finding]:
    power = square_gains(h)
    yield find_mean(f"{name}: E|h|^2", power, 1.0)
    yield find_mean(f"{name}: var|h|^2", (power - 1).square(), theory.power_variance(k_factor))
    for a in (0.1, 1.0, 3.0):
        yield find_probability(f"{name}: P(|h|^2 < {a:g})", power < a, float(theory.power_cdf(a, k_factor)))


def _estimate_k_factor(quantity: str, h: Tensor, k_factor: float) -> Finding:
    """Estimate K by moments: r = E|h|^4 / (E|h|^2)^2 = 2 - s^2, s = K / (1 + K), with the error by the delta method."""
    r = find_second_moment("", square_gains(h), 1 + theory.power_variance(k_factor))
    s = math.sqrt(max(2 - r.measured, 0.0))
    slope = 1 / (2 * s * (1 - s) ** 2) if s else math.inf
    return Finding(quantity, k_factor, s / (1 - s), slope * r.error, r.units)


def _check_phases(h: Tensor) -> Iterator[Finding]:
    """Measure the phase of h: its quadrant, and its place within that by cos 4 phase."""
    phase = h.angle()
    for i, place in enumerate(("-pi to -pi/2", "-pi/2 to 0", "0 to pi/2", "pi/2 to pi")):
        low = (i - 2) * math.pi / 2
        yield find_probability(
            f"Rayleigh: P(phase of h in {place})", (phase >= low) & (phase < low + math.pi / 2), 0.25
        )
    yield find_mean("Rayleigh: mean cos(4 phase of h)", torch.cos(4 * phase), 0.0)


def check_antenna_gains(lab: Lab) -> Iterator[Finding]:
    """Measure the power that several antennas combine, and the bit errors of QPSK then."""
    for n in (2, 4):
        link = lab.make("rayleigh", equaliser="zf", antennas=n)
        power = square_gains(lab.draw(link, [UNITS], 2, f"antennas {n}")["fading"].flatten())
        yield find_mean(f"Rayleigh, {n} antennas: E g^2", power, n)
        for a in (0.5, 2.0):
            yield find_probability(
                f"Rayleigh, {n} antennas: P(g^2 < {a:g})", power < a, float(theory.power_cdf(a, 0.0, n))
            )
        bits = lab.bits(UNITS, 2, key=f"antennas {n}")
        sent = torch.view_as_complex((1 - 2 * bits) / math.sqrt(2))[:, None]
        received = lab.transmit(link, sent, 0.0, f"antennas {n}")[:, 0]
        wrong = (torch.view_as_real(received) < 0) != bits.bool()
        expected = theory.bit_error_rate(2, 0.0, True, n)
        yield find_mean(f"BER QPSK, Rayleigh, {n} antennas, 0 dB", wrong.double().mean(-1), expected)


def check_coherence(lab: Lab) -> Iterator[Finding]:
    """Measure coherence in rounds of mini-batches of 3 and 2 samples with 4 symbols.

    Gains are equal inside a block, and independent across blocks.
    """
    sizes, n = (3, 2), 4
    for kind, (name, block) in product(("rayleigh", "rician"), _number_blocks(sizes, n, lab.device).items()):
        link = lab.make(kind, equaliser="none", coherence=name)
        title = f"{kind.capitalize()}, one h per {name}"
        generator = lab.generator(title)
        each = [link.draw(sizes, 2 * n, generator) for _ in range(ROUNDS)]
        drawn = {key: torch.stack([one[key] for one in each]) for key in each[0]}
        snr_db = lab.snr(math.inf).expand(ROUNDS)
        h = link.transmit(lab.ones(ROUNDS, sum(sizes), n), drawn, snr_db)
        first = torch.stack([h[:, block == i][:, 0] for i in range(int(block.max()) + 1)], 1)
        yield find_largest_error(f"{title}: change inside a block", h - first[:, block], 0.0)
        series = first.flatten()  # in the order of time, across the borders of rounds too
        products = series[:-1] * series[1:].conj()
        yield find_mean(f"{title}: Re of E[h h'*] of neighbours", products.real, 0.0)
        yield find_mean(f"{title}: Im of E[h h'*] of neighbours", products.imag, 0.0)


def _number_blocks(sizes: tuple[int, ...], n: int, device: torch.device) -> dict[str, Tensor]:
    """Number each symbol's block by hand, `[samples, n]`, for each coherence."""
    samples = sum(sizes)
    sample = torch.arange(samples, device=device)[:, None].expand(samples, n)
    batch = torch.tensor([i for i, size in enumerate(sizes) for _ in range(size)], device=device)
    return {
        "symbol": torch.arange(samples * n, device=device).view(samples, n),
        "sample": sample,
        "batch": batch[:, None].expand(samples, n),
        "round": torch.zeros_like(sample),
    }


def measure_received_snr(
    lab: Lab, kind: str, snr_db: float, blocks: int, **options: str | float
) -> tuple[Tensor, float]:
    """Measure the SNR of blocks of 8 symbols, `[blocks]`, and the relative error of its noise power.

    The SNR is the power of h over that of the noise, which is the same for all blocks and measured over all of them.
    """
    n, key = 8, f"received snr {kind} {snr_db} {options}"
    h = draw_checked_gains(lab, kind, blocks, n, key, **options)
    link = lab.make(kind, equaliser="none", **options)
    noise = lab.transmit(link, lab.ones(blocks, n), snr_db, key) - h
    return square_gains(h).mean(-1) / square_gains(noise).mean(), 1 / math.sqrt(n * blocks)


def check_received_snr(lab: Lab) -> Iterator[Finding]:
    """Measure the received SNR at 10 dB, which is exponential over Rayleigh fading, and the ergodic capacity."""
    yield from _check_snr(lab, "Rayleigh", "rayleigh", 0.0)
    for k_factor_db in K_FACTORS_DB:
        name = f"Rician K = {k_factor_db:g} dB,"
        yield from _check_snr(lab, name, "rician", 10 ** (k_factor_db / 10), k_factor_db=k_factor_db)
    for snr_db in (0.0, 10.0, 20.0):
        received, relative = measure_received_snr(lab, "rayleigh", snr_db, UNITS // 2)
        title, bits = f"Rayleigh {snr_db:g} dB: ergodic capacity", torch.log2(1 + received)
        slope = float((received / (1 + received)).mean()) / math.log(2)  # of the capacity to the noise's relative error
        yield _add_error(find_mean(title, bits, theory.ergodic_capacity(snr_db)), slope * relative)


def _check_snr(lab: Lab, name: str, kind: str, k_factor: float, **options: float) -> Iterator[Finding]:
    """Measure mean and distribution of the received SNR at 10 dB."""
    received, relative = measure_received_snr(lab, kind, 10.0, UNITS // 2, **options)
    yield _add_error(find_mean(f"{name} 10 dB: mean received SNR", received, 10.0), 10.0 * relative)
    for level_db in (0.0, 10.0):
        below = 10 ** (level_db / 10 - 1)  # |h|^2
        chance = float(theory.power_cdf(below, k_factor))
        step = 1e-4
        slope = float(theory.power_cdf(below * (1 + step), k_factor) - chance) / step
        found = find_probability(f"{name} 10 dB: P(received SNR < {level_db:g} dB)", received < 10 * below, chance)
        yield _add_error(found, slope * relative)


def _add_error(found: Finding, error: float) -> Finding:
    """Add a second, independent source of error."""
    return replace(found, error=math.hypot(found.error, error))
