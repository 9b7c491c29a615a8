"""The networks of the field, `cnn` and `resnet18`: against torch's own words, by size, and in the engine."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from semcom.models.own import own_layers
from semcom.registry import ENCODERS
from tests import worlds
from tests.methods.arms import rounds


@pytest.fixture(autouse=True)
def own_generator() -> object:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        yield


Weights = Mapping[str, Tensor]


def plain_cnn(w: Weights, x: Tensor) -> Tensor:
    """Convolution, ReLU, pool, twice; a matrix over (channel, row, column); ReLU."""
    for layer in ("0", "3"):
        x = functional.max_pool2d(functional.conv2d(x, w[f"{layer}.weight"], w[f"{layer}.bias"]).relu(), 2)
    matrix = w["7.weight"].unflatten(1, (5, 5, 64)).movedim(-1, 1).flatten(1)
    return functional.linear(x.flatten(1), matrix, w["7.bias"]).relu()


def plain_resnet18(w: Weights, x: Tensor) -> Tensor:
    """He et al. 2016: four stages of two blocks, the first one of stages 2 to 4 with stride 2 and a projection."""

    def norm(name: str, x: Tensor) -> Tensor:
        return functional.batch_norm(x, None, None, w[f"{name}.weight"], w[f"{name}.bias"], training=True)

    x = norm("bn1", functional.conv2d(x, w["conv1.weight"], padding=1)).relu()
    for stage in (1, 2, 3, 4):
        for block in (0, 1):
            at = f"layer{stage}.{block}"
            stride = 2 if stage > 1 and block == 0 else 1
            y = norm(f"{at}.bn1", functional.conv2d(x, w[f"{at}.conv1.weight"], stride=stride, padding=1)).relu()
            y = norm(f"{at}.bn2", functional.conv2d(y, w[f"{at}.conv2.weight"], padding=1))
            if stride == 2:
                x = norm(f"{at}.downsample.1", functional.conv2d(x, w[f"{at}.downsample.0.weight"], stride=2))
            x = (x + y).relu()
    return functional.linear(x.mean((2, 3)), w["fc.weight"], w["fc.bias"])


PLAIN = {"cnn": plain_cnn, "resnet18": plain_resnet18}


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize("name", PLAIN)
def test_numbers_and_gradients_are_those_of_the_paper(name: str, layout: torch.memory_format) -> None:
    net = own_layers(ENCODERS.get(name)(3, 6)).double()
    x = torch.randn(2, 3, 32, 32, dtype=torch.float64)
    features = net(x.contiguous(memory_format=layout))
    weights = dict(net.named_parameters())
    expected = PLAIN[name](weights, x)
    torch.testing.assert_close(features, expected)
    toward = torch.randn_like(expected)
    got, want = (torch.autograd.grad((y * toward).sum(), list(weights.values())) for y in (features, expected))
    torch.testing.assert_close(got, want)


def test_sizes_by_hand() -> None:
    """32 (75 + 1) + 64 (800 + 1) + 512 (1600 + 1) and its 10-class head; torchvision's 11,689,512 with other ends."""
    size = {name: sum(p.numel() for p in ENCODERS.get(name)(3, 512).parameters()) for name in PLAIN}
    assert size["cnn"] == 873_408 and size["cnn"] + 10 * 513 == 878_538
    assert size["resnet18"] == 11_689_512 - 1000 * 513 + 512 * 513 - 64 * 3 * 49 + 64 * 3 * 9


@pytest.mark.parametrize("name", PLAIN)
def test_channels_and_features(name: str) -> None:
    assert ENCODERS.get(name)(1, 10)(torch.randn(2, 1, 32, 32)).shape == (2, 10)


def test_the_residual_stem_starts_like_torchvisions() -> None:
    """N(0, 2 / fan-out) with fan-out 64 x 9: within five standard errors of its mean and deviation."""
    stem = ENCODERS.get("resnet18")(3, 4).conv1.weight.detach()
    deviation = (2 / (64 * 9)) ** 0.5
    assert abs(stem.mean()) < 5 * deviation / stem.numel() ** 0.5
    assert abs(stem.std() - deviation) < 5 * deviation / (2 * stem.numel()) ** 0.5


@pytest.mark.filterwarnings("error:There is a performance drop")
@pytest.mark.parametrize("name", PLAIN)
def test_a_chunk_does_not_change_the_numbers(name: str) -> None:
    """Clients of 3, 2 and 1 samples in batches of 2: padded rows, partial batches and finished clients."""
    sizes, tests = (3, 2, 1), (1, 1, 1)
    total = sum(sizes) + sum(tests)
    images = torch.randint(0, 256, (total, 3, 32, 32), dtype=torch.uint8).contiguous(memory_format=torch.channels_last)
    own, other = worlds.ragged(sizes), worlds.ragged(tests, sum(sizes))
    data = worlds.federation(images, torch.arange(total) % 3, own, other, classes=3)
    settings = {"encoder": name, "data": data, "train": {"batch_size": 2, "optimizer": "sgd"}}
    start, one = rounds(worlds.world(chunk=1, **settings))
    _, three = rounds(worlds.world(chunk=3, **settings))
    assert worlds.gap(one.model, three.model) < 1e-10
    assert worlds.gap(start.model, one.model) > 1e-4
