"""Networks on stacks: what vmap is spared computes what each client's own call does."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call

from semcom.engine.train import stacked
from semcom.engine.train.stacked import call_stacked
from semcom.models.own import own_layers
from semcom.models.registry import ENCODERS
from tests.engine.ops import Ops

CLOSE = 1e-10
K, B = 3, 4


def stacks(network: nn.Module) -> dict[str, Tensor]:
    """K sets of tensors of a network, in float64."""
    torch.manual_seed(0)
    own = {n: t for n, t in network.state_dict().items()}
    return {n: t.double() + 0.1 * torch.rand(K, *t.shape, dtype=torch.float64) for n, t in own.items()}


def both(network: nn.Module, x: Tensor, training: bool = True) -> list[tuple[Tensor, dict[str, Tensor], list[Tensor]]]:
    """Outputs, buffers and gradients of a network on stacks, and of the clients one by one."""
    network.train(training)
    found = []
    for at_once in (True, False):
        tensors = stacks(network)
        leaves = [t.requires_grad_() for n, t in tensors.items() if "running" not in n]
        call: Any = lambda t, z: functional_call(network, t, (z,))  # noqa: E731
        if at_once:
            y = call_stacked(call, tensors, x)
        else:
            rows = {n: t.unbind(0) for n, t in tensors.items()}
            y = torch.stack([call({n: t[i] for n, t in rows.items()}, x[i]) for i in range(K)])
        grads = torch.autograd.grad(y.square().sum(), leaves)
        found.append((y, {n: t for n, t in tensors.items() if "running" in n}, list(grads)))
    return found


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("name", ["dcgan-narrow", "cnn", "conv4", "dcgan-narrow-groupnorm"])
def test_networks_on_stacks_are_those_of_each_client(name: str, training: bool) -> None:
    network = own_layers(ENCODERS.get(name)(3, 8)).double()
    x = torch.randn(K, B, 3, 32, 32, dtype=torch.float64)
    (y, buffers, grads), (wanted, kept, own) = both(network, x, training)
    assert (y - wanted).abs().max() < CLOSE * wanted.abs().max()
    assert all((buffers[n] - kept[n]).abs().max() < CLOSE for n in kept)
    assert all((a - b).abs().max() < CLOSE * b.abs().max().clamp(min=1) for a, b in zip(grads, own, strict=True))


ACTIVATIONS = [nn.ReLU, nn.LeakyReLU, nn.ReLU6, nn.ELU, nn.SiLU, nn.Hardswish]


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_activations_write_nowhere(activation: Any) -> None:
    layer, x, tensors = activation(inplace=True), torch.randn(K, B, 5), {"none": torch.zeros(K)}
    before = x.clone()
    with Ops() as ops:
        y = call_stacked(lambda t, z: layer(z), tensors, x)
    assert torch.equal(y, layer(before.clone())) and torch.equal(x, before)
    assert not [name for name in ops.names if name.endswith("_")]


def test_what_has_no_better_form_is_left_to_vmap() -> None:
    """Padding by name, convolutions of one and three dimensions, and images without a batch."""
    for layer, shape in (
        (nn.Conv2d(2, 4, 3, padding="same"), (K, B, 2, 5, 5)),
        (nn.Conv1d(2, 4, 3), (K, B, 2, 5)),
        (nn.Conv2d(2, 4, 3), (K, 2, 5, 5)),
        (nn.Conv2d(2, 4, 3, padding=1, padding_mode="reflect"), (K, B, 2, 5, 5)),
    ):
        (y, _, grads), (wanted, _, own) = both(layer.double(), torch.randn(*shape, dtype=torch.float64))
        assert (y - wanted).abs().max() < CLOSE
        assert all((a - b).abs().max() < CLOSE * b.abs().max() for a, b in zip(grads, own, strict=True))


def test_clients_may_share_their_images_and_their_weights() -> None:
    network = own_layers(nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2))).double().eval()
    tensors, x = stacks(network), torch.randn(K, B, 1, 6, 6, dtype=torch.float64)
    one = {n: t[:1].expand(K, *t.shape[1:]) for n, t in tensors.items()}
    y = call_stacked(lambda t, z: functional_call(network, t, (z,)), one, x)
    assert (y[1] - functional_call(network, {n: t[0] for n, t in one.items()}, (x[1],))).abs().max() < CLOSE
    fixed = call_stacked(lambda t, z: functional_call(network, t, (x[0],)), tensors, x)
    assert (fixed[2] - functional_call(network, {n: t[2] for n, t in tensors.items()}, (x[0],))).abs().max() < CLOSE


def test_the_functions_of_stacks_are_no_one_else_s() -> None:
    with pytest.raises(RuntimeError, match="outside of vmap"):
        stacked._Convolve.apply(torch.zeros(1), torch.zeros(1), None, None)
