"""Features that know the SNR: the attention-feature block of ADJSCC, by which one model serves all SNRs.

J. Xu, B. Ai, W. Chen, A. Yang, P. Sun and M. Rodrigues, "Wireless image transmission using deep source channel coding
with attention modules", IEEE Trans. Circuits Syst. Video Technol. 32(4), 2022, Section III. There a feature is a map,
and the block looks at its mean; here a feature is a number.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from semcom.models.stacks import for_stacks

SCALE_DB, LIMIT_DB = 10.0, 40.0
"""SNR that is 1 to the network, and beyond which SNRs are the same to it: there is one for links without noise."""


@for_stacks
class SNRAttention(nn.Module):
    """Scale each of d features by `sigmoid(W2 relu(W1 [features, snr]))`, in (0, 1).

    The engine swaps `snr_db` in, `[1, 1]` for a client and `[k, 1, 1]` for a stack.

    Raises:
        RuntimeError: there is no SNR.
    """

    snr_db: Tensor | None

    def __init__(self, features: int) -> None:
        super().__init__()
        self.context, self.factors = nn.Linear(features + 1, features), nn.Linear(features, features)
        self.register_buffer("snr_db", None)

    def forward(self, x: Tensor) -> Tensor:
        """Scale features: `[..., d] -> [..., d]`."""
        if self.snr_db is None:
            raise RuntimeError("model.snr-input: the SNR of these features is not known; pass their batch on")
        snr = (self.snr_db.clamp(-LIMIT_DB, LIMIT_DB) / SCALE_DB).to(x.dtype).expand(*x.shape[:-1], 1)
        return x * self.factors(self.context(torch.cat([x, snr], -1)).relu()).sigmoid()


def find_snr_inputs(module: nn.Module) -> list[str]:
    """Return the names of the buffers in a module that take the SNR."""
    return [f"{name}.snr_db".removeprefix(".") for name, m in module.named_modules() if isinstance(m, SNRAttention)]
