"""A receiver that adds up the powers of what is sent again until they suffice (Chase combining).

`gain_at` sees the noise variance. `cost` does not see the realisation, so it charges the mean number of transmissions,
a sum of Gamma tails.
"""

from dataclasses import dataclass

import torch
from scipy.special import gammainc

from semcom.channels import LINKS
from semcom.channels.fading import Rayleigh
from semcom.channels.link import Cost, complex_normal


@LINKS.register("chase")
class Chase(Rayleigh):
    """Sends again, up to `most` times in all, until the powers that were heard add up to `enough` times the noise."""

    @dataclass(frozen=True)
    class Options(Rayleigh.Options):
        """Options of the repetition, and the SNR that it is charged at."""

        most: int = 4
        """Transmissions at most."""

        enough: float = 2.0
        """Sum of the powers, over the noise, that suffices."""

        at_db: float = 0.0
        """SNR of the mean number that is charged."""

    def draw(self, sizes, d, generator, dtype=torch.float32, fades=None):
        """Draw the powers of all transmissions too."""
        drawn = super().draw(sizes, d, generator, dtype)
        tries = complex_normal((sum(sizes), 1, self.options.most), generator, dtype)
        return drawn | {"tries": tries.abs().square().cumsum(-1)}

    def sent(self, drawn, no):
        """Return how often each block is sent."""
        return 1 + (drawn["tries"][..., :-1] < self.options.enough * no.unsqueeze(-1)).sum(-1)

    def gain_at(self, drawn, no):
        """Return the root of the powers that were heard."""
        power = drawn["tries"].gather(-1, self.sent(drawn, no).unsqueeze(-1) - 1).squeeze(-1)
        return power.sqrt().to(no.dtype.to_complex())

    def cost(self, numbers, clients):
        """Charge the mean number of transmissions."""
        need = self.options.enough * 10 ** (-self.options.at_db / 10)
        mean = 1 + sum(gammainc(m, need) for m in range(1, self.options.most))
        return Cost(*(mean * part for part in super().cost(numbers, clients)))
