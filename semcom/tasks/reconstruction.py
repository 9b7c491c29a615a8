"""Reconstruction: the images themselves, as the base station rebuilds them from noisy features.

E. Bourtsoulatze, D. Burth Kurka, D. Gündüz, "Deep Joint Source-Channel Coding for Wireless Image Transmission", IEEE
Trans. Cogn. Commun. Netw. 5(3), 2019: trained by the mean squared error, judged by the PSNR.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from semcom.config import ConfigError
from semcom.tasks.metric import MSE, PSNR, SSIM
from semcom.tasks.task import Task

if TYPE_CHECKING:
    from semcom.config import Resolved
    from semcom.data.federation import Federation

PSNR_CAP_DB = 100.0
"""PSNR of an image that comes back without any error."""
WINDOW = 11
"""Pixels a side of SSIM's Gaussian window, sigma 1.5."""


class Reconstruction(Task):
    """The images themselves, by the mean squared error; judged by PSNR and SSIM, the mean over images.

    PSNR is 20 log10(255 / RMSE) of an image's pixels, all channels together, before they are rounded to bytes; 100 dB
    at most.
    """

    metrics = (PSNR, SSIM, MSE)
    pictures = True

    def check(self, config: Resolved) -> None:
        """Check that images have room for SSIM's window. Raises ConfigError for smaller ones."""
        if config.data.size < WINDOW:
            raise ConfigError(f"data.size: {config.data.size} pixels a side are fewer than SSIM's {WINDOW}; give more")

    def shape(self, federation: Federation) -> tuple[int, ...]:
        """Return that of the images. Raises ConfigError for data that are none."""
        if not federation.sources.pictured:
            raise ConfigError(
                "task: 'reconstruction' rebuilds images, and the data are arrays of numbers; see own tasks"
            )
        return tuple(federation.sources.images.shape[1:])

    def target(self, federation: Federation, index: Tensor, dtype: torch.dtype) -> Tensor:
        """Return the images, in [-1, 1]."""
        return federation.gather_sources(index, dtype)

    def loss(self, outputs: Tensor, target: Tensor) -> Tensor:
        """Return the mean squared error of each image's numbers, on the scale of [-1, 1]."""
        return (outputs.flatten(2) - target.flatten(2)).square().mean(-1)

    def measure(self, outputs: Tensor, target: Tensor) -> dict[str, Tensor]:
        """Return PSNR in dB, SSIM, and the mean squared error on the scale of [0, 1]; pixels are clipped to it."""
        found = (outputs.reshape(target.shape).clamp(-1, 1) + 1) / 2
        images = (target + 1) / 2
        mse = (found - images).square().flatten(2).mean(-1)
        psnr = (-10 * mse.log10()).clamp(max=PSNR_CAP_DB)
        return {"psnr": psnr, "ssim": ssim(found, images), "mse": mse}

    def target_bits(self, federation: Federation) -> float:
        """Return the bits of an image, 8 for each of its numbers: the base station's loss needs the original."""
        return 8.0 * federation.sources.images[0].numel()


def ssim(found: Tensor, images: Tensor) -> Tensor:
    """Return the SSIM of images in [0, 1], `[k, b, c, h, w] -> [k, b]` (Wang et al., 2004: window of sigma 1.5)."""
    from torchmetrics.functional.image import structural_similarity_index_measure  # takes a second to import

    pair = found.flatten(0, 1), images.flatten(0, 1)
    each = structural_similarity_index_measure(*pair, data_range=1.0, reduction="none")
    assert isinstance(each, Tensor)
    return each.view(images.shape[:2])
