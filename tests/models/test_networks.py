"""Encoders, heads and the SCG: shapes, sizes by hand, initial weights."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from semcom.models.registry import ENCODERS, HEADS
from semcom.models.scg import SCG
from semcom.models.split import SplitModel
from tests import worlds
from tests.refusals import refuses

pytestmark = pytest.mark.usefixtures("own_generator")


def seeded(seed: int = 0) -> None:
    torch.manual_seed(seed)


def dcgan_size(channels: int, d: int, widths: tuple[int, int, int], extra: bool = False) -> int:
    """Count filters without bias and two numbers per normalised channel. The first layer is not normalised."""
    a, b, c = widths
    size = 16 * (channels * a + a * b + b * c + c * d) + 2 * (b + c)
    return size + (9 * (a * a + b * b + c * c) + 2 * (a + b + c) if extra else 0)


WIDTHS = {
    "dcgan": (64, 128, 256),
    "dcgan-wide": (96, 192, 384),
    "dcgan-narrow": (32, 64, 128),
    "dcgan-narrow-groupnorm": (32, 64, 128),
    "dcgan-deep": (32, 64, 128),
}


@pytest.mark.parametrize("name", WIDTHS)
@pytest.mark.parametrize(("channels", "d"), [(1, 64), (3, 64), (3, 10)])
def test_encoders(name: str, channels: int, d: int) -> None:
    net = ENCODERS.get(name)(channels, d)
    assert net(torch.randn(2, channels, 32, 32)).shape == (2, d)
    parameters = sum(p.numel() for p in net.parameters())
    assert parameters == dcgan_size(channels, d, WIDTHS[name], name == "dcgan-deep")
    convolutions = [m for m in net.modules() if isinstance(m, nn.Conv2d | nn.Linear)]
    norms = [m for m in net.modules() if isinstance(m, nn.BatchNorm2d | nn.GroupNorm)]
    assert len(convolutions) == (7 if name == "dcgan-deep" else 4) and len(norms) == len(convolutions) - 2
    assert all(m.bias is None for m in convolutions)
    assert [m.negative_slope for m in net.modules() if isinstance(m, nn.LeakyReLU)] == [0.2] * (len(convolutions) - 1)


def test_groups_are_normalised_within_each_image() -> None:
    """16 channels of one image have joint mean 0 and variance 1. Other images of the batch make no difference."""
    net = ENCODERS.get("dcgan-narrow-groupnorm")(3, 10).eval()
    norms = [m for m in net.modules() if isinstance(m, nn.GroupNorm)]
    assert [(m.num_groups, m.num_channels) for m in norms] == [(4, 64), (8, 128)]
    x = torch.randn(3, 128, 8, 8)
    groups = ((norms[1](x) - norms[1].bias[:, None, None]) / norms[1].weight[:, None, None]).reshape(3 * 8, -1)
    torch.testing.assert_close(groups.mean(1), torch.zeros(24), atol=1e-5, rtol=0)
    torch.testing.assert_close(groups.var(1, unbiased=False), torch.ones(24), atol=1e-4, rtol=0)
    images = torch.randn(4, 3, 32, 32)
    torch.testing.assert_close(net.train()(images)[:1], net.eval()(images[:1]))


def test_the_last_layer_is_a_4x4_convolution() -> None:
    """As a matrix over (row, column, channel), it gives the same numbers as a convolution over the whole map."""
    *body, flatten, last = ENCODERS.get("dcgan-narrow")(3, 10).children()
    x = nn.Sequential(*body)(torch.randn(2, 3, 32, 32))
    filters = last.weight.view(10, 4, 4, -1).movedim(-1, 1)
    torch.testing.assert_close(last(flatten(x)), nn.functional.conv2d(x, filters).flatten(1))


def test_the_size_of_the_letters_encoder() -> None:
    """By hand: 3*64*16 + 64*128*16 + 128*256*16 + 256*64*16 + 2*(128 + 256)."""
    assert sum(p.numel() for p in ENCODERS.get("dcgan")(3, 64).parameters()) == 921_344


def centred(values: Tensor, mean: float, deviation: float) -> bool:
    """Mean and standard deviation within five standard errors of those of N(mean, deviation^2)."""
    n = values.numel()
    fits_mean = abs(values.double().mean() - mean) < 5 * deviation / n**0.5
    return bool(fits_mean and abs(values.double().std() - deviation) < 5 * deviation / (2 * n) ** 0.5)


@pytest.mark.parametrize("name", WIDTHS)
def test_initial_weights(name: str) -> None:
    net = ENCODERS.get(name)(3, 64)
    scales = []
    for layer in net.modules():
        if isinstance(layer, nn.Conv2d | nn.Linear):
            assert centred(layer.weight.detach(), 0.0, 0.02)
        if isinstance(layer, nn.BatchNorm2d | nn.GroupNorm):
            scales.append(layer.weight.detach())
            assert not layer.bias.any()
        if isinstance(layer, nn.BatchNorm2d):
            assert not layer.running_mean.any() and (layer.running_var == 1).all()  # type: ignore[union-attr]
    assert centred(torch.cat(scales), 1.0, 0.02)


def affine(layer: nn.Module, x: Tensor) -> Tensor:
    assert isinstance(layer, nn.Linear)
    return x @ layer.weight.T + layer.bias


def test_heads() -> None:
    x = torch.randn(5, 8)
    head = HEADS.get("linear")(8, 3)
    assert isinstance(head, nn.Sequential)
    assert [n for n, _ in head.named_parameters()] == ["0.weight", "0.bias"]
    assert torch.allclose(head(x), affine(head[0], x))
    deep = HEADS.get("mlp")(8, 3)
    assert isinstance(deep, nn.Sequential)
    assert sum(p.numel() for p in deep.parameters()) == 8 * 8 + 8 + 8 * 3 + 3
    hidden = affine(deep[0], x).clamp(min=0)
    assert torch.allclose(deep(x), affine(deep[2], hidden))


def test_a_head_begins_with_the_weights_of_one_of_its_architecture(monkeypatch: pytest.MonkeyPatch) -> None:
    """A copy of `linear` begins like `linear`. Two heads of another architecture begin alike under any name."""

    def narrow(d: int, classes: int) -> nn.Module:
        return nn.Sequential(nn.Linear(d, 5), nn.ReLU(), nn.Linear(5, classes))

    for name, head in {"copy": HEADS.get("linear"), "narrow": narrow, "thin": narrow}.items():
        monkeypatch.setitem(HEADS._added, name, head)
    models = {name: worlds.world(model={"head": name}) for name in ("linear", "copy", "narrow", "thin", "mlp")}
    first = {name: worlds.client(w.population(), 0) for name, w in models.items()}
    for one, other in (("linear", "copy"), ("narrow", "thin")):
        assert first[one].keys() == first[other].keys()
        assert all(torch.equal(t, first[other][n]) for n, t in first[one].items())
    assert not torch.equal(first["narrow"]["head.2.bias"], first["mlp"]["head.2.bias"])


def test_scg_by_hand() -> None:
    scg = SCG(10, 64)
    assert sum(p.numel() for p in scg.parameters()) == 2 * (64 * 64 + 64)
    assert [n for n, _ in scg.named_buffers()] == ["vectors"] and scg.vectors.shape == (10, 64)
    hidden = affine(scg.layers[0], scg.vectors).clamp(min=0)
    assert torch.allclose(scg(), affine(scg.layers[2], hidden)) and torch.equal(scg(), scg())
    assert not torch.allclose(SCG(10, 64).vectors, scg.vectors)
    wide = SCG(100, 64).vectors
    assert centred(wide, 0.0, 1.0)


def test_a_split_model_names_its_parts() -> None:
    model = SplitModel(ENCODERS.get("dcgan-narrow")(1, 4), HEADS.get("linear")(4, 2))
    names = [*model.state_dict()]
    assert names[0] == "encoder.0.weight" and names[-1] == "head.0.bias"
    assert all(name.startswith(("encoder.", "head.")) for name in names)
    with pytest.raises(NotImplementedError):
        model(torch.zeros(1, 1, 32, 32))


@pytest.mark.parametrize(
    ("layers", "field", "words"),
    [
        ([nn.Linear(64, 6)], "model.encoder", ("[6] per sample", "[4]")),
        ([nn.Linear(9, 4)], "model.encoder", ("[1, 8, 8] per sample",)),
        ([nn.AlphaDropout(), nn.Linear(64, 4)], "model", ("AlphaDropout", "nn.Dropout")),
    ],
)
def test_networks_that_cannot_run_are_refused(
    layers: list[nn.Module], field: str, words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(ENCODERS._added, "test-wrong", lambda channels, features: nn.Sequential(nn.Flatten(), *layers))
    with refuses(field, *words):
        worlds.world(encoder="test-wrong").population()
