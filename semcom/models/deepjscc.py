"""Encoder and decoder of deep joint source-channel coding, for the reconstruction of images.

E. Bourtsoulatze, D. Burth Kurka, D. Gündüz, "Deep Joint Source-Channel Coding for Wireless Image Transmission", IEEE
Trans. Cogn. Commun. Netw. 5(3), 2019, Fig. 3: five 5x5 convolutions of 16, 32, 32, 32 and c filters, the first two of
stride 2, each with PReLU. The decoder is their mirror, of transposed convolutions. The c maps of a quarter of the
image's side are the features: d = c size^2 / 16 real numbers, so that the ratio of k = d / 2 complex channel uses to n
= 3 size^2 numbers of an image is k / n = c / 96 for colour images: 1/12 with c = 8, 1/6 with c = 16.

Departures: the last layer of the encoder has no PReLU, as the power normalisation of the link follows. Images are in
[-1, 1], so the decoder ends in Tanh, which is the paper's sigmoid on that scale.
"""

from __future__ import annotations

from torch import nn

from semcom.config import ConfigError
from semcom.models.encoders import Flatten
from semcom.models.heads import Unflatten, find_channels_and_side

WIDTHS = (16, 32, 32, 32)
"""Filters of all convolutions but the last one."""
STRIDES = (2, 2, 1, 1, 1)
"""Strides of all of them."""


def _count_maps(features: int, size: int) -> int:
    """Compute c, the number of maps of a quarter of an image's side. Raises ConfigError if it is not a whole number."""
    if size % 4:
        raise ConfigError(f"data.size: deepjscc takes images of a multiple of 4 pixels a side, not of {size}")
    pixels = (size // 4) ** 2
    if features % pixels:
        below = max(1, features // pixels) * pixels
        raise ConfigError(
            f"model.features: deepjscc gives maps of {pixels} numbers, and {features} is no multiple; {below} would do"
        )
    return features // pixels


def deepjscc_encoder(channels: int, features: int, size: int = 32) -> nn.Module:
    """Encoder of DeepJSCC (Bourtsoulatze et al., 2019): five 5x5 convolutions with PReLU; d = c size^2 / 16."""
    widths = (channels, *WIDTHS, _count_maps(features, size))
    layers: list[nn.Module] = []
    for before, after, stride in zip(widths[:-1], widths[1:], STRIDES, strict=True):
        layers += [nn.Conv2d(before, after, 5, stride, 2), nn.PReLU(after)]
    return nn.Sequential(*layers[:-1], Flatten())


def deepjscc_decoder(features: int, shape: tuple[int, ...]) -> nn.Module:
    """Decoder of DeepJSCC (Bourtsoulatze et al., 2019): the mirror of its encoder, images `[channels, size, size]`."""
    channels, size = find_channels_and_side("deepjscc", shape, 4)
    maps, side = _count_maps(features, size), size // 4
    widths = (maps, *reversed(WIDTHS), channels)
    layers: list[nn.Module] = [Unflatten((maps, side, side))]
    for before, after, stride in zip(widths[:-1], widths[1:], reversed(STRIDES), strict=True):
        # output_padding doubles the side exactly, where a stride of 2 would give one pixel less.
        layers += [nn.ConvTranspose2d(before, after, 5, stride, 2, output_padding=stride - 1), nn.PReLU(after)]
    return nn.Sequential(*layers[:-1], nn.Tanh())
