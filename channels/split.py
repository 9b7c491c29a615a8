"""The split link: features go up through one realisation of the channel, gradients come down through another.

Forward, per symbol: `r = w (h x + sqrt(no) n)`. Backward: the gradient at the receiver is scaled by its r.m.s. per
client (the scale travels error-free; padding does not count), crosses the downlink in the same way and is scaled back.
Then the client applies the adjoint of its effective uplink gain `a = w h`, the product with `conj(a)`. With an ideal
downlink that is the exact gradient. The client has to know a, which `feedback` "none" does not provide.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from semcom.channels.meter import Meter
from semcom.channels.power import PAIR, to_features, to_pairs


@dataclass(frozen=True)
class Hop:
    """Realised crossing of the channel. None stands for a gain of 1, a weight of 1, or no noise."""

    gain: Tensor | None
    """Gain h, complex, broadcastable to the symbols `[k, ..., n]`."""
    weight: Tensor | None
    """Weight w of the equaliser."""
    effective: Tensor | None
    """Effective gain a = w h."""
    noise: Tensor | None
    """Noise n, complex `[k, ..., n]`, E|n|^2 = 1."""
    deviation: Tensor
    """Standard deviation sqrt(no) of the noise, real `[k, 1, ...]`."""
    meter: Meter | None = None
    """Meter that adds up the received SNR."""

    def send(self, symbols: Tensor, unit: Tensor | float, mask: Tensor | None) -> Tensor:
        """Send symbols, and return them equalised.

        `unit` is the r.m.s. of unit-power symbols in this tensor. Scaling to unit power, sending and scaling back is
        the same as scaling the noise by `unit`. The latter divides by no number, so zeros are harmless.
        """
        heard = symbols if self.gain is None else self.gain * symbols
        noise = None if self.noise is None else (self.deviation * unit) * self.noise
        if self.meter is not None:
            self.meter.add(heard.detach(), noise, unit, mask)
        if noise is not None:
            heard = heard + noise
        return heard if self.weight is None else self.weight * heard


class Split(torch.autograd.Function):
    """Function that sends features `[k, b, d]`, scaled already, up and their gradient down. Not for use inside vmap."""

    @staticmethod
    def forward(ctx: Any, features: Tensor, up: Hop, down: Hop | None, mask: Tensor | None) -> Tensor:
        """Send features `[k, b, d]` up. With `down=None` the gradient is exact."""
        ctx.effective, ctx.down, ctx.mask = up.effective, down, mask
        return to_features(up.send(to_pairs(features), PAIR, mask)).clone()  # an ideal hop returns a view of its input

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None, None]:
        """Send the gradient with respect to the features down to the client; masked samples get zero."""
        gradient = _zero_masked_gradient(grads[0], ctx.mask)
        pairs = to_pairs(gradient)
        if ctx.down is not None:
            pairs = ctx.down.send(pairs, _measure_rms(pairs, ctx.mask), ctx.mask)
        if ctx.effective is not None:
            pairs = ctx.effective.conj() * pairs  # the adjoint of h x over pairs of real numbers
        received = to_features(pairs)
        return received if ctx.down is None else _zero_masked_gradient(received, ctx.mask), None, None, None


def _zero_masked_gradient(gradient: Tensor, mask: Tensor | None) -> Tensor:
    """Set a gradient `[k, b, d]` to zero for samples that the mask `[k, b]` leaves out."""
    return gradient if mask is None else torch.where(mask.unsqueeze(-1), gradient, 0.0)


def _measure_rms(pairs: Tensor, mask: Tensor | None) -> Tensor:
    """Compute the r.m.s. per client, `[k, 1, 1]`, of pairs `[k, b, s]`. Masked samples are zero and do not count."""
    norm = torch.linalg.vector_norm(to_features(pairs), dim=(-2, -1), keepdim=True)  # 60 times the speed of complex
    if mask is None:
        return norm / math.sqrt(pairs.shape[-2] * pairs.shape[-1])
    samples = mask.sum(-1, dtype=norm.dtype)[:, None, None].clamp_min(1)
    return norm / (samples * pairs.shape[-1]).sqrt()
