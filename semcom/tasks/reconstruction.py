"""Reconstruction: the images themselves, as the base station rebuilds them from noisy features.

E. Bourtsoulatze, D. Burth Kurka, D. Gündüz, "Deep Joint Source-Channel Coding for Wireless Image Transmission", IEEE
Trans. Cogn. Commun. Netw. 5(3), 2019: trained by the mean squared error, judged by the PSNR.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

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
WINDOW, SIGMA = 11, 1.5
"""Pixels a side of SSIM's Gaussian window, and its standard deviation."""
C1, C2 = 0.01**2, 0.03**2
"""Constants of SSIM for pixels in [0, 1]."""
EXPONENTS = (0.0448, 0.2856, 0.3001, 0.2363, 0.1333)
"""Exponents of MS-SSIM's scales, the finest first."""
SCALED = 16 * WINDOW
"""Pixels a side from which on pictures have room for the window at MS-SSIM's five scales, each half of the last."""
ROOM = {SSIM: WINDOW, MS_SSIM: SCALED}
"""Pixels of the shorter side of a picture that a metric needs."""


class Reconstruction(Task):
    """The images themselves, by the mean squared error; judged by PSNR and SSIM, the mean over images.

    Pictures of at least 176 pixels a side are also judged by MS-SSIM, which needs this room for its five scales.
    Pictures with a side of fewer than 11 pixels have no SSIM. PSNR is 20 log10(255 / RMSE) of an image's pixels, all
    channels together, before they are rounded to bytes, at most 100 dB. Borders around pictures smaller than the
    network's images are not measured.
    """

    metrics: tuple[Metric, ...] = (PSNR, SSIM, MSE)
    pictures = True

    def prepare(self, config: Resolved) -> None:
        """Add MS-SSIM where images have room for it."""
        if config.data.size >= SCALED:
            self.metrics = (PSNR, SSIM, MS_SSIM, MSE)

    def shape(self, federation: Federation) -> tuple[int, ...]:
        """Return the shape of the images, and leave out the metrics that do not fit into every picture.

        Raises ConfigError for data that are no images.
        """
        if not federation.sources.pictured:
            raise ConfigError(
                "task: 'reconstruction' rebuilds images, and the data are arrays of numbers; see own tasks"
            )
        image, sides = federation.sources.images.shape[1:], federation.sources.sides
        shortest = min(image[1:]) if sides is None else int(sides.min())
        self.metrics = tuple(metric for metric in self.metrics if ROOM.get(metric, 0) <= shortest)
        return tuple(image)

    def target(self, federation: Federation, index: Tensor, dtype: torch.dtype) -> Tensor:
        """Gather the images, in [-1, 1]."""
        return federation.gather_sources(index, dtype)

    def loss(self, outputs: Tensor, target: Tensor) -> Tensor:
        """Compute the mean squared error of each image's numbers, on the scale of [-1, 1]."""
        return (outputs.flatten(2) - target.flatten(2)).square().mean(-1)

    def measure(self, outputs: Tensor, target: Tensor) -> dict[str, Tensor]:
        """Compute PSNR in dB, the metrics of structure, and the mean squared error of pixels clipped to [0, 1]."""
        found = (outputs.reshape(target.shape).clamp(-1, 1) + 1) / 2
        images = (target + 1) / 2
        mse = (found - images).square().flatten(2).mean(-1)
        psnr = (-10 * mse.log10()).clamp(max=PSNR_CAP_DB)
        structure = {m.name: of(found, images) for m, of in ((SSIM, ssim), (MS_SSIM, ms_ssim)) if m in self.metrics}
        return {"psnr": psnr, **structure, "mse": mse}

    def target_bits(self, federation: Federation) -> float:
        """Count the bits of a picture, 8 for each of its numbers: the base station's loss needs the original."""
        return 8.0 * federation.sources.numbers


def ssim(found: Tensor, images: Tensor) -> Tensor:
    """Compute the SSIM of images in [0, 1], `[k, b, c, h, w] -> [k, b]` (Wang, Bovik, Sheikh and Simoncelli, 2004).

    The mean over channels and over the windows that lie inside the image.
    """
    return _compare_windows(found, images)[0].mean(-1)


def ms_ssim(found: Tensor, images: Tensor) -> Tensor:
    """Compute the MS-SSIM of images in [0, 1], as `ssim` (Wang, Simoncelli and Bovik, 2003), the mean over channels.

    It combines the contrasts of the finer scales and the SSIM of the coarsest; each scale is half of the last. Negative
    values count as zero.
    """
    scales = []
    for scale in range(len(EXPONENTS)):
        if scale:
            odd = [side % 2 for side in images.shape[-2:]]
            found, images = (
                torch.nn.functional.avg_pool2d(t.flatten(0, 1), 2, padding=odd).unflatten(0, t.shape[:2])
                for t in (found, images)
            )
        whole, contrast = _compare_windows(found, images)
        scales.append(whole if scale == len(EXPONENTS) - 1 else contrast)
    # A negative contrast has no real power.
    powers = [t.clamp_min(0) ** exponent for t, exponent in zip(scales, EXPONENTS, strict=True)]
    return torch.stack(powers).prod(0).mean(-1)


def _compare_windows(found: Tensor, images: Tensor) -> tuple[Tensor, Tensor]:
    """Compute SSIM and its factor without the luminance, of each channel `[k, b, c]`: means over the windows inside."""
    place = torch.arange(WINDOW, dtype=images.dtype, device=images.device) - WINDOW // 2
    row = torch.softmax(-place.square() / (2 * SIGMA**2), 0).view(1, 1, 1, -1)  # weights that add up to 1
    moments = torch.stack([found, images, found.square(), images.square(), found * images])
    # The Gaussian window is separable: 2 x 11 products for each pixel instead of 121.
    rows = torch.nn.functional.conv2d(moments.flatten(0, 3)[:, None], row)
    x, y, xx, yy, xy = torch.nn.functional.conv2d(rows, row.mT).view(*moments.shape[:4], -1)
    contrast = (2 * (xy - x * y) + C2) / (xx - x.square() + yy - y.square() + C2)
    luminance = (2 * x * y + C1) / (x.square() + y.square() + C1)
    return (luminance * contrast).mean(-1), contrast.mean(-1)
