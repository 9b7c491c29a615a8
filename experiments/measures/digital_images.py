"""The digital chain for images that come back: their PSNR at each SNR, in as many channel uses as features take."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch

from channels.coding.codec import HEADERS
from channels.coding.image import ImageChain
from channels.coding.mcs import Scheme, choose_mcs
from semcom.engine.random import keyed

if TYPE_CHECKING:
    from semcom.runs.result import Result

CODECS = ("webp", "jpeg")
GREY = 128
"""What stands for an image that is lost."""


def measure_digital_images(result: Result, snrs: Sequence[float], uses: int) -> dict[str, dict[str, dict[str, float]]]:
    """Send the clients' test images; return chain -> SNR -> psnr (dB, mean over images) and lost (share).

    A chain is a codec, its headers sent or known, and its scheme: `best` is the fastest one for each SNR
    (`channels.coding.mcs.choose_mcs`), `fixed` that for the first SNR at all of them.

    Args:
        result: of a run.
        snrs: in dB, over AWGN.
        uses: complex channel uses of an image.
    """
    found: dict[str, dict[str, dict[str, float]]] = {}
    fixed = choose_mcs(snrs[0], uses)
    for codec in CODECS:
        for headers in HEADERS:
            for name in ("best", "fixed"):
                schemes = {snr: choose_mcs(snr, uses) if name == "best" else fixed for snr in snrs}
                found[f"{codec}-{headers}-{name}"] = {
                    f"{snr:g}": _send_images(result, codec, headers, scheme, snr, uses)
                    for snr, scheme in schemes.items()
                }
    return found


def _send_images(
    result: Result, codec: str, headers: str, scheme: Scheme | None, snr_db: float, uses: int
) -> dict[str, float]:
    federation = result.federation
    images = federation.images[federation.test.flat]
    back, lost = torch.full_like(images, GREY), torch.ones(len(images), dtype=torch.bool)
    if scheme is not None:
        generator = keyed(federation.images.device, result.config.seed, "digital", codec, headers, snr_db, scheme)
        chain = ImageChain(uses, scheme.modulation, scheme.code_rate, codec, headers=headers)
        received = chain.send(images, snr_db, generator)
        lost = received.lost.cpu()
        back[~lost] = received.images[~lost]
    error = ((back.double() - images.double()) / 255).square().flatten(1).mean(1)
    psnr = (-10 * error.clamp(min=1e-10).log10()).mean()
    return {"psnr": float(psnr), "lost": float(lost.double().mean())}
