"""The networks of the field (plain, ResNet, MobileNet): against torch's own words, by size, and in the engine."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from torchvision.models import get_model
from torchvision.transforms import Normalize

from semcom.config import ModelConfig, RunConfig
from semcom.models.own import replace_by_own_layers
from semcom.models.registry import ENCODERS, ends_in, own_features
from semcom.runs.request.resolve import resolve
from tests import worlds
from tests.methods.arms import rounds
from tests.refusals import refuses

pytestmark = pytest.mark.usefixtures("own_generator")

Weights = Mapping[str, Tensor]


def plain_cnn_linear(w: Weights, x: Tensor) -> Tensor:
    """Convolution, ReLU and pool, twice, then a matrix over (channel, row, column)."""
    for layer in ("0", "3"):
        x = functional.max_pool2d(functional.conv2d(x, w[f"{layer}.weight"], w[f"{layer}.bias"]).relu(), 2)
    matrix = w["7.weight"].unflatten(1, (5, 5, 64)).movedim(-1, 1).flatten(1)
    return functional.linear(x.flatten(1), matrix, w["7.bias"])


def norm(w: Weights, name: str, x: Tensor) -> Tensor:
    """Batch normalisation by the batch's own statistics."""
    return functional.batch_norm(x, None, None, w[f"{name}.weight"], w[f"{name}.bias"], training=True)


def plain_conv4(w: Weights, x: Tensor) -> Tensor:
    """Convolution, BatchNorm, ReLU and pool, four times, then a matrix over (channel, row, column)."""
    for layer in (0, 4, 8, 12):
        x = norm(w, f"{layer + 1}", functional.conv2d(x, w[f"{layer}.weight"], padding=1))
        x = functional.max_pool2d(x.relu(), 2)
    matrix = w["17.weight"].unflatten(1, (2, 2, 64)).movedim(-1, 1).flatten(1)
    return functional.linear(x.flatten(1), matrix, w["17.bias"])


def plain_resnet(w: Weights, x: Tensor, blocks: tuple[int, ...]) -> Tensor:
    """He et al. 2016: four stages of blocks, the first one of stages 2 to 4 with stride 2 and a projection."""
    x = norm(w, "bn1", functional.conv2d(x, w["conv1.weight"], padding=1)).relu()
    for stage, count in enumerate(blocks, 1):
        for block in range(count):
            at = f"layer{stage}.{block}"
            stride = 2 if stage > 1 and block == 0 else 1
            y = norm(w, f"{at}.bn1", functional.conv2d(x, w[f"{at}.conv1.weight"], stride=stride, padding=1)).relu()
            y = norm(w, f"{at}.bn2", functional.conv2d(y, w[f"{at}.conv2.weight"], padding=1))
            if stride == 2:
                x = norm(w, f"{at}.downsample.1", functional.conv2d(x, w[f"{at}.downsample.0.weight"], stride=2))
            x = (x + y).relu()
    return functional.linear(x.mean((2, 3)), w["fc.weight"], w["fc.bias"])


BOTTLENECKS = (
    *((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2)),
    *((6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1)),
)
"""Sandler et al. 2018, Table 2: expansion, outputs, repetitions, stride of the first."""


def plain_mobilenet(w: Weights, x: Tensor) -> Tensor:
    """Widen, filter each channel, narrow. Blocks that keep the shape have a shortcut."""

    def widen(name: str, x: Tensor) -> Tensor:
        return functional.relu6(norm(w, f"{name}.1", functional.conv2d(x, w[f"{name}.0.weight"])))

    x = functional.relu6(norm(w, "0.0.1", functional.conv2d(x, w["0.0.0.weight"], padding=1)))
    strides = [(t, s if i == 0 else 1) for t, _, n, s in BOTTLENECKS for i in range(n)]
    for block, (expansion, stride) in enumerate(strides, 1):
        at, second = f"0.{block}.conv", int(expansion > 1)
        y = widen(f"{at}.0", x) if expansion > 1 else x
        filters = w[f"{at}.{second}.0.weight"]
        y = functional.conv2d(y, filters, stride=stride, padding=1, groups=len(filters))
        y = functional.relu6(norm(w, f"{at}.{second}.1", y))
        y = norm(w, f"{at}.{second + 2}", functional.conv2d(y, w[f"{at}.{second + 1}.weight"]))
        x = x + y if x.shape == y.shape else y
    return functional.linear(widen("0.18", x).mean((2, 3)), w["3.weight"], w["3.bias"])


HALVED = (2, 4, 6, 12)
"""Howard et al. 2017, Table 1: those of the 13 separable convolutions that halve the sides of their maps."""


def plain_mobilenet_v1(w: Weights, x: Tensor) -> Tensor:
    """A convolution, 13 times a filter per channel and a 1x1 convolution, then the mean over positions."""
    x = norm(w, "1", functional.conv2d(x, w["0.weight"], padding=1)).relu()
    for block in range(1, 14):
        at, stride = 6 * block - 3, 2 if block in HALVED else 1
        filters = w[f"{at}.weight"]
        x = functional.conv2d(x, filters, stride=stride, padding=1, groups=len(filters))
        x = norm(w, f"{at + 1}", x).relu()
        x = norm(w, f"{at + 4}", functional.conv2d(x, w[f"{at + 3}.weight"])).relu()
    return x.mean((2, 3))


def plain_lenet(w: Weights, x: Tensor) -> Tensor:
    for layer in ("0", "3"):
        x = functional.max_pool2d(functional.conv2d(x, w[f"{layer}.weight"], w[f"{layer}.bias"]).relu(), 2)
    x = functional.linear(x.permute(0, 2, 3, 1).flatten(1), w["7.weight"], w["7.bias"]).relu()
    return functional.linear(x, w["9.weight"], w["9.bias"]).relu()


PLAIN: Mapping[str, Callable[[Weights, Tensor], Tensor]] = {
    "cnn": lambda w, x: plain_cnn_linear(w, x).relu(),
    "cnn-linear": plain_cnn_linear,
    "lenet": plain_lenet,
    "conv4": plain_conv4,
    "resnet18": lambda w, x: plain_resnet(w, x, (2, 2, 2, 2)),
    "resnet34": lambda w, x: plain_resnet(w, x, (3, 4, 6, 3)),
    "mobilenet": plain_mobilenet,
    "mobilenet-v1": plain_mobilenet_v1,
}
SIDE = {name: 16 for name in ENCODERS.names() if name.startswith("resnet")}
"""Side of images for networks of any size that are slow at 32, which is the default."""
SIZES = {name: ((3, 2, 2), 3) for name in PLAIN if name.startswith("mobilenet")}
"""Training samples of three clients and the mini-batch, for the chunks. The default is `((3, 2, 1), 2)`.

One sample is four numbers per channel at MobileNet's end: over these, layer by layer, BatchNorm amplifies rounding to
1e-9.
"""


@pytest.mark.parametrize("name", PLAIN)
def test_numbers_and_gradients_are_those_of_the_paper(name: str) -> None:
    """Whatever lies last in memory."""
    net = replace_by_own_layers(built(name, 3, 6)).double()
    side = SIDE.get(name, 32)
    x = torch.randn(2, 3, side, side, dtype=torch.float64)
    layout = torch.channels_last if "resnet" in name or name == "cnn" else torch.contiguous_format
    features = net(x.contiguous(memory_format=layout))
    weights = dict(net.named_parameters())
    expected = PLAIN[name](weights, x)
    torch.testing.assert_close(features, expected)
    toward = torch.randn_like(expected)
    got, want = (torch.autograd.grad((y * toward).sum(), list(weights.values())) for y in (features, expected))
    torch.testing.assert_close(got, want)


def test_sizes_by_hand() -> None:
    """32 (75 + 1) + 64 (800 + 1) + 512 (1600 + 1) and a 10-class head, and torchvision's networks with other ends."""
    size = {name: numbers(name, 512) for name in PLAIN if name != "mobilenet-v1"}
    assert size["cnn"] == 873_408 and size["cnn"] + 10 * 513 == 878_538
    assert size["conv4"] == 9 * 64 * (3 + 3 * 64) + 4 * 2 * 64 + 512 * 257
    assert numbers("lenet", 84) + 10 * 85 == 62_006  # as many as PyTorch's tutorial on CIFAR-10 has
    ends = -1000 * 513 + 512 * 513 - 64 * 3 * 49 + 64 * 3 * 9
    assert size["resnet18"] == 11_689_512 + ends and size["resnet34"] == 21_797_672 + ends
    assert size["mobilenet"] == 3_504_872 - 1000 * 1281 + 512 * 1281


def test_sizes_in_the_literature() -> None:
    """With ten classes: the CIFAR-10 ResNets of many repositories, and Keras's MobileNet without its classifier."""
    assert numbers("resnet18-pooled", 512) + 10 * 513 == 11_173_962
    assert numbers("resnet34-pooled", 512) + 10 * 513 == 21_282_122
    running = 2 * (32 + 2 * (32 + 64 + 2 * 128 + 2 * 256 + 6 * 512 + 1024) + 1024 - 32)
    assert numbers("mobilenet-v1", 1024) == 3_228_864 - running and running == 21_888
    assert numbers("cnn-linear", 128) == numbers("cnn", 128)


def numbers(name: str, features: int) -> int:
    """Parameters of an encoder of three channels."""
    return sum(p.numel() for p in ENCODERS.get(name)(3, features).parameters())


def built(name: str, channels: int, features: int) -> nn.Module:
    """An encoder with so many features, or with its own number."""
    encoder = ENCODERS.get(name)
    return encoder(channels, own_features(encoder) or features)


@pytest.mark.parametrize(
    ("name", "end"),
    [("cnn-linear", nn.Linear), ("cnn-linear-dropout", nn.Dropout), ("cnn", nn.ReLU), ("cnn-dropout", nn.Dropout)],
)
def test_only_the_linear_end_gives_negative_features(name: str, end: type) -> None:
    """FedCoSR's and FedCRL's text: convolution, ReLU and pool, twice, flattened into a layer with k outputs."""
    net = ENCODERS.get(name)(3, 128)
    *_, last = net.children()
    features = net.eval()(torch.randn(8, 3, 32, 32))
    assert isinstance(last, end) and bool((features < 0).any()) == ("linear" in name)
    assert [type(m) for m in net.modules()].count(nn.ReLU) == 2 + ("linear" not in name)


SHIPPED = [name for name in ENCODERS.names() if not name.startswith("test-")]
POOLED = {"resnet18-pooled": 512, "resnet34-pooled": 512, "mobilenet-v1": 1024}


@pytest.mark.parametrize("name", SHIPPED)
def test_encoders_that_end_in_a_pool_say_so(name: str) -> None:
    """Their features are means of ReLU outputs, for images of any size."""
    encoder = ENCODERS.get(name)
    assert own_features(encoder) == POOLED.get(name)
    if name in POOLED:
        net = encoder(1).eval()
        assert not [m for m in net.modules() if isinstance(m, nn.Linear)]
        for side in (32, 48):
            features = net(torch.randn(2, 1, side, side))
            assert features.shape == (2, POOLED[name]) and features.min() >= 0 and features.std() > 1e-3


@pytest.mark.parametrize("name", ["resnet18", "resnet34"])
def test_a_pooled_resnet_is_the_other_one_without_its_last_layer(name: str) -> None:
    whole, pooled = (built(kind, 3, 6).eval() for kind in (name, f"{name}-pooled"))
    last = whole.get_submodule("fc")
    weights = {n: t for n, t in whole.state_dict().items() if not n.startswith("fc.")}
    pooled.load_state_dict(weights)
    x = torch.randn(2, 3, 16, 16)
    torch.testing.assert_close(last(pooled(x)), whole(x))


@pytest.mark.parametrize("name", POOLED)
def test_a_number_of_features_that_is_not_theirs_is_refused(name: str) -> None:
    d = POOLED[name]
    assert resolve(RunConfig(method="local", model=ModelConfig(name, features=d))).model.features == d
    with refuses("model.features", 64, d, name):
        resolve(RunConfig(method="local", model=ModelConfig(name)))
    with refuses("model.features", 64, d, name):
        resolve(RunConfig(method="local", model=ModelConfig(f"cnn,{name}")))


def test_encoders_that_end_in_different_numbers_are_refused() -> None:
    model = ModelConfig("resnet18-pooled,mobilenet-v1,resnet34-pooled", features=512)
    given = "resnet18-pooled 512 and mobilenet-v1 1024 and resnet34-pooled 512"
    with refuses("model.encoder", given):
        resolve(RunConfig(method="local", model=model))


def test_an_encoder_of_one_s_own_can_end_in_its_own_features(own_names: None) -> None:
    ENCODERS.register("test-end")(ends_in(6)(lambda channels, features: nn.Identity()))
    with refuses("model.features", 64, 6, "test-end"):
        resolve(RunConfig(method="local", model=ModelConfig("test-end")))


@pytest.mark.parametrize("name", ["resnet18", "resnet34", "mobilenet"])
def test_the_stem_starts_like_torchvisions(name: str) -> None:
    """N(0, 2 / fan-out) with fan-out 9 x filters: within five standard errors of its mean and deviation."""
    stem = next(ENCODERS.get(name)(3, 4).parameters()).detach()
    deviation = (2 / (len(stem) * 9)) ** 0.5
    assert abs(stem.mean()) < 5 * deviation / stem.numel() ** 0.5
    assert abs(stem.std() - deviation) < 5 * deviation / (2 * stem.numel()) ** 0.5


@pytest.mark.filterwarnings("error:There is a performance drop")
@pytest.mark.parametrize("name", ["cnn", "cnn-dropout", "conv4", "resnet18", "mobilenet", "mobilenet-v1"])
def test_a_chunk_does_not_change_the_numbers(name: str) -> None:
    """Clients of 3, 2 and 1 samples in batches of 2: padded rows, partial batches and finished clients."""
    (sizes, batch), tests, side = SIZES.get(name, ((3, 2, 1), 2)), (1, 1, 1), SIDE.get(name, 32)
    total = sum(sizes) + sum(tests)
    images = torch.randint(0, 256, (total, 3, side, side), dtype=torch.uint8)
    images = images.contiguous(memory_format=torch.channels_last)
    own, other = worlds.ragged(sizes), worlds.ragged(tests, sum(sizes))
    data = worlds.federation(images, torch.arange(total) % 3, own, other, classes=3)
    settings = {"encoder": name, "data": data, "train": {"batch_size": batch, "optimizer": "sgd"}}
    settings["model"] = {"features": POOLED.get(name, 4)}
    start, one = rounds(worlds.world(chunk=1, **settings))
    _, three = rounds(worlds.world(chunk=3, **settings))
    assert worlds.gap(one.model, three.model) < 1e-10
    assert worlds.gap(start.model, one.model) > 1e-4


@pytest.mark.parametrize("colours", [3, 1])
@pytest.mark.parametrize("name", ["resnet18", "resnet34"])
def test_torchvisions_weights_give_torchvisions_numbers(name: str, colours: int) -> None:
    """Behind torchvision's own scaling of colours, and but for its last layer; one colour stands for three."""
    net = replace_by_own_layers(built(f"{name}-imagenet", colours, 1000)).eval()
    plain = get_model(name, weights=None).eval()
    net.load_state_dict({n: t for n, t in plain.state_dict().items() if not n.endswith("num_batches_tracked")})
    x = torch.rand(2, colours, 64, 64)
    scaled = Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))(x.expand(-1, 3, -1, -1))
    with torch.no_grad():
        torch.testing.assert_close(net(2 * x - 1), plain(scaled), rtol=1e-4, atol=1e-4)
