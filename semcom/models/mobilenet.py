"""MobileNet: torchvision's network, fitted to 32x32 images.

Sandler, Howard, Zhu, Zhmoginov, Chen, "MobileNetV2: Inverted Residuals and Linear Bottlenecks", CVPR 2018. The stem has
stride 1 instead of 2, as the residual encoders' has; the other strides are the paper's and leave 2x2 positions.
"""

from __future__ import annotations

from torch import nn
from torchvision.models import mobilenet_v2

from semcom.models.encoders import Flatten
from semcom.models.resnet import GlobalMean


def mobilenet(channels: int, features: int) -> nn.Module:
    """MobileNetV2 with random weights, torchvision's initialisation. `[b, channels, 32, 32] -> [b, features]`.

    Its dropout of 0.2 belongs to the classifier, which the head is here, so it is left out. The depthwise filters start
    so small that features are tiny (1e-10) in evaluation mode until BatchNorm has seen some batches.
    """
    network = mobilenet_v2(weights=None, num_classes=features)
    stem = nn.Conv2d(channels, 32, 3, 1, 1, bias=False)
    nn.init.kaiming_normal_(stem.weight, mode="fan_out")  # as for its other convolutions
    network.features[0][0] = stem
    return nn.Sequential(network.features, GlobalMean(), Flatten(), network.classifier[1])
