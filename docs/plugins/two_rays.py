"""A fading profile for OFDM: two Rayleigh paths of the same power, a microsecond apart."""

import torch

from semcom.channels import PROFILES
from semcom.channels.ofdm.profiles import Profile


@PROFILES.register("two-rays")
class TwoRays(Profile):
    """Two Rayleigh fading paths of the same power, a microsecond apart; constant over a frame."""

    last_path_s = 1e-6

    def response(self, clients, frames, times, rate, width, spacing_hz, generators, device=None):
        """Draw h for whole frames of several clients."""
        each = zip(frames, generators, strict=True)
        drawn = [torch.randn(n, 2, 1, dtype=torch.complex64, generator=g) for n, g in each]
        turn = -2 * torch.pi * 1e-6 * spacing_hz * torch.arange(width)
        first, second = torch.cat(drawn).unbind(1)
        h = (first + second * torch.polar(torch.ones(width), turn)) / 2**0.5
        return h[:, None].expand(-1, times, -1).to(device)
