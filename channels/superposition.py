"""What uncoded numbers meet on the air, on average and when all clients send at once.

*Alone*, an estimate `w (h x + n)` has the mean E[a] x, a = w h: over Rayleigh fading an MMSE equaliser shrinks what is
sent, to 0.80 of it at 10 dB. `average_superposed_gain` is that factor; divided by it, an estimate is unbiased.

*At once* (over-the-air computation), the base station hears `y = sum over k of h_k x_k + n`. To let the sum of numbers
v_k arrive, client k sends `x_k = alpha v_k / g_k`, where it takes g_k for h_k, and nothing where |g_k|^2 is below a
threshold: truncated channel inversion, as in G. Zhu, Y. Wang and K. Huang, "Broadband analog aggregation for
low-latency federated edge learning", IEEE Trans. Wireless Commun. 19(1), 2020, Eqs. 7 to 11. One alpha for all keeps
the numbers aligned; it is the largest at which no client exceeds its mean power, so the worst one sets it.

With c = E[1 / |g|^2; |g|^2 >= threshold], q = E[h / g; |g|^2 >= threshold] and the noise variance 1,

    alpha = min over k of sqrt(snr_k / c) / r_k,    r_k the r.m.s. of |v_k|,
    sum of v_k  ~  y / (alpha q),

which is unbiased. Without fading c = q = 1. Over Rayleigh fading with g = h, P = exp(-threshold) of the symbols are
sent, q = P, c = E1(threshold), and the mean squared error is `(1/P - 1) sum of r_k^2 + 1 / (alpha q)^2`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor

from channels.link import Link, complex_normal
from channels.users import Combined, separate_users

SAMPLES = 2**14
"""Realisations that the means over the channel are taken of: their error is below 0.5 %."""


def draw_superposed_gains(
    link: Link, samples: int = SAMPLES, powers: tuple[float, ...] | None = None
) -> Mapping[str, Tensor]:
    """Draw independent realisations of a link, of one symbol each, `[samples, ...]`: the same at every call.

    `powers` are those of several users, `[U]`, as `Fades` has them.
    """
    if isinstance(link, Combined) and link.users > 1:
        received = None if powers is None else torch.tensor(powers, dtype=torch.float64)
        return separate_users(_draw_users(link, samples), link.combining, received)
    generator = torch.Generator().manual_seed(0)
    drawn = link.draw([1] * samples, 2, generator, torch.float64)
    gain = link.gain(drawn)
    if gain is None or bool((gain != gain[:1]).any()):
        return drawn
    each = [link.draw([1], 2, generator, torch.float64) for _ in range(samples // 4)]  # one h lasts for a whole draw
    return {name: torch.cat([d[name] for d in each]) for name in drawn}


@lru_cache(maxsize=1)
def _draw_users(link: Combined, samples: int) -> Tensor:
    return link.draw_users(samples, torch.Generator().manual_seed(0))


def average_superposed_gain(link: Link, drawn: Mapping[str, Tensor], snr_db: Tensor) -> Tensor | None:
    """Return E[a] of an equaliser that shrinks, `[k]` for SNRs `[k]` in dB; None for one that does not.

    Args:
        link: whose equaliser it is.
        drawn: realisations of `draw_superposed_gains`.
        snr_db: in dB.
    """
    gain = link.gain(drawn)
    if gain is None or link.equaliser != "mmse":
        return None
    no = torch.pow(10.0, snr_db.to(torch.float64) / -10.0).view(-1, *[1] * gain.ndim)
    _, _, effective = link.gains_at(drawn, no, no.sqrt())
    assert effective is not None
    return effective.real.expand(len(no), *gain.shape).flatten(1).mean(1).to(snr_db.dtype)


@dataclass(frozen=True)
class Inversion:
    """Truncated channel inversion by clients over a channel, with its means.

    Attributes:
        threshold: |g|^2 below which a client does not send.
        csi_error: variance of g - h; 0: clients know their channels.
        power: c.
        mean: q.
    """

    threshold: float
    csi_error: float
    power: float
    mean: float

    @classmethod
    def over(cls, gains: Tensor | None, threshold: float, csi_error: float = 0.0) -> Inversion:
        """Return the inversion of a channel with these `gains`, complex; None: it does not fade, and all is sent."""
        if gains is None:
            return cls(0.0, 0.0, 1.0, 1.0)
        known = _known(gains, csi_error, torch.Generator().manual_seed(1))
        strength = known.abs().square()
        kept = strength >= threshold
        ratio = torch.where(kept, (gains / known).real, 0.0)
        inverse = torch.where(kept, 1 / strength, 0.0)
        return cls(threshold, csi_error, float(inverse.mean()), float(ratio.mean()))

    def invert(self, gains: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Return what is left of each client's symbols on their way, complex, and which are sent, bool: `[n, s]` both.

        Args:
            gains: h_k, complex `[n, s]`.
            generator: draws the errors of what clients take for their channels.
        """
        known = _known(gains, self.csi_error, generator)
        kept = known.abs().square() >= self.threshold
        return torch.where(kept, gains / known, 0.0) / self.mean, kept

    def error(self, values: Tensor, arrives: Tensor | None, noise: Tensor | None, snr_db: Tensor) -> Tensor:
        """Return the error of the sum of `values` as the base station hears it, complex `[s]`.

        The sum itself is not in it, so that without noise and fading it is exactly 0.

        Args:
            values: v_k, complex `[n, s]`.
            arrives: of `invert`, `[n, s]` or `[n, 1]`; None: all of it.
            noise: of the base station's receiver, complex `[s]` with mean square 1; None: none.
            snr_db: the clients' SNRs in dB, `[n]`.
        """
        error = torch.zeros_like(values[0]) if arrives is None else ((arrives - 1) * values).sum(0)
        if noise is None:
            return error
        rms = values.abs().square().mean(1).sqrt()
        loudest = (rms * (self.power / torch.pow(10.0, snr_db.to(rms) / 10)).sqrt()).amax()  # 1 / alpha
        return error + noise * (loudest / self.mean)


def _known(gains: Tensor, csi_error: float, generator: torch.Generator) -> Tensor:
    """Return what clients take for their gains."""
    if not csi_error:
        return gains
    error = complex_normal(gains.shape, generator, gains.real.dtype)
    return gains + csi_error**0.5 * error.to(gains.device)
