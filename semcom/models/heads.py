"""Semantic decoders: received features `[b, d]` -> class logits `[b, C]`, or images `[b, channels, size, size]`."""

from __future__ import annotations

from torch import Tensor, nn

from semcom.config import ConfigError
from semcom.models.stacks import for_stacks


def linear_head(features: int, classes: int) -> nn.Module:
    """One fully-connected layer: the FedCL letter's "fully-connected network with 10-unit outputs" at its smallest."""
    return nn.Sequential(nn.Linear(features, classes))


def mlp_head(features: int, classes: int) -> nn.Module:
    """Two fully-connected layers with ReLU between, `features` hidden units."""
    return nn.Sequential(nn.Linear(features, features), nn.ReLU(), nn.Linear(features, classes))


@for_stacks
class Unflatten(nn.Module):
    """A layer `[..., h w c] -> [..., c, h, w]`, which undoes `semcom.models.encoders.Flatten`."""

    def __init__(self, shape: tuple[int, int, int]) -> None:
        super().__init__()
        self.shape = shape

    def forward(self, x: Tensor) -> Tensor:
        """Unflatten, then move the channels to the front."""
        channels, height, width = self.shape
        return x.unflatten(-1, (height, width, channels)).movedim(-1, -3)


def find_channels_and_side(name: str, shape: tuple[int, ...], multiple: int) -> tuple[int, int]:
    """Find channels and side of square images. Raises ConfigError for shapes that do not fit."""
    if len(shape) != 3:
        raise ConfigError(f"model.head: {name} gives images, and the task asks for {[*shape]}; take another head")
    channels, size, _ = shape
    if size % multiple:
        raise ConfigError(f"data.size: {name} gives images of a multiple of {multiple} pixels a side, not of {size}")
    return channels, size


def dcgan_head(features: int, shape: tuple[int, ...]) -> nn.Module:
    """Images by the generator of DCGAN (Radford et al., 2016), the mirror of the encoder of that name.

    A layer to 4x4 of 256 filters, then transposed 4x4 convolutions of stride 2, each of half as many filters, with
    BatchNorm and ReLU between, and Tanh. Images of 64x64 pixels have a layer of 512 before; those of 96x96 begin
    at 6x6.
    """
    channels, size = find_channels_and_side("dcgan", shape, 32)
    stages = (size // 4).bit_length() - 1
    widths, side = [64 << i for i in reversed(range(stages))], size >> stages
    first = nn.Linear(features, side * side * widths[0], bias=False)
    layers: list[nn.Module] = [first, Unflatten((widths[0], side, side))]
    for before, after in zip(widths, [*widths[1:], channels], strict=True):
        layers += [nn.BatchNorm2d(before), nn.ReLU(inplace=True)]
        layers.append(nn.ConvTranspose2d(before, after, 4, 2, 1, bias=after == channels))
    return nn.Sequential(*layers, nn.Tanh())
