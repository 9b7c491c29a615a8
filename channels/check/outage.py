"""Checks of statistics of a client's fading: rates in outage, truncated channel inversion, the mean gain of MMSE."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from scipy import special

from semcom.channels import theory
from semcom.channels.check.fading import draw_checked_gains, square_gains
from semcom.channels.check.finding import Finding, find_mean, find_probability
from semcom.channels.check.lab import Lab
from semcom.channels.link import complex_normal
from semcom.channels.statistics import Sender, Statistics

UNITS, BLOCKS, FADES = 200_000, 10_000, 256
OUTAGE, THRESHOLD, CSI_ERROR = 0.1, 0.1, 0.1
TEN_DB = 10.0


def check_outage(lab: Lab) -> Iterator[Finding]:
    """Measure how often blocks at 10 dB are lost at the rates that are chosen for an outage of 0.1."""
    kinds: dict[str, tuple[str, dict[str, Any]]] = {
        "Rayleigh": ("rayleigh", {}),
        "Rayleigh, 2 antennas": ("rayleigh", {"antennas": 2}),
        "Rician K = 9 dB": ("rician", {"k_factor_db": 9.0}),
    }
    for name, (kind, options) in kinds.items():
        link = lab.make(kind, **options)
        rate = Statistics(link).find_limit(Sender(TEN_DB), OUTAGE)
        gain = link.gain(lab.draw(link, [UNITS], 2, f"outage {name}"))
        assert gain is not None
        lost = torch.log2(1 + TEN_DB * square_gains(gain).double().flatten()) < rate
        yield find_probability(f"{name}: outage at the rate for 0.1", lost, OUTAGE)
    h = draw_checked_gains(lab, "rayleigh", BLOCKS, FADES, "outage of blocks", coherence="symbol").to("cpu")
    carried = torch.log2(1 + TEN_DB * square_gains(h).double())
    fading = Statistics(lab.make("rayleigh", coherence="symbol"))
    for fades in (2, 16, FADES):
        rate = fading.find_limit(Sender(TEN_DB, uses=float(fades)), OUTAGE)
        lost = carried[:, :fades].mean(1) < rate
        yield find_probability(f"Rayleigh, blocks of {fades} fades: outage at the rate for 0.1", lost, OUTAGE)
    ergodic = fading.find_limit(Sender(TEN_DB, uses=2.0**40), OUTAGE)
    yield find_mean("Rayleigh: bits per use of one fade, for a rate without end", carried[:, 0], ergodic)


def check_channel_inversion(lab: Lab) -> Iterator[Finding]:
    """Measure truncated channel inversion of known and of wrongly known h, and E[a] of MMSE."""
    h = draw_checked_gains(lab, "rayleigh", UNITS, 1, "inversion")[:, 0].to(torch.complex128)
    for name, csi_error in (("h", 0.0), ("h with an error of 0.1", CSI_ERROR)):
        error = complex_normal(h.shape, lab.generator("what clients know"), torch.float64)
        known, m = h + csi_error**0.5 * error, 1 + csi_error
        power, mean = Statistics(lab.make("rayleigh")).invert(THRESHOLD, csi_error)
        kept, x = square_gains(known) >= THRESHOLD, THRESHOLD / m
        title = f"Rayleigh, inversion of {name} above -10 dB"
        yield find_mean(f"{title}: power", torch.where(kept, 1 / square_gains(known), 0.0), power)
        yield find_mean(f"{title}: part that arrives", torch.where(kept, (h / known).real, 0.0), mean)
        yield Finding(f"{title}: E1(t / m) / m", float(special.exp1(x) / m), power, 1e-9, None)
    for snr_db in (0.0, 10.0):
        link, no = lab.make("rayleigh"), theory.noise_power(snr_db)
        arrived = lab.transmit(link, lab.ones(UNITS, 1), snr_db, f"mean gain {snr_db}")
        expected = 1 - no * theory.scaled_exponential_integral(no)
        yield find_mean(f"Rayleigh, MMSE, {snr_db:g} dB: mean estimate of 1", arrived.real, expected)
        shrunk = Statistics(link).shrink(no)
        yield Finding(f"Rayleigh, MMSE, {snr_db:g} dB: E[a]", expected, shrunk, 1e-9, None)
