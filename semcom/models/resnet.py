"""Residual encoders: torchvision's networks, fitted to 32x32 images.

He, Zhang, Ren, Sun, "Deep Residual Learning for Image Recognition", CVPR 2016. The stem for 224x224 images shrinks them
to a quarter of their side before the first block. Here it is one 3x3 convolution of stride 1, as in the paper's
networks for CIFAR-10. The paper has one layer behind the pooled 512 numbers. With a linear head that is the network of
`resnet18_pooled` and `resnet34_pooled`; `resnet18` and `resnet34` have one more, from 512 to the features. The initial
weights are torchvision's.

`resnet18_imagenet` and `resnet34_imagenet` are torchvision's networks as they are, up to the last layer, behind the
scaling of colours with which their weights were trained, so that a file of these weights fits (`model.weights`).
"""

from __future__ import annotations

from collections import OrderedDict

import torch
from torch import Tensor, nn

from semcom.models.encoders import Flatten
from semcom.models.registry import ends_in
from semcom.models.stacks import for_stacks

MEAN, DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
"""Of ImageNet's colours, red, green and blue, in [0, 1]: torchvision's weights expect images scaled by them."""
POOLED = 512
"""Filters of the last stage of ResNet-18 and ResNet-34."""


@for_stacks
class GlobalMean(nn.Module):
    """A layer `[..., c, h, w] -> [..., c, 1, 1]`, for torchvision's pool, which vmap would take client by client."""

    def forward(self, x: Tensor) -> Tensor:
        """Average over the positions."""
        return x.mean((-2, -1), keepdim=True)


def resnet18(channels: int, features: int) -> nn.Module:
    """ResNet-18 (He et al., CVPR 2016) with random weights, and a layer from 512 numbers to features."""
    return _make_network("resnet18", channels, features)


def resnet34(channels: int, features: int) -> nn.Module:
    """ResNet-34 (He et al., CVPR 2016) with random weights, and a layer from 512 numbers to features."""
    return _make_network("resnet34", channels, features)


@ends_in(POOLED)
def resnet18_pooled(channels: int, features: int = POOLED) -> nn.Module:
    """ResNet-18 up to its pool, of 512 features: with a linear head it is that of He et al., 2016."""
    return _make_network("resnet18", channels, None)


@ends_in(POOLED)
def resnet34_pooled(channels: int, features: int = POOLED) -> nn.Module:
    """ResNet-34 up to its pool, of 512 features: with a linear head it is that of He et al., 2016."""
    return _make_network("resnet34", channels, None)


def resnet18_imagenet(channels: int, features: int) -> nn.Module:
    """ResNet-18 for images of 64 pixels and more, to which torchvision's weights fit; scales colours as these need."""
    return _make_imagenet_network("resnet18", channels, features)


def resnet34_imagenet(channels: int, features: int) -> nn.Module:
    """ResNet-34 for images of 64 pixels and more, to which torchvision's weights fit; scales colours as these need."""
    return _make_imagenet_network("resnet34", channels, features)


@for_stacks
class Normalise(nn.Module):
    """A layer `[..., c, h, w] -> [..., c, h, w]` of images in [-1, 1] to (x - `MEAN`) / `DEVIATION` of x in [0, 1]."""

    def forward(self, x: Tensor) -> Tensor:
        """Scale the colours; of images with one colour, it is all three."""
        colours = x.expand(*x.shape[:-3], len(MEAN), *x.shape[-2:]).unbind(-3)
        # Colour by colour with numbers of the host: a tensor of them would be copied to a GPU in every step.
        scales = zip(colours, MEAN, DEVIATION, strict=True)
        return torch.stack([(colour + (1 - 2 * m)) / (2 * d) for colour, m, d in scales], -3)


def _make_imagenet_network(name: str, channels: int, features: int) -> nn.Module:
    if channels not in (1, 3):
        raise ValueError(f"{name}-imagenet takes images of one colour or of three, not of {channels}")
    from torchvision import models

    for_stacks(models.resnet.BasicBlock)
    network = models.get_model(name, weights=None)
    network.avgpool = GlobalMean()
    layers = dict(network.named_children())
    last = nn.Linear(layers.pop("fc").in_features, features)
    return nn.Sequential(OrderedDict(normalise=Normalise(), **layers, flatten=Flatten(), fc=last))


def _make_network(name: str, channels: int, features: int | None) -> nn.Module:
    """Replace the stem and the pools of torchvision's network, and its last layer by one to `features`.

    torchvision's `forward` calls the layers in order, so a Sequential with the same names does the same.
    """
    from torchvision import models  # takes seconds, in which names and sizes can be read

    for_stacks(models.resnet.BasicBlock)
    network = models.get_model(name, weights=None)
    network.conv1 = nn.Conv2d(channels, 64, 3, 1, 1, bias=False)
    nn.init.kaiming_normal_(network.conv1.weight, mode="fan_out", nonlinearity="relu")  # as for its other convolutions
    network.maxpool, network.avgpool = nn.Identity(), GlobalMean()
    network.fc = nn.Identity() if features is None else nn.Linear(POOLED, features)
    layers = dict(network.named_children())
    last = layers.pop("fc")
    return nn.Sequential(OrderedDict(**layers, flatten=Flatten(), fc=last))
