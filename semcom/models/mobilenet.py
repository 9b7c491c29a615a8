"""MobileNets, fitted to 32x32 images: the stem has stride 1 instead of 2, as that of the residual encoders.

Howard, Zhu, Chen, Kalenichenko, Wang, Weyand, Andreetto, Adam, "MobileNets: Efficient Convolutional Neural Networks for
Mobile Vision Applications", arXiv:1704.04861, 2017: version 1, which FedPer and RepPer train. torchvision has only
version 2: Sandler, Howard, Zhu, Zhmoginov, Chen, "MobileNetV2: Inverted Residuals and Linear Bottlenecks", CVPR 2018.
The other strides of both are the papers' and leave 2x2 positions of 32x32.
"""

from __future__ import annotations

from torch import nn

from semcom.models.encoders import Flatten
from semcom.models.registry import ends_in
from semcom.models.resnet import GlobalMean
from semcom.models.stacks import for_stacks

LAYERS = (
    (64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2), *[(512, 1)] * 5, (1024, 2), (1024, 1),
)  # fmt: skip
"""Table 1 of Howard et al.: outputs of each separable convolution, and its stride.

The table prints stride 2 for the last one too, between maps of the same size.
"""


def mobilenet(channels: int, features: int) -> nn.Module:
    """MobileNetV2 (Sandler et al., CVPR 2018), random weights, and a layer from 1280 to features.

    The initial weights are torchvision's. Its dropout of 0.2 belongs to the classifier, which the head is here, so it
    is left out. The depthwise filters start so small that features are tiny (1e-10) in evaluation mode until BatchNorm
    has seen some batches.
    """
    from torchvision import models, ops  # takes seconds, in which names and sizes can be read

    for_stacks(models.mobilenetv2.InvertedResidual)
    for_stacks(ops.Conv2dNormActivation)
    network = models.mobilenet_v2(weights=None, num_classes=features)
    stem = nn.Conv2d(channels, 32, 3, 1, 1, bias=False)
    nn.init.kaiming_normal_(stem.weight, mode="fan_out")  # as for its other convolutions
    network.features[0][0] = stem
    return nn.Sequential(network.features, GlobalMean(), Flatten(), network.classifier[1])


@ends_in(LAYERS[-1][0])
def mobilenet_v1(channels: int, features: int = LAYERS[-1][0]) -> nn.Module:
    """MobileNet of 2017 (Howard et al., arXiv:1704.04861), width 1.0, up to its pool, 1024 features.

    A 3x3 convolution to 32 channels, then 13 separable ones: a 3x3 filter for each channel, and a 1x1 convolution. Each
    of the 27 has BatchNorm and ReLU behind it. With a linear head this is the network of that paper, with initial
    weights of He et al., N(0, 2 / inputs of an output), where it prints none.
    """
    layers, before = _make_normed_convolution(nn.Conv2d(channels, 32, 3, 1, 1, bias=False)), 32
    for width, stride in LAYERS:
        layers += _make_normed_convolution(nn.Conv2d(before, before, 3, stride, 1, groups=before, bias=False))
        layers += _make_normed_convolution(nn.Conv2d(before, width, 1, bias=False))
        before = width
    return nn.Sequential(*layers, GlobalMean(), Flatten())


def _make_normed_convolution(convolution: nn.Conv2d) -> list[nn.Module]:
    nn.init.kaiming_normal_(convolution.weight, nonlinearity="relu")
    return [convolution, nn.BatchNorm2d(convolution.out_channels), nn.ReLU(inplace=True)]
