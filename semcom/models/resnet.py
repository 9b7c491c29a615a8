"""Residual encoders: torchvision's networks, fitted to 32x32 images.

He, Zhang, Ren, Sun, "Deep Residual Learning for Image Recognition", CVPR 2016. The stem for 224x224 images shrinks them
to a quarter of their side before the first block. Here it is one 3x3 convolution of stride 1, as in the paper's
networks for CIFAR-10.
"""

from __future__ import annotations

from torch import Tensor, nn
from torchvision.models import ResNet
from torchvision.models import resnet18 as torchvision_resnet18
from torchvision.models import resnet34 as torchvision_resnet34


class GlobalMean(nn.Module):
    """A layer `[b, c, h, w] -> [b, c, 1, 1]`, for torchvision's pool, which vmap would take client by client."""

    def forward(self, x: Tensor) -> Tensor:
        """Return the mean over the positions."""
        return x.mean((2, 3), keepdim=True)


def resnet18(channels: int, features: int) -> nn.Module:
    """ResNet-18 with random weights, torchvision's initialisation. `[b, channels, 32, 32] -> [b, features]`."""
    return _for_small_images(torchvision_resnet18(weights=None), channels, features)


def resnet34(channels: int, features: int) -> nn.Module:
    """ResNet-34 with random weights, torchvision's initialisation. `[b, channels, 32, 32] -> [b, features]`."""
    return _for_small_images(torchvision_resnet34(weights=None), channels, features)


def _for_small_images(network: ResNet, channels: int, features: int) -> nn.Module:
    """Replace the stem, the pools and the last layer."""
    network.conv1 = nn.Conv2d(channels, 64, 3, 1, 1, bias=False)
    nn.init.kaiming_normal_(network.conv1.weight, mode="fan_out", nonlinearity="relu")  # as for its other convolutions
    network.maxpool, network.avgpool = nn.Identity(), GlobalMean()
    network.fc = nn.Linear(512, features)
    return network
