"""Semantic encoders: image `[b, C, 32, 32]` in [-1, 1] -> features `[b, d]`.

The DCGAN-like encoder of the FedCL letter: a DCGAN discriminator (Radford et al., 2016) whose last layer has d
outputs. The letter gives only the output dimension; widths and depth are DCGAN's for 32x32.

The small convolutional network of McMahan et al., "Communication-Efficient Learning of Deep Networks from Decentralized
Data", AISTATS 2017, on which much of federated learning is compared. With dropout it is the network of FedCRL (its
Table I, k = 128); the paper of FedCoSR has the same layers and does not mention dropout.

The network of four convolutions of Oh, Kim, Yun, "FedBABU: Toward Enhanced Representation for Federated Image
Classification", ICLR 2022, which fits FedCRC's "four convolutional layers and one fully connected layer".
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn


class Flatten(nn.Module):
    """A layer `[b, c, h, w] -> [b, h w c]`, in the order in which channels-last activations lie in memory.

    So neither the values nor their gradient are copied into another layout, which costs as much as a convolution.
    """

    def forward(self, x: Tensor) -> Tensor:
        """Move the channels last, then flatten."""
        return x.movedim(1, -1).flatten(1)


def _dcgan(channels: int, features: int, widths: Sequence[int], extra: int = 0) -> nn.Sequential:
    """Stack strided 4x4 convolutions down to 4x4, `extra` 3x3 ones at each width, and a last 4x4 one to `features`.

    The last one sees its whole input at once, so it is written as the matrix that it is: faster. No biases: before
    BatchNorm one would only drift by rounding. Weights N(0, 0.02), BatchNorm scale N(1, 0.02).
    """
    layers: list[nn.Module] = []
    before = channels
    for i, width in enumerate(widths):
        kernels = [(4, 2), *[(3, 1)] * extra]
        for j, (kernel, stride) in enumerate(kernels):
            layers.append(nn.Conv2d(before, width, kernel, stride, 1, bias=False))
            if i or j:
                layers.append(nn.BatchNorm2d(width))
            layers.append(nn.LeakyReLU(0.2, inplace=True))
            before = width
    layers += [Flatten(), nn.Linear(16 * before, features, bias=False)]
    for layer in layers:
        if isinstance(layer, nn.Conv2d | nn.Linear):
            nn.init.normal_(layer.weight, 0.0, 0.02)
        elif isinstance(layer, nn.BatchNorm2d):
            nn.init.normal_(layer.weight, 1.0, 0.02)
    return nn.Sequential(*layers)


def dcgan(channels: int, features: int) -> nn.Module:
    """DCGAN-like encoder, widths 64-128-256 (FedCL letter, section III). `[b, channels, 32, 32] -> [b, features]`."""
    return _dcgan(channels, features, (64, 128, 256))


def dcgan_wide(channels: int, features: int) -> nn.Module:
    """The DCGAN-like encoder at 1.5 times its widths: 96-192-384."""
    return _dcgan(channels, features, (96, 192, 384))


def dcgan_narrow(channels: int, features: int) -> nn.Module:
    """The DCGAN-like encoder at half its widths: 32-64-128."""
    return _dcgan(channels, features, (32, 64, 128))


def dcgan_deep(channels: int, features: int) -> nn.Module:
    """The DCGAN-like encoder at half its widths with a 3x3 convolution after each strided one."""
    return _dcgan(channels, features, (32, 64, 128), extra=1)


def cnn(channels: int, features: int) -> nn.Module:
    """Two 5x5 convolutions, 32-64, each with ReLU and 2x2 max-pooling, and a fully-connected layer with ReLU.

    With 512 features and a linear head it is the 32-64-512 network of the federated toolkits. They leave McMahan et
    al.'s padding out, and so does this: 32x32 shrinks to 28, 14, 10 and 5 pixels a side. The pools come before the
    ReLUs: the same numbers and gradients, on a quarter of the values.
    """
    return nn.Sequential(
        nn.Conv2d(channels, 32, 5),
        nn.MaxPool2d(2),
        nn.ReLU(inplace=True),
        nn.Conv2d(32, 64, 5),
        nn.MaxPool2d(2),
        nn.ReLU(inplace=True),
        Flatten(),
        nn.Linear(64 * 5 * 5, features),
        nn.ReLU(inplace=True),
    )


def cnn_dropout(channels: int, features: int) -> nn.Module:
    """`cnn` with a dropout of 0.3 on the features, as FedCRL's Table I has it."""
    return nn.Sequential(*cnn(channels, features).children(), nn.Dropout(0.3))


def conv4(channels: int, features: int) -> nn.Module:
    """Four 3x3 convolutions of 64 filters, each with BatchNorm, ReLU and 2x2 max-pooling: 2x2x64 = 256 numbers.

    The paper's fully-connected layer is its predictor, here the head. With 256 features nothing lies between the two,
    and with a linear head this is the paper's network; another number of features takes a layer from 256 to it.
    There are no biases before BatchNorm, which would take them out; the pools come before the ReLUs, as in `cnn`.
    """
    layers: list[nn.Module] = []
    for before in (channels, 64, 64, 64):
        convolution = nn.Conv2d(before, 64, 3, padding=1, bias=False)
        layers += [convolution, nn.BatchNorm2d(64), nn.MaxPool2d(2), nn.ReLU(inplace=True)]
    last = [] if features == 256 else [nn.Linear(256, features)]
    return nn.Sequential(*layers, Flatten(), *last)
