"""Reconstruction: the images themselves, as the base station rebuilds them from noisy features.

E. Bourtsoulatze, D. Burth Kurka, D. Gündüz, "Deep Joint Source-Channel Coding for Wireless Image Transmission", IEEE
Trans. Cogn. Commun. Netw. 5(3), 2019: trained by the mean squared error, judged by the PSNR.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from semcom.config import ConfigError
from semcom.tasks.metric import MS_SSIM, MSE, PSNR, SSIM, Metric
from semcom.tasks.task import Task

if TYPE_CHECKING:
    from semcom.config import Resolved
    from semcom.data.federation import Federation

PSNR_CAP_DB = 100.0
"""PSNR of an image that comes back without any error."""
WINDOW = 11
"""Pixels a side of SSIM's Gaussian window, sigma 1.5."""
SCALED = 16 * WINDOW
"""Pixels a side from which on images have room for the window at the five scales of MS-SSIM, each half of the last."""


class Reconstruction(Task):
    """The images themselves, by the mean squared error; judged by PSNR and SSIM, the mean over images.

    Images of 176 pixels a side and more by MS-SSIM too: with fewer scales than its five it would be another number.
    PSNR is 20 log10(255 / RMSE) of an image's pixels, all channels together, before they are rounded to bytes; 100 dB
    at most.
    """

    metrics: tuple[Metric, ...] = (PSNR, SSIM, MSE)
    pictures = True

    def prepare(self, config: Resolved) -> None:
        """Add MS-SSIM where images have room for it. Raises ConfigError where they have none for SSIM's window."""
        if config.data.size < WINDOW:
            raise ConfigError(f"data.size: {config.data.size} pixels a side are fewer than SSIM's {WINDOW}; give more")
        if config.data.size >= SCALED:
            self.metrics = (PSNR, SSIM, MS_SSIM, MSE)

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
        """Return PSNR in dB, the metrics of structure, and the mean squared error of pixels clipped to [0, 1]."""
        found = (outputs.reshape(target.shape).clamp(-1, 1) + 1) / 2
        images = (target + 1) / 2
        mse = (found - images).square().flatten(2).mean(-1)
        psnr = (-10 * mse.log10()).clamp(max=PSNR_CAP_DB)
        more = {"ms_ssim": ms_ssim(found, images)} if MS_SSIM in self.metrics else {}
        return {"psnr": psnr, "ssim": ssim(found, images), **more, "mse": mse}

    def target_bits(self, federation: Federation) -> float:
        """Return the bits of an image, 8 for each of its numbers: the base station's loss needs the original."""
        return 8.0 * federation.sources.images[0].numel()


def ssim(found: Tensor, images: Tensor) -> Tensor:
    """Return the SSIM of images in [0, 1], `[k, b, c, h, w] -> [k, b]` (Wang et al., 2004: window of sigma 1.5)."""
    from torchmetrics.functional.image import structural_similarity_index_measure as measure  # takes a second to import

    return _compare(measure, found, images)


def ms_ssim(found: Tensor, images: Tensor) -> Tensor:
    """Return the MS-SSIM of images in [0, 1], as `ssim` (Wang, Simoncelli and Bovik, 2003: five scales)."""
    from torchmetrics.functional.image import multiscale_structural_similarity_index_measure as measure

    return _compare(measure, found, images)


def _compare(measure: Callable[..., Any], found: Tensor, images: Tensor) -> Tensor:
    each = measure(found.flatten(0, 1), images.flatten(0, 1), data_range=1.0, reduction="none")
    return each.view(images.shape[:2])  # type: ignore[no-any-return]
