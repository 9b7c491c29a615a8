"""Checks of several users on one resource, and of fading that goes on from round to round."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from channels import theory
from channels.check.finding import Finding, find_mean, find_probability
from channels.check.lab import Lab
from channels.fading import Rayleigh
from channels.users import Fades

UNITS, CLIENTS = 50_000, 4000
NO = 0.1
DOPPLER = 0.1
"""Doppler frequency times the time from a round to the next: J0 has its first zero after 3.8 rounds."""


def check_users(lab: Lab) -> Iterator[Finding]:
    """Measure at 10 dB the SINR of one of several users over Rayleigh fading, and what is heard beside its symbols."""
    for combining, antennas, users in (("mrc", 4, 2), ("zf", 4, 2), ("zf", 3, 3), ("mmse", 4, 2), ("mmse", 2, 3)):
        options = {"combining": combining, "antennas": antennas, "users": users}
        link, key = lab.make("rayleigh", equaliser="zf", **options), f"{combining} {antennas} {users}"
        name = f"{combining.upper()}, {users} users on {antennas} antennas"
        drawn, no = lab.draw(link, [UNITS], 2, key), torch.full((1, 1, 1), NO, device=lab.device)
        gain, others = link.gain_at(drawn, no), link.interference(drawn, no)
        assert gain is not None
        beside = no if others is None else no + others
        sinr = (gain.abs().square() / beside).double().flatten()
        for x in (3.0, 10.0, 30.0):
            expected = float(theory.combined_cdf(combining, x, NO, antennas, users))
            yield find_probability(f"{name}: P(SINR < {x:g})", sinr < x, expected)
        error = lab.transmit(link, lab.ones(UNITS, 1), 10.0, key) - 1
        yield find_mean(f"{name}: E|e|^2 / (no + I)", error.abs().square() * (gain.abs().square() / beside)[0], 1.0)


def check_rounds(lab: Lab) -> Iterator[Finding]:
    """Measure the correlation of h over rounds, which is J0(2 pi n f_D T) after n of them."""
    link = lab.make("rayleigh", equaliser="none", coherence="round", round_doppler=DOPPLER)
    assert isinstance(link, Rayleigh)

    def draw(round_: int) -> torch.Tensor:
        fades = [Fades([lab.generator(f"moving {k}")], round_) for k in range(CLIENTS)]
        found = [link.draw([1], 2, lab.generator("noise"), fades=fade) for fade in fades]
        drawn = {name: torch.stack([one[name] for one in found]) for name in found[0]}
        return link.transmit(lab.ones(CLIENTS, 1, 1), drawn, lab.snr(torch.inf).expand(CLIENTS)).flatten()

    first = draw(1)
    yield find_mean("Rayleigh over rounds: E|h|^2", first.abs().square(), 1.0)
    for n in (1, 2, 5):
        products, expected = draw(1 + n) * first.conj(), float(theory.time_correlation(DOPPLER, n))
        yield find_mean(f"Rayleigh, f_D T = {DOPPLER:g}: Re of E[h h'*], {n} rounds apart", products.real, expected)
        yield find_mean(f"Rayleigh, f_D T = {DOPPLER:g}: Im of E[h h'*], {n} rounds apart", products.imag, 0.0)
