"""Several users on one resource, separated by the antennas of a base station.

With N antennas and U users the base station receives `y = sum over j of sqrt(p_j) h_j x_j + sqrt(no) n`, h_j complex
`[N]`, E|h|^2 = 1, in units in which p_k = 1, so that no belongs to user k's mean SNR. For user k it weighs the antennas
by w, of norm 1, which leaves

    w^H y = g x_k + e,    g = w^H h_k > 0,    E|e|^2 = no + I,    I = sum over j != k of p_j |w^H h_j|^2.

The symbols of the others are modelled as Gaussian noise, drawn anew, so that a client's channel depends only on its own
realisation.

| combining | w is along | SINR over Rayleigh fading |
| --- | --- | --- |
| `mrc` | h_k | g^2 is Gamma(N), I is a sum of p_j times exponentials |
| `zf` | the part of h_k that no other user reaches; U <= N | Gamma(N - U + 1) / no, whatever the p_j |
| `mmse` | (sum over j != k of p_j h_j h_j^H + no)^-1 h_k, the best | `semcom.channels.theory.combined_cdf` |

D. Tse and P. Viswanath, Fundamentals of Wireless Communication, 2005, Sections 8.3 and 10.1.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Tensor

from semcom.channels.equalise import check_combined_antennas
from semcom.channels.link import Link, Realisation
from semcom.channels.options import COUNT, BaseOptions, NoEffect, one_of, require

Combining = Literal["mmse", "zf", "mrc"]
COMBININGS = get_args(Combining)
PowerControl = Literal["none", "weakest"]
POWER_CONTROLS = get_args(PowerControl)
FARTHEST_DB = 100.0
"""Distance of two users' powers from which on more makes no difference, so that single precision holds both."""
PATHS = 64
"""Waves that make up a fading that moves from round to round: E|h|^4 is 2 - 1 / 64 in place of 2."""


@dataclass(frozen=True)
class Fades:
    """Origin of a client's fading, in a link that couples clients or rounds.

    Attributes:
        generators: of the client, then of each other user of its resource. Each draws the gains of its own antennas.
        round: number of the round.
        clients: numbers of these users, for fading that differs between clients (below 0: a client outside the run).
        powers: mean powers at which these users are received, over that of the first, `[U]` (None: equal).

    Without generators the realisation's own generator draws the gains of all users, independently of other rounds.
    """

    generators: Sequence[torch.Generator]
    round: int
    clients: Sequence[int] = ()
    powers: Tensor | None = None


class Combined(Link):
    """Link to a base station with several antennas, which may separate several users of a resource.

    A subclass draws their gains, from which `separate_users` makes its realisation.
    """

    @dataclass(frozen=True)
    class Options(Link.Options):
        """Options of the base station."""

        antennas: int = 1
        """Antennas of the base station, which are combined (maximum ratio, both ways): they fade independently, or as a
        scene has them."""
        users: int = 1
        """Clients that send on the same resource at the same time, and are told apart by the antennas."""
        combining: Combining = "mmse"
        """Combining of the antennas for one of several users: "mmse", "zf" (others are nulled), or "mrc"."""
        power_control: PowerControl = "none"
        """Power of several users on the uplink: full, received as path losses have it ("none"), or lowered until all of
        a group are received like the "weakest" of them."""

        def check(self) -> None:
            """Raise ValueError for users that these antennas cannot separate, or as the parent does."""
            super().check()
            csi = getattr(self, "csi", "perfect")
            check_combined_antennas(self.antennas, self.equaliser, csi)
            check_users(self.users, self.combining, self.antennas, self.equaliser, csi)
            one_of("power_control", self.power_control, POWER_CONTROLS)
            if self.users == 1 and self.power_control != "none":
                raise NoEffect(f"power_control: {self.power_control!r} is for users of one resource; set users")

    def __init__(self, options: BaseOptions) -> None:
        super().__init__(options)
        self.users = getattr(options, "users", 1)
        self.combining = getattr(options, "combining", "mmse")
        self.power_control = getattr(options, "power_control", "none")

    def broadcast(self) -> Combined:
        """Return this link for broadcasts: to a single user."""
        alone = copy(self)
        alone.users = 1
        return alone

    def gain(self, drawn: Realisation) -> Tensor:
        """Compute h per symbol. For users separated by MMSE, that at no = 1."""
        return drawn["fading"] if "fading" in drawn else self.gain_at(drawn, torch.ones_like(drawn["others"][..., 0]))

    def gain_at(self, drawn: Realisation, no: Tensor) -> Tensor:
        """Compute h per symbol, or the gain after combining at a noise variance."""
        if "strengths" not in drawn:
            return self.gain(drawn)
        return weigh_antennas(drawn["strengths"], drawn["others"], no)[0].to(no.dtype.to_complex())

    def interference(self, drawn: Realisation, no: Tensor) -> Tensor | None:
        """Compute the power of other users' symbols after combining."""
        if "strengths" in drawn:
            return weigh_antennas(drawn["strengths"], drawn["others"], no)[1]
        return drawn.get("others")


def check_users(users: int, combining: str, antennas: int, equaliser: str, csi: str) -> None:
    """Raise ValueError unless these antennas can separate these users."""
    require("users", users, COUNT)
    one_of("combining", combining, COMBININGS)
    if users == 1 and combining != "mmse":
        raise NoEffect(f"combining: {combining!r} is what mmse is for one user; set users")
    if users > 1 and (equaliser == "none" or csi != "perfect"):
        needed = "equaliser mmse or zf" if equaliser == "none" else "csi perfect"
        raise ValueError(f"users: {users} are told apart by a receiver that knows every h; choose {needed}")
    if combining == "zf" and users > antennas:
        raise ValueError(f"users: zf tells as many users apart as there are antennas, {antennas}, and not {users}")


def control_power(snr_db: Tensor, control: str) -> tuple[Tensor, Tensor]:
    """Compute mean SNRs in dB, and the powers at which users are received over that of the first, both `[g, U]`.

    Args:
        snr_db: mean SNRs of the users of each resource at full power, `[g, U]`.
        control: one of `POWER_CONTROLS`.

    Example:
        >>> import torch
        >>> from semcom.channels.users import control_power
        >>> control_power(torch.tensor([[0.0, 30.0]]), "none")[1].tolist()
        [[1.0, 1000.0]]
        >>> control_power(torch.tensor([[30.0, 0.0]]), "weakest")[0].tolist()
        [[0.0, 0.0]]
    """
    if control == "weakest":
        snr_db = snr_db.amin(-1, keepdim=True).expand_as(snr_db)
    apart = (snr_db - snr_db[:, :1]).double().nan_to_num(0.0)  # of inf and inf, all without noise
    return snr_db, torch.pow(10.0, apart.clamp(-FARTHEST_DB, FARTHEST_DB) / 10)


def separate_users(gains: Tensor, combining: str, powers: Tensor | None = None) -> dict[str, Tensor]:
    """Compute the entries of a realisation from the gains `[..., N, U]` of all users, the received user first.

    `mrc` and `zf`: "fading" g, complex `[...]`, and "others" I. `mmse` chooses w by no: "strengths" and "others" `[...,
    N]`, the powers of h along the directions of the others, and their power there.

    Args:
        gains: h_j, of mean power 1.
        combining: one of `COMBININGS`.
        powers: p_j, broadcastable to `[..., U]`, 1 for the first (None: 1 for all).
    """
    all_users = gains.to(torch.complex128)  # powers 100 dB apart would leave single precision no digits
    if powers is not None:
        all_users = all_users * powers.to(gains.device).sqrt().unsqueeze(-2)
    own, others = all_users[..., :1], all_users[..., 1:]
    real, whole = gains.real.dtype, gains.dtype
    if combining == "mmse":
        # In the eigenbasis of the others w is a division per direction, for any noise variance.
        power, directions = torch.linalg.eigh(others @ others.mH)
        strengths = (directions.mH @ own).squeeze(-1).abs().square()
        return {"strengths": strengths.to(real), "others": power.clamp_min(0).to(real)}  # eigh may round below 0
    if combining == "zf":
        # For nearly parallel users QR keeps the digits, half of which normal equations would lose.
        basis = torch.linalg.qr(others).Q
        free = own - basis @ (basis.mH @ own)
        return {"fading": torch.linalg.vector_norm(free, dim=(-2, -1)).to(whole)}
    norm = torch.linalg.vector_norm(own, dim=(-2, -1))
    heard = (own.mH @ others).squeeze(-2).abs().square().sum(-1) / norm.square()
    return {"fading": norm.to(whole), "others": heard.to(real)}


def weigh_antennas(strengths: Tensor, others: Tensor, no: Tensor) -> tuple[Tensor, Tensor]:
    """Compute g and I of MMSE combining, real `[...]`, at the noise variance `no`, broadcastable to that."""
    inverse = 1 / (others + no.unsqueeze(-1).clamp_min(torch.finfo(others.dtype).eps))
    along, power = (strengths * inverse).sum(-1), (strengths * inverse.square()).sum(-1)
    power = power.clamp_min(torch.finfo(power.dtype).tiny)  # of samples that only pad, 0
    return along / power.sqrt(), (strengths * others * inverse.square()).sum(-1) / power


def sum_waves(turns: float, antennas: int, paths: int, generator: torch.Generator) -> Tensor:
    """Sum waves from all directions, complex128 `[antennas, 1, 1]`, E|h|^2 = 1, after some turns of the fastest wave.

    The generator draws the same numbers for all `turns`, f_D t: E[h(t) h(0)*] = J0(2 pi f_D t), Jakes' spectrum. So h
    of any time follows from the generator's seed.
    """
    drawn = torch.rand(2, antennas, paths, generator=generator, dtype=torch.float64, device=generator.device)
    angle, phase = (2 * math.pi * drawn).unbind(0)
    turned = phase + 2 * math.pi * turns * angle.cos()
    return torch.polar(torch.ones_like(turned), turned).sum(-1)[:, None, None] / math.sqrt(paths)
