"""Checks of several users on one resource, and of fading that goes on from round to round."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch

from semcom.channels import theory
from semcom.channels.check.finding import Finding, find_mean, find_probability
from semcom.channels.check.lab import Lab
from semcom.channels.fading import Rayleigh
from semcom.channels.users import Fades

UNITS, CLIENTS = 50_000, 4000
NO = 0.1
DOPPLER = 0.1
"""Doppler frequency times the time from a round to the next: J0 has its first zero after 3.8 rounds."""


USERS: tuple[tuple[str, int, tuple[float, ...], tuple[float, ...]], ...] = (
    *((how, n, (1.0,) * u, (3.0, 10.0, 30.0)) for how, n, u in (("mrc", 4, 1), ("zf", 4, 1), ("zf", 3, 2))),
    *((how, n, (1.0,) * u, (3.0, 10.0, 30.0)) for how, n, u in (("mmse", 4, 1), ("mmse", 2, 2))),
    ("mrc", 4, (1e-3,), (10.0, 30.0, 60.0)),
    ("mrc", 4, (1e3,), (3e-3, 1e-2, 3e-2)),
    *((how, 4, (1e3,), (3.0, 10.0, 30.0)) for how in ("zf", "mmse")),
    ("mrc", 2, (10.0, 0.1), (0.03, 0.1, 0.3)),
    ("mmse", 2, (10.0, 0.1), (1.0, 3.0, 10.0)),
)
"""Combining, antennas, mean powers of the other users over that of the received user, and SINRs to look at."""


def check_users(lab: Lab) -> Iterator[Finding]:
    """Measure at 10 dB the SINR of a user among several over Rayleigh fading, and the error of its symbols."""
    for combining, antennas, others, sinrs in USERS:
        users = 1 + len(others)
        options = {"combining": combining, "antennas": antennas, "users": users}
        link, key = lab.make("rayleigh", equaliser="zf", **options), f"{combining} {antennas} {users}"
        name = f"{combining.upper()}, {users} users on {antennas} antennas"
        if set(others) != {1.0}:
            name += f", others {' and '.join(f'{10 * math.log10(p):+g}' for p in others)} dB"
            key += f" {others}"
        assert isinstance(link, Rayleigh)
        fades = Fades((), 0, powers=torch.tensor([1.0, *others], dtype=torch.float64))
        made = link.draw([UNITS], 2, lab.generator(key), fades=fades)
        drawn, no = {n: t[None] for n, t in made.items()}, torch.full((1, 1, 1), NO, device=lab.device)
        gain, heard = link.gain_at(drawn, no), link.interference(drawn, no)
        assert gain is not None
        beside = no if heard is None else no + heard
        sinr = (gain.abs().square() / beside).double().flatten()
        for x in sinrs:
            expected = float(theory.combined_cdf(combining, x, NO, antennas, others))
            yield find_probability(f"{name}: P(SINR < {x:g})", sinr < x, expected)
        error = link.transmit(lab.ones(1, UNITS, 1), drawn, lab.snr(10.0))[0] - 1
        yield find_mean(f"{name}: E|e|^2 / (no + I)", error.abs().square() * (gain.abs().square() / beside)[0], 1.0)


def check_users_over_rounds(lab: Lab) -> Iterator[Finding]:
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
