"""The own BatchNorm against torch's."""

from __future__ import annotations

import copy

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.func import functional_call, vmap

from semcom.models.batchnorm import BatchNorm
from semcom.models.own import replace_by_own_layers

TOLERANCE = 1e-12


def native(channels: int, spatial: bool, seed: int = 0) -> nn.BatchNorm1d | nn.BatchNorm2d:
    """torch's layer in float64 with values that are not the initial ones."""
    layer = (nn.BatchNorm2d if spatial else nn.BatchNorm1d)(channels, momentum=0.3, eps=1e-3).double()
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for t in (layer.weight, layer.bias, layer.running_mean, layer.running_var):
            t.copy_(torch.rand(channels, generator=generator, dtype=torch.float64) + 0.5)
    return layer


def own(layer: nn.Module) -> BatchNorm:
    made = replace_by_own_layers(copy.deepcopy(layer))
    assert isinstance(made, BatchNorm)
    return made


def data(b: int, channels: int, side: int | None, seed: int = 1) -> Tensor:
    shape = (b, channels) if side is None else (b, channels, side, side)
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64) * 3 + 1


def close(a: Tensor | None, b: Tensor | None) -> bool:
    return a.shape == b.shape and bool(((a - b).abs() < TOLERANCE).all())


@settings(max_examples=30, deadline=None, derandomize=True)
@given(st.integers(1, 6), st.integers(0, 4), st.sampled_from([None, 1, 3]), st.integers(0, 99))
def test_padding_changes_nothing(valid: int, padding: int, side: int | None, seed: int) -> None:
    """Output, input gradient, parameter gradients and running statistics, for two steps in a row."""
    if valid * (side or 1) ** 2 == 1:
        valid += 1
    theirs = native(3, side is not None, seed)
    ours = own(theirs)
    ours.mask = torch.arange(valid + padding) < valid
    for step in range(2):
        x = data(valid, 3, side, seed + step)
        padded = torch.cat([x, 1e3 + data(padding, 3, side, seed + 7)]).requires_grad_()
        x.requires_grad_()
        weight = data(valid, 3, side, seed + 50)
        expected, got = theirs(x), ours(padded)
        (expected * weight).sum().backward()
        (got[:valid] * weight).sum().backward()
        assert close(got[:valid], expected)
        assert close(padded.grad[:valid], x.grad) and not padded.grad[valid:].any()
        assert close(ours.weight.grad if ours.weight is not None else None, theirs.weight.grad)
        assert close(ours.bias.grad if ours.bias is not None else None, theirs.bias.grad)
        assert close(ours.running_mean, theirs.running_mean) and close(ours.running_var, theirs.running_var)


@pytest.mark.parametrize("side", [None, 1, 3])
@pytest.mark.parametrize("padded", [False, True])
def test_every_client_of_a_stack_is_its_own_layer(side: int | None, padded: bool) -> None:
    sizes = [5, 3, 2] if padded else [5, 5, 5]
    layers = [native(2, side is not None, k) for k in range(3)]
    module = own(layers[0])
    stack = {
        name: torch.stack([dict(own(layer).state_dict())[name] for layer in layers]) for name in module.state_dict()
    }
    x = torch.stack([data(5, 2, side, k) for k in range(3)]).requires_grad_()
    leaves = {n: stack[n].requires_grad_() for n in ("weight", "bias")}
    tensors = dict(stack)
    if padded:
        tensors["mask"] = torch.arange(5)[None] < torch.tensor(sizes)[:, None]
    y = vmap(lambda t, z: functional_call(module, t, (z,)))(tensors, x)
    each = [y[k, :n].square().mean() * (k + 1) + y[k, 0].sum() for k, n in enumerate(sizes)]
    grads = torch.autograd.grad(torch.stack(each).sum(), [x, leaves["weight"], leaves["bias"]])
    for k, n in enumerate(sizes):
        mine = x[k, :n].detach().requires_grad_()
        expected = layers[k](mine)
        loss = expected.square().mean() * (k + 1) + expected[0].sum()
        dx, dw, db = torch.autograd.grad(loss, [mine, layers[k].weight, layers[k].bias])
        assert close(y[k, :n], expected) and close(grads[0][k, :n], dx) and not grads[0][k, n:].any()
        assert close(grads[1][k], dw) and close(grads[2][k], db)
        assert close(stack["running_mean"][k], layers[k].running_mean)
        assert close(stack["running_var"][k], layers[k].running_var)


@pytest.mark.parametrize("padding", [0, 2])
@pytest.mark.parametrize("side", [None, 1])
def test_a_single_value_has_no_variance(side: int | None, padding: int) -> None:
    layer = native(3, side is not None)
    ours, x = own(layer), data(1 + padding, 3, side).requires_grad_()
    if padding:
        ours.mask = torch.arange(1 + padding) < 1
    mean, var = ours.running_mean.clone(), ours.running_var.clone()
    y = ours(x)
    assert close(y[0].flatten(), ours.bias.detach())  # normalised to zero, then shifted
    y[0].sum().backward()
    assert x.grad is not None and not x.grad.any()
    assert torch.equal(ours.running_var, var)
    assert close(ours.running_mean, 0.7 * mean + 0.3 * x[0].detach().flatten())


@pytest.mark.parametrize("masked", [False, True])
def test_evaluation_uses_the_running_statistics(masked: bool) -> None:
    layer = native(3, True).eval()
    ours, x = own(layer).eval(), data(4, 3, 2)
    if masked:
        ours.mask = torch.tensor([True, True, False, False])
    before = {n: t.clone() for n, t in ours.state_dict().items() if n != "mask"}
    mean, var, weight, bias = (t[:, None, None] for t in (before[n] for n in NAMES))
    assert close(ours(x), (x - mean) / (var + 1e-3).sqrt() * weight + bias)
    assert all(torch.equal(ours.state_dict()[n], t) for n, t in before.items())


NAMES = ("running_mean", "running_var", "weight", "bias")


def test_conversion_keeps_values_and_settings() -> None:
    net = nn.Sequential(nn.Conv2d(1, 2, 3), nn.Sequential(native(2, True), nn.ReLU()), nn.Flatten(), native(2, False))
    before = net.state_dict()
    converted = replace_by_own_layers(copy.deepcopy(net))
    after = converted.state_dict()
    assert list(after) == [name for name in before if not name.endswith("num_batches_tracked")]
    assert all(torch.equal(after[name], before[name]) for name in after)
    layers = [m for m in converted.modules() if isinstance(m, BatchNorm)]
    assert [(m.eps, m.momentum) for m in layers] == [(1e-3, 0.3)] * 2
    assert not [m for m in converted.modules() if isinstance(m, nn.BatchNorm1d | nn.BatchNorm2d)]
    assert [n for n, _ in converted.named_parameters()] == [n for n, _ in net.named_parameters()]


def test_conversion_without_scale() -> None:
    layer = nn.BatchNorm1d(3, affine=False).double()
    ours, x = own(layer), data(4, 3, None)
    assert close(ours(x), layer(x)) and list(ours.state_dict()) == ["running_mean", "running_var"]
    ours.mask = torch.ones(4, dtype=torch.bool)
    assert close(ours(x), layer(x)) and close(ours.running_var, layer.running_var)


@pytest.mark.parametrize("layer", [nn.BatchNorm1d(2, momentum=None), nn.BatchNorm2d(2, track_running_stats=False)])
def test_what_cannot_be_converted_is_refused(layer: nn.Module) -> None:
    with pytest.raises(ValueError, match="running statistics"):
        replace_by_own_layers(nn.Sequential(layer))
