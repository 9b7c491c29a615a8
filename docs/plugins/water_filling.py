"""A sender that pours its power into the best of the fading, at the same mean power (Alouini and Goldsmith, 1999).

Used as a script it prints the mean power, and the capacity beside its closed form.
"""

import numpy as np
import torch
from scipy.special import exp1

from semcom.channels import LINKS, make_link
from semcom.channels.fading import Rayleigh

CUT = np.logspace(-6, 1, 4000)  # |h|^2 below which nothing is sent -> the noise variance for which that is best
NO = 1 / (np.exp(-CUT) / CUT - exp1(CUT))


@LINKS.register("water-filling")
class WaterFilling(Rayleigh):
    """Rayleigh fading that the sender knows: its power is `(1 / cut - 1 / |h|^2)+ no`, 1 on average."""

    def amplitude(self, gain, no):
        """Return the amplitude of each block."""
        cut = torch.as_tensor(np.interp(no.cpu().numpy(), NO, CUT)).to(no)
        return ((1 / cut - 1 / gain.abs().square()).clamp_min(0) * no).sqrt()


if __name__ == "__main__":
    link = make_link("water-filling")
    h = link.draw([100_000], 2, torch.Generator().manual_seed(0), torch.float64)["fading"]
    no = torch.ones(1, 1, dtype=torch.float64)  # 0 dB
    sent = link.amplitude(h, no).square()
    print("mean power", float(sent.mean()))
    print("bit per use", float(torch.log2(1 + sent * h.abs().square() / no).mean()))
    print("closed form", float(exp1(np.interp(1.0, NO, CUT)) / np.log(2)))
