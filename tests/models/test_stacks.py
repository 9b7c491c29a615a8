"""Networks on stacks of clients compute the same as each client's own call. Other layers are left to vmap."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call

from semcom.engine.train import forward
from semcom.models.own import replace_by_own_layers
from semcom.models.registry import ENCODERS, build_encoder
from semcom.models.stacks import on_stacks, stacked, works_on_stacks

CLOSE = 1e-10
K, B = 3, 4
NETWORKS = [name for name in ENCODERS.names() if ENCODERS.ships(name)]


def stacks(network: nn.Module) -> dict[str, Tensor]:
    """K sets of tensors of a network, in float64."""
    torch.manual_seed(0)
    own = network.state_dict().items()
    return {n: t.double() + 0.1 * torch.rand(K, *t.shape, dtype=torch.float64) for n, t in own}


def outcome(network: nn.Module, call: Callable[[dict[str, Tensor]], Tensor], **more: Tensor) -> list[Tensor]:
    """The output, the statistics and all gradients, each over its largest number."""
    tensors = stacks(network)
    leaves = [t.requires_grad_() for n, t in tensors.items() if "running" not in n]
    y = call(tensors | more)
    found = [y, *(t for n, t in tensors.items() if "running" in n)]
    found += torch.autograd.grad(y.square().sum(), leaves) if leaves else []
    return [t.detach() / t.detach().abs().max() for t in found]


def same(network: nn.Module, x: Tensor, **more: Tensor) -> None:
    """Check a network on stacks against the clients one by one."""

    def at_once(tensors: dict[str, Tensor]) -> Tensor:
        with on_stacks():
            return functional_call(network, tensors, (x,))

    def one_by_one(tensors: dict[str, Tensor]) -> Tensor:
        rows = {n: t.unbind(0) for n, t in tensors.items()}
        return torch.stack([functional_call(network, {n: t[i] for n, t in rows.items()}, (x[i],)) for i in range(K)])

    assert works_on_stacks(network)
    pairs = zip(outcome(network, at_once, **more), outcome(network, one_by_one, **more), strict=True)
    assert all(a.shape == b.shape and (a - b).abs().max() < CLOSE for a, b in pairs)


def test_all_networks_that_are_shipped_work_on_stacks() -> None:
    for name in NETWORKS:
        with torch.device("meta"):
            network = build_encoder(name, (3, 32, 32), 512 if "resnet" in name else 1024)
            assert works_on_stacks(replace_by_own_layers(network)), name


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("name", ["dcgan-narrow", "cnn", "conv4", "dcgan-narrow-groupnorm", "mlp"])
def test_networks_on_stacks_are_those_of_each_client(name: str, training: bool) -> None:
    network = replace_by_own_layers(build_encoder(name, (3, 32, 32), 8)).double().train(training)
    same(network, torch.randn(K, B, 3, 32, 32, dtype=torch.float64))


@pytest.mark.parametrize("name", ["resnet18", "mobilenet"])
def test_so_are_residual_ones(name: str) -> None:
    network = replace_by_own_layers(ENCODERS.get(name)(1, 4)).double().eval()
    x = torch.randn(K, 1, 1, 16, 16, dtype=torch.float64)
    tensors = stacks(network)
    with torch.no_grad(), on_stacks():
        y = functional_call(network, tensors, (x,))
    with torch.no_grad():
        own = functional_call(network, {n: t[2] for n, t in tensors.items()}, (x[2],))
    assert (y[2] - own).abs().max() < CLOSE * own.abs().max()


LAYERS: list[tuple[nn.Module, tuple[int, ...]]] = [
    (nn.Linear(5, 3), (5,)),
    (nn.Linear(5, 3, bias=False), (2, 5)),
    (nn.Conv2d(4, 6, (3, 2), (2, 1), (1, 0), groups=2), (4, 6, 5)),
    (nn.BatchNorm1d(5), (5,)),
    (nn.BatchNorm2d(5, affine=False), (5, 2, 2)),
    (nn.GroupNorm(2, 4), (4, 3)),
    (nn.GroupNorm(2, 4, affine=False), (4, 3, 3)),
    (nn.MaxPool2d(2), (3, 4, 4)),
    (nn.AvgPool2d(2, ceil_mode=True), (3, 5, 5)),
    (nn.AdaptiveAvgPool2d(2), (3, 5, 5)),
    (nn.Flatten(), (2, 3, 2)),
    (nn.Flatten(-2), (2, 3, 2)),
    (nn.Flatten(1, 2), (2, 3, 2)),
]


@pytest.mark.parametrize(("layer", "shape"), LAYERS, ids=lambda v: type(v).__name__ if isinstance(v, nn.Module) else "")
def test_each_layer(layer: nn.Module, shape: tuple[int, ...]) -> None:
    network = replace_by_own_layers(nn.Sequential(layer)).double().train()
    same(network, torch.randn(K, B, *shape, dtype=torch.float64))


@pytest.mark.parametrize("image", [True, False])
def test_padding_is_left_out_of_the_statistics_of_stacks(image: bool) -> None:
    network = replace_by_own_layers(nn.Sequential(nn.BatchNorm2d(3) if image else nn.BatchNorm1d(3))).double().train()
    mask = torch.arange(B) < torch.tensor([[B], [2], [1]])
    same(network, torch.randn(K, B, 3, *[2, 2] * image, dtype=torch.float64), **{"0.mask": mask})


def test_a_single_value_is_normalised_to_zero_on_stacks_too() -> None:
    network = replace_by_own_layers(nn.Sequential(nn.BatchNorm1d(2, affine=False))).train()
    with on_stacks():
        y = functional_call(
            network, {n: t.repeat(K, 1) for n, t in network.state_dict().items()}, (torch.ones(K, 1, 2),)
        )
    assert y.shape == (K, 1, 2) and not y.any()


@pytest.mark.parametrize("kind", [nn.ReLU, nn.LeakyReLU, nn.ReLU6, nn.SiLU, nn.Hardswish])
def test_activations_on_stacks_write_over_nothing(kind: Any) -> None:
    layer, x = replace_by_own_layers(nn.Sequential(kind(inplace=True))), torch.randn(K, B, 5)
    before = x.clone()
    with on_stacks():
        y = layer(x)
    assert torch.equal(x, before) and not torch.equal(y, x) and layer[0].inplace
    assert torch.equal(layer(x), y) and torch.equal(x, y)  # for one client they do


def test_it_ends_with_the_context_whatever_happens() -> None:
    with pytest.raises(ZeroDivisionError), on_stacks():
        assert stacked()
        raise ZeroDivisionError
    assert not stacked()


class Odd(nn.Module):
    """A user's network that counts its axes from the first."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Conv2d(2, 4, 3), nn.BatchNorm2d(4), nn.ReLU(inplace=True))

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x).flatten(1)


@pytest.mark.parametrize("network", [Odd(), nn.Conv2d(2, 4, 3, padding="same"), nn.Conv1d(2, 4, 3)])
@pytest.mark.parametrize("autocast", [None, torch.bfloat16])
def test_other_networks_are_left_to_vmap(
    network: nn.Module, autocast: torch.dtype | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(forward, "convolves", lambda module: False)  # a CPU would take one client after the other
    network = replace_by_own_layers(network).train()
    assert not works_on_stacks(network)
    x = torch.randn(K, B, 2, *[5] * (1 if isinstance(network, nn.Conv1d) else 2))
    tensors = {n: t.float() for n, t in stacks(network).items()}
    with torch.autocast("cpu", torch.bfloat16, enabled=autocast is not None):
        y = forward.call_stacked_model(network, {n: t.clone() for n, t in tensors.items()}, x, K, autocast)
        own = forward.call_stacked_model(network, {n: t[1].clone() for n, t in tensors.items()}, x[1:2], 1, autocast)
    assert (y[1].float() - own[0].float()).abs().max() < (1e-5 if autocast is None else 0.05)
