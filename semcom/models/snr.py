"""Features that know the SNR: the attention-feature block of ADJSCC, by which one model serves all SNRs.

J. Xu, B. Ai, W. Chen, A. Yang, P. Sun and M. Rodrigues, "Wireless image transmission using deep source channel coding
with attention modules", IEEE Trans. Circuits Syst. Video Technol. 32(4), 2022, Section III. A feature in the paper is a
map: the block looks at the mean of each map, with the SNR beside them, and scales whole maps. If a network ends in a
fully-connected layer, a feature is a number.

Departures: one block behind the encoder and one before the head (the paper: behind each convolution but the last); as
many hidden units as features (the authors' code: a sixteenth of 256, which leaves none of the 8 or 16 maps here).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from semcom.models.encoders import Flatten
from semcom.models.heads import Unflatten
from semcom.models.meta import build_on_meta
from semcom.models.stacks import for_stacks

SCALE_DB, LIMIT_DB = 10.0, 40.0
"""SNR that the network sees as 1, and the limit to which SNRs are clipped: links without noise have an infinite SNR."""


@for_stacks
class SNRAttention(nn.Module):
    """Scale each of c features by `sigmoid(W2 relu(W1 [features, snr]))`, in (0, 1), with c (2 c + 3) parameters.

    The engine swaps in `snr_db`, `[1, 1]` for a client and `[k, 1, 1]` for a stack.

    Args:
        features: c.
        maps: whether features are maps, seen by their means, or numbers.

    Raises:
        RuntimeError: without an SNR.
    """

    snr_db: Tensor | None

    def __init__(self, features: int, maps: bool = False) -> None:
        super().__init__()
        self.maps = maps
        self.context, self.factors = nn.Linear(features + 1, features), nn.Linear(features, features)
        self.register_buffer("snr_db", None)

    def forward(self, x: Tensor) -> Tensor:
        """Scale features: `[..., c] -> [..., c]`, or `[..., c, h, w] -> [..., c, h, w]`."""
        if self.snr_db is None:
            raise RuntimeError("model.snr-input: the SNR of these features is not known; pass their batch on")
        seen = x.mean((-2, -1)) if self.maps else x
        snr = (self.snr_db.clamp(-LIMIT_DB, LIMIT_DB) / SCALE_DB).to(x.dtype).expand(*seen.shape[:-1], 1)
        factors = self.factors(self.context(torch.cat([seen, snr], -1)).relu()).sigmoid()
        return x * (factors[..., None, None] if self.maps else factors)


def attend_to_snr_behind(encoder: nn.Module, features: int) -> nn.Module:
    """Put a block behind an encoder of d features: on its maps, if it ends in a convolution with flattened maps."""
    layers = [m for m in encoder.modules() if isinstance(m, nn.Conv2d | nn.ConvTranspose2d | nn.Linear)]
    parts = _as_sequence(encoder)
    if isinstance(parts[-1], Flatten | nn.Flatten) and layers and not isinstance(layers[-1], nn.Linear):
        return nn.Sequential(parts[:-1], SNRAttention(layers[-1].out_channels, maps=True), parts[-1])
    return nn.Sequential(encoder, SNRAttention(features))


def attend_to_snr_before(build: Callable[[], nn.Module], features: int) -> nn.Module:
    """Put a block before a head of d features, which is built then: on its maps, if it makes maps of them first."""
    with build_on_meta():
        first = _as_sequence(build())[0]
    shape: Sequence[int] = getattr(first, "shape" if isinstance(first, Unflatten) else "unflattened_size", ())
    if len(shape) != 3:
        return nn.Sequential(SNRAttention(features), build())
    block, parts = SNRAttention(shape[0], maps=True), _as_sequence(build())
    return nn.Sequential(parts[0], block, parts[1:])


def _as_sequence(module: nn.Module) -> nn.Sequential:
    """Wrap a module in a sequence, unless it is a plain sequence."""
    return module if type(module) is nn.Sequential and len(module) else nn.Sequential(module)


def find_snr_inputs(module: nn.Module) -> list[str]:
    """List the buffers in a module that take the SNR."""
    return [f"{name}.snr_db".removeprefix(".") for name, m in module.named_modules() if isinstance(m, SNRAttention)]
