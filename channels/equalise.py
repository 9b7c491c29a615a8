"""One-tap equalisers with perfect channel knowledge: received `y = h x + n`, estimate `w y`.

| name | w | effective gain a = w h |
| --- | --- | --- |
| `zf` | 1 / h | 1 |
| `mmse` | conj(h) / (\\|h\\|^2 + no) | \\|h\\|^2 / (\\|h\\|^2 + no), biased towards zero |
| `none` | 1 | h |
"""

from __future__ import annotations

import torch
from torch import Tensor

EQUALISERS = ("mmse", "zf", "none")


def equalise(name: str, gain: Tensor | None, no: Tensor) -> tuple[Tensor | None, Tensor | None]:
    """Weights w and effective gains a = w h of equaliser `name`; None stands for 1.

    Args:
        name: one of `EQUALISERS`.
        gain: complex gains h, or None where the channel does not fade: then there is nothing to equalise.
        no: noise variance per complex symbol, real, broadcastable to `gain`.

    A gain of exactly zero (rows that only pad) gets weight zero, not NaN.
    """
    if gain is None:
        return None, None
    if name == "none":
        return None, gain
    strength = gain.real.square() + gain.imag.square()
    tiny = torch.finfo(strength.dtype).tiny
    if name == "zf":
        return gain.conj() / strength.clamp_min(tiny), None
    total = (strength + no).clamp_min(tiny)
    return gain.conj() / total, strength / total
