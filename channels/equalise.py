"""One-tap equalisers: received `y = h x + n`, estimate `w y`, where the receiver takes g for h; antennas as one h.

| name | w | effective gain a = w h, for g = h |
| --- | --- | --- |
| `zf` | 1 / g | 1; 0 where h = 0 |
| `mmse` | conj(g) / (\\|g\\|^2 + no) | \\|h\\|^2 / (\\|h\\|^2 + no), biased towards zero |
| `none` | 1 | h |

If g is an estimate with an error of variance v, MMSE takes E[h | g] in its place, and no + v for no.
"""

from __future__ import annotations

from typing import Literal, NamedTuple, get_args

import torch
from torch import Tensor

from semcom.channels.options import COUNT, require

Equaliser = Literal["mmse", "zf", "none"]
EQUALISERS = get_args(Equaliser)


class Estimate(NamedTuple):
    """Knowledge of a gain h that the receiver has to estimate."""

    gain: Tensor
    """Estimate g, complex, which zero forcing takes for h."""
    mean: Tensor
    """E[h | g], complex."""
    variance: Tensor
    """E|h - mean|^2, real."""


def combine_antennas(gains: Tensor, dim: int) -> Tensor:
    """Combine the gains of N antennas along a dimension to the single gain of maximum ratio combining.

    The receiver weighs antenna i by h_i* / g, g = sqrt(sum |h_i|^2), which leaves `g x + n` with the noise of one
    antenna. A sender that knows h and weighs its N antennas in this way, with a total power of 1, is received alike.
    """
    if gains.shape[dim] == 1:
        return gains.squeeze(dim)
    return torch.linalg.vector_norm(gains, dim=dim).to(gains.dtype)


def check_combined_antennas(antennas: int, equaliser: str, csi: str = "perfect") -> None:
    """Raise ValueError unless it is a number of antennas, and the receiver knows h if it combines several."""
    require("antennas", antennas, COUNT)
    if antennas > 1 and (equaliser == "none" or csi != "perfect"):
        needed = "equaliser mmse or zf" if equaliser == "none" else "csi perfect"
        raise ValueError(f"antennas: {antennas} are combined by a receiver that knows every h; choose {needed}")


def equalise(
    name: str, gain: Tensor | None, no: Tensor, estimate: Estimate | None = None
) -> tuple[Tensor | None, Tensor | None]:
    """Compute weights w and effective gains a = w h of equaliser `name`. None stands for 1.

    Args:
        name: one of `EQUALISERS`.
        gain: complex gains h, or None if the channel does not fade: then the equaliser does nothing.
        no: noise variance per complex symbol, real, broadcastable to `gain`.
        estimate: the receiver's knowledge of h (None: h itself).

    A gain of exactly zero (of samples that are lost, or only pad) gets weight and effective gain zero, not NaN.
    """
    if gain is None:
        return None, None
    if name == "none":
        return None, gain
    known = gain
    if estimate is not None:
        known, no = (estimate.gain, no) if name == "zf" else (estimate.mean, no + estimate.variance)
    strength = known.real.square() + known.imag.square()
    # Not 0 / 0 where h is zero: a lost symbol arrives as zero.
    total = (strength if name == "zf" else strength + no).clamp_min(torch.finfo(strength.dtype).tiny)
    weight = known.conj() / total
    return weight, strength / total if estimate is None else weight * gain
