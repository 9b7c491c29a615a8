"""Semantic encoders: image `[b, C, size, size]` in [-1, 1] -> features `[b, d]`.

The DCGAN-like encoder of the FedCL letter: a DCGAN discriminator (Radford et al., 2016) whose last layer has d outputs.
The letter gives only the output dimension; widths and depth are DCGAN's for 32x32. Larger images have one more layer of
twice the width for each doubling, as DCGAN has for its 64x64.

The small convolutional network of McMahan et al., "Communication-Efficient Learning of Deep Networks from Decentralized
Data", AISTATS 2017, on which much of federated learning is compared. The papers of FedCRL and FedCoSR describe its
layers, with k features and no activation behind them (`cnn_linear`), and print neither kernels nor widths. FedCRL's
Table I has k = 128 and a dropout of 0.3, for which its text names no place (`cnn_dropout` has it on the features).

LeNet-5 with ReLU and max-pools, the smallest convolutional network that papers of the field train on CIFAR-10, such as
Li, He, Song, "Model-Contrastive Federated Learning", CVPR 2021.

The network of four convolutions of Oh, Kim, Yun, "FedBABU: Toward Enhanced Representation for Federated Image
Classification", ICLR 2022, which fits FedCRC's "four convolutional layers and one fully connected layer".
"""

from __future__ import annotations

import math
from collections.abc import Callable

from torch import Tensor, nn

from semcom.config import ConfigError
from semcom.models.stacks import for_stacks


def _check_size(least: int, size: int, network: str) -> None:
    """Raise ConfigError for images that strides and pools would shrink to zero pixels."""
    if size < least:
        raise ConfigError(f"data.size: {size} is too small for {network}, which takes at least {least} pixels a side")


@for_stacks
class Flatten(nn.Module):
    """A layer `[..., c, h, w] -> [..., h w c]`, in the order in which channels-last activations lie in memory.

    So neither the values nor their gradient are copied into another layout, which costs as much as a convolution.
    """

    def forward(self, x: Tensor) -> Tensor:
        """Move the channels last, then flatten."""
        return x.movedim(-3, -1).flatten(-3)


GROUP = 16
"""Channels that GroupNorm normalises together, one of the sizes that its paper tries."""


def group_norm(channels: int) -> nn.Module:
    """Build GroupNorm over groups of 16 channels of an image, without running statistics (Wu & He, ECCV 2018)."""
    return nn.GroupNorm(channels // GROUP, channels)


def _dcgan(
    channels: int,
    features: int,
    size: int,
    width: int,
    extra: int = 0,
    norm: Callable[[int], nn.Module] = nn.BatchNorm2d,
) -> nn.Sequential:
    """Stack strided 4x4 convolutions, each followed by `extra` 3x3 ones, and a last one to `features`.

    Each is twice as wide as the last. Together they shrink the image to 4x4 (up to 7x7 of other sizes than 2^n). The
    last convolution sees its whole input at once, so it is written as a matrix, which is faster. A bias before
    BatchNorm would only drift by rounding, so there are no biases. Weights N(0, 0.02), the norm's scale N(1, 0.02).
    """
    _check_size(8, size, "DCGAN")
    layers: list[nn.Module] = []
    before, stages = channels, size.bit_length() - 3
    for i in range(stages):
        kernels = [(4, 2), *[(3, 1)] * extra]
        for j, (kernel, stride) in enumerate(kernels):
            layers.append(nn.Conv2d(before, width << i, kernel, stride, 1, bias=False))
            if i or j:  # DCGAN does not normalise its first layer
                layers.append(norm(width << i))
            layers.append(nn.LeakyReLU(0.2, inplace=True))
            before = width << i
    layers += [Flatten(), nn.Linear((size >> stages) ** 2 * before, features, bias=False)]
    for layer in layers:
        if isinstance(layer, nn.Conv2d | nn.Linear):
            nn.init.normal_(layer.weight, 0.0, 0.02)
        elif isinstance(layer, nn.BatchNorm2d | nn.GroupNorm):
            nn.init.normal_(layer.weight, 1.0, 0.02)
    return nn.Sequential(*layers)


def dcgan(channels: int, features: int, size: int = 32) -> nn.Module:
    """DCGAN-like encoder of FedCL (Wang et al., 2024): strided convolutions of 64, 128, 256 filters.

    These are for images of 32x32 pixels; those of 64x64 have a fourth layer of 512, and so on.
    """
    return _dcgan(channels, features, size, 64)


def dcgan_wide(channels: int, features: int, size: int = 32) -> nn.Module:
    """The DCGAN-like encoder with 1.5 times as many filters: 96, 192 and 384."""
    return _dcgan(channels, features, size, 96)


def dcgan_narrow(channels: int, features: int, size: int = 32) -> nn.Module:
    """The DCGAN-like encoder with half as many filters: 32, 64 and 128."""
    return _dcgan(channels, features, size, 32)


def dcgan_narrow_groupnorm(channels: int, features: int, size: int = 32) -> nn.Module:
    """`dcgan_narrow` with GroupNorm for BatchNorm: clients share no statistics of their images.

    Averaged BatchNorm fits no client where clients have other classes (Hsieh et al., ICML 2020).
    """
    return _dcgan(channels, features, size, 32, norm=group_norm)


def dcgan_deep(channels: int, features: int, size: int = 32) -> nn.Module:
    """The DCGAN-like encoder with half as many filters and a 3x3 convolution after each strided one."""
    return _dcgan(channels, features, size, 32, extra=1)


def cnn(channels: int, features: int, size: int = 32) -> nn.Module:
    """Two 5x5 convolutions, 32-64, and a fully-connected layer, after McMahan et al., AISTATS 2017.

    Each convolution has ReLU and 2x2 max-pooling, the layer has ReLU. With 512 features and a linear head it is the
    32-64-512 network of the federated toolkits. They leave McMahan et al.'s padding out, and so does this: images of
    32x32 pixels shrink to 28, 14, 10 and 5 pixels a side. The pools come before the ReLUs: the same numbers and
    gradients, on a quarter of the values.
    """
    _check_size(16, size, "cnn")
    side = ((size - 4) // 2 - 4) // 2
    return nn.Sequential(
        nn.Conv2d(channels, 32, 5),
        nn.MaxPool2d(2),
        nn.ReLU(inplace=True),
        nn.Conv2d(32, 64, 5),
        nn.MaxPool2d(2),
        nn.ReLU(inplace=True),
        Flatten(),
        nn.Linear(64 * side * side, features),
        nn.ReLU(inplace=True),
    )


def cnn_dropout(channels: int, features: int, size: int = 32) -> nn.Module:
    """`cnn` with a dropout of 0.3 on the features, the rate of FedCRL's Table I, which names no place."""
    return nn.Sequential(*cnn(channels, features, size).children(), nn.Dropout(0.3))


def lenet(channels: int, features: int, size: int = 32) -> nn.Module:
    """Two 5x5 convolutions, 6-16, and two fully-connected layers, of 120 and d: LeNet-5 as MOON and others have it.

    (Li, He, Song, CVPR 2021, with d = 84.) ReLU everywhere and 2x2 max-pools, in the order of `cnn`.
    """
    _check_size(16, size, "lenet")
    side = ((size - 4) // 2 - 4) // 2
    layers: list[nn.Module] = []
    for before, width in ((channels, 6), (6, 16)):
        layers += [nn.Conv2d(before, width, 5), nn.MaxPool2d(2), nn.ReLU(inplace=True)]
    layers += [Flatten(), nn.Linear(16 * side * side, 120), nn.ReLU(inplace=True)]
    return nn.Sequential(*layers, nn.Linear(120, features), nn.ReLU(inplace=True))


def mlp(shape: tuple[int, ...], features: int) -> nn.Module:
    """One hidden layer of 128 numbers with ReLU, for arrays of any shape: rows of a table, short series, images too."""
    numbers = math.prod(shape)
    return nn.Sequential(nn.Flatten(), nn.Linear(numbers, 128), nn.ReLU(inplace=True), nn.Linear(128, features))


def cnn_linear(channels: int, features: int, size: int = 32) -> nn.Module:
    """`cnn` without the ReLU at its end, as FedCoSR's and FedCRL's texts have it (there with k = 128).

    "Each CNN includes a convolution operation, a ReLU activation, and a max-pooling step. The output of the second CNN
    is flattened and passed through a FC layer with k output features", which the head's one layer maps to the classes.
    """
    return nn.Sequential(*list(cnn(channels, features, size).children())[:-1])


def cnn_linear_dropout(channels: int, features: int, size: int = 32) -> nn.Module:
    """`cnn_linear` with a dropout of 0.3 on the features: FedCRL's text and the rate of its Table I."""
    return nn.Sequential(*cnn_linear(channels, features, size).children(), nn.Dropout(0.3))


def conv4(channels: int, features: int, size: int = 32) -> nn.Module:
    """Four 3x3 convolutions of 64 filters, with BatchNorm, ReLU and 2x2 max-pool: FedBABU's network.

    (Oh, Kim, Yun, ICLR 2022.) Of images of 32x32 pixels they leave 2x2x64 = 256 numbers. The paper's fully-connected
    layer is its predictor, here the head. With 256 features nothing lies between the two, and with a linear head this
    is the network of that paper; another number of features takes a layer from 256 to it. There are no biases before
    BatchNorm, which would take them out; the pools come before the ReLUs, as in `cnn`.
    """
    _check_size(16, size, "conv4")
    layers: list[nn.Module] = []
    for before in (channels, 64, 64, 64):
        convolution = nn.Conv2d(before, 64, 3, padding=1, bias=False)
        layers += [convolution, nn.BatchNorm2d(64), nn.MaxPool2d(2), nn.ReLU(inplace=True)]
    numbers = 64 * (size // 16) ** 2
    last = [] if features == numbers else [nn.Linear(numbers, features)]
    return nn.Sequential(*layers, Flatten(), *last)
