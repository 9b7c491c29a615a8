"""The sum of uncoded numbers that all clients send at once: over-the-air computation.

The base station receives `y = sum over k of h_k x_k + n`. To deliver the sum of numbers v_k, client k sends `x_k =
alpha v_k / g_k`, where g_k is its estimate of h_k, and stays silent if |g_k|^2 is below a threshold: truncated channel
inversion, as in G. Zhu, Y. Wang and K. Huang, "Broadband analog aggregation for low-latency federated edge learning",
IEEE Trans. Wireless Commun. 19(1), 2020, Eqs. 7 to 11. A common alpha keeps the numbers aligned. It is the largest at
which no client exceeds its mean power, so the worst client sets it.

On average the fraction q_k of a client's signal arrives, so it sends v_k / q_k. With the noise variance 1 and

    c_k = E[1 / |g_k|^2; |g_k|^2 >= threshold],    q_k = E[h_k / g_k; |g_k|^2 >= threshold],
    alpha = min over k of q_k sqrt(snr_k / c_k) / r_k,    r_k the r.m.s. of |v_k|,
    sum of v_k  ~  y / alpha,

which is unbiased. Without fading c = q = 1. Over Rayleigh fading with g = h, P = exp(-threshold) of the symbols are
sent, q = P, c = E1(threshold), and the mean squared error is `(1/P - 1) sum of r_k^2 + 1 / alpha^2`. A client whose
channel never reaches the threshold stays silent, and is missing in the sum.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from semcom.channels.link import complex_normal


@dataclass(frozen=True)
class Inversion:
    """Truncated channel inversion by n clients, with the means over their channels.

    Attributes:
        threshold: |g|^2 below which a client does not send.
        csi_error: variance of g - h, 0 if clients know their channels.
        power: c of each client, `[n]`.
        mean: q of each client, `[n]`, 0 if it never sends.
    """

    threshold: float
    csi_error: float
    power: Tensor
    mean: Tensor

    def invert(self, gains: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Compute the gain of each client's symbols on their way, complex, and which are sent, bool: `[n, s]` both.

        Args:
            gains: h_k, complex `[n, s]`.
            generator: draws the errors of the clients' channel estimates.
        """
        known = _add_estimation_errors(gains, self.csi_error, generator)
        kept = known.abs().square() >= self.threshold
        return torch.where(kept, gains / known, 0.0) / self._sent[:, None].to(gains.real.dtype), kept

    def measure_loudness(self, snr_db: Tensor) -> Tensor:
        """Compute 1 / alpha of each client by itself for numbers of r.m.s. 1, `[n]`, at SNRs in dB, `[n]`."""
        snr = torch.pow(10.0, snr_db.double() / 10)
        return ((self.power / snr).sqrt() / self._sent).to(snr_db.dtype)

    def error(
        self,
        values: Tensor,
        arrives: Tensor | None,
        noise: Tensor | None,
        loudness: Tensor,
        rms: Tensor | None = None,
    ) -> Tensor:
        """Compute the error of the received sum of `values`, complex `[s]`.

        The sum itself is not part of it, so that without noise and fading the error is exactly 0.

        Args:
            values: v_k, complex `[n, s]`.
            arrives: from `invert`, `[n, s]` or `[n, 1]` (None: everything arrives).
            noise: of the base station's receiver, complex `[s]` with mean square 1 (None: no noise).
            loudness: from `measure_loudness`, `[n]`.
            rms: r_k by which powers are set, `[n]` (None: that of the values).
        """
        error = torch.zeros_like(values[0]) if arrives is None else ((arrives - 1) * values).sum(0)
        if noise is None:
            return error
        return error + noise * ((_find_rms(values) if rms is None else rms) * loudness).amax()

    def find_loads(self, values: Tensor, loudness: Tensor, rms: Tensor | None = None) -> Tensor:
        """Compute the mean power with which each client sends, over the largest that it has, `[n]`.

        The client that sets alpha has 1, if powers follow the values; all have 1 without noise. Arguments as of
        `error`.
        """
        needed = _find_rms(values) * loudness
        most = (needed if rms is None else rms * loudness).amax()
        return torch.where(most > 0, (needed / most).square(), 1.0)

    @property
    def _sent(self) -> Tensor:
        """Fraction of each client's numbers that arrives on average, `[n]`, or 1 if it never sends."""
        return torch.where(self.mean > 0, self.mean, 1.0)


def _find_rms(values: Tensor) -> Tensor:
    return values.abs().square().mean(1).sqrt()


def _add_estimation_errors(gains: Tensor, csi_error: float, generator: torch.Generator) -> Tensor:
    """Add the clients' estimation errors to their gains."""
    if not csi_error:
        return gains
    error = complex_normal(gains.shape, generator, gains.real.dtype)
    return gains + csi_error**0.5 * error.to(gains.device)
