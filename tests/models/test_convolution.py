"""Convolutions of stacks: each implementation against torch's, client by client, its gradients, and the choice."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from semcom.models import convolution
from semcom.models.convolution import OF_INPUT, OF_WEIGHT, OUTPUT, WAYS, Geometry, convolve

CLOSE = 1e-12
"""Of sums of some hundred products of numbers around 1, in float64."""
ONE = Geometry((6, 5), (4, 3), (2, 1), (1, 0), (1, 1), 1)
pair = st.tuples(st.integers(1, 3), st.integers(1, 3))


@st.composite
def geometries(draw: st.DrawFn) -> Geometry:
    kernel, stride, dilation = draw(pair), draw(pair), draw(st.sampled_from([(1, 1), (1, 1), (2, 1)]))
    padding = draw(st.tuples(st.integers(0, 2), st.integers(0, 2)))
    least = [max(1, d * (k - 1) + 1 - 2 * p) for k, d, p in zip(kernel, dilation, padding, strict=True)]
    height, width = (draw(st.integers(n, n + 4)) for n in least)
    return Geometry((height, width), kernel, stride, padding, dilation, draw(st.sampled_from([1, 2])))


def one_by_one(x: Tensor, w: Tensor, geometry: Geometry) -> Tensor:
    return torch.stack([F.conv2d(*own, **geometry.grouped(1)) for own in zip(x, w, strict=True)])


def case(geometry: Geometry, k: int = 2, b: int = 3, order: int = 0) -> tuple[Tensor, Tensor]:
    """Build images and weights of k clients with clients, images or channels last in memory."""
    torch.manual_seed(1)
    c, o = 2 * geometry.groups, 3 * geometry.groups
    shape = [(k, b, c), (b, k, c), (c, k, b)][order]
    x = torch.randn(*shape, *geometry.size, dtype=torch.float64)
    x = x.permute([(0, 1, 2, 3, 4), (1, 0, 2, 3, 4), (1, 2, 0, 3, 4)][order])
    return x.requires_grad_(), torch.randn(k, o, 2, *geometry.kernel, dtype=torch.float64, requires_grad=True)


@settings(max_examples=40, deadline=None, derandomize=True)
@given(geometries(), st.sampled_from([0, 1, 2]))
def test_each_way_computes_what_torch_computes_for_each_client(geometry: Geometry, order: int) -> None:
    x, w = case(geometry, order=order)
    expected = one_by_one(x, w, geometry)
    assert tuple(expected.shape[-2:]) == geometry.out
    g = torch.randn_like(expected)
    dx, dw = torch.autograd.grad(expected, (x, w), g)
    for which, one, other, wanted in ((OUTPUT, x, w, expected), (OF_INPUT, g, w, dx), (OF_WEIGHT, g, x, dw)):
        for name, way in WAYS[which].items():
            with torch.no_grad():
                assert (way(one, other, geometry) - wanted).abs().max() < CLOSE, name


@pytest.mark.parametrize("bias", [True, False])
def test_the_whole_layer_is_that_of_each_client(bias: bool) -> None:
    x, w = case(ONE)
    b = torch.randn(2, 3, dtype=torch.float64, requires_grad=True) if bias else None
    leaves = [t for t in (x, w, b) if t is not None]
    expected = one_by_one(x, w, ONE) + (0 if b is None else b[:, None, :, None, None])
    got, g = convolve(x, w, b, ONE), torch.randn_like(expected)
    assert (got - expected).abs().max() < CLOSE
    pairs = zip(torch.autograd.grad(got, leaves, g), torch.autograd.grad(expected, leaves, g), strict=True)
    assert all((mine - own).abs().max() < CLOSE for mine, own in pairs)


def test_gradients_of_gradients() -> None:
    """Per-FedAvg differentiates twice, so each of the three functions is checked twice against finite differences."""
    geometry = Geometry((3, 3), (2, 2), (2, 1), (1, 0), (1, 1), 1)
    x, w = case(geometry, k=1, b=1)
    g = torch.randn(1, 1, 3, *geometry.out, dtype=torch.float64, requires_grad=True)
    for which, pair in ((OUTPUT, (x, w)), (OF_INPUT, (g, w)), (OF_WEIGHT, (g, x))):
        assert torch.autograd.gradcheck(lambda a, b, f=which: convolution._Bilinear.apply(f, a, b, geometry), pair)
        assert torch.autograd.gradgradcheck(lambda a, b, f=which: convolution._Bilinear.apply(f, a, b, geometry), pair)


class Stack:
    """Stands for a GPU tensor with the attributes that the choice reads."""

    is_cuda, shape, dtype = True, torch.Size([2, 3]), torch.float32

    def stride(self) -> tuple[int, int]:
        return 3, 1


@pytest.mark.parametrize(("deterministic", "expected"), [(False, "b"), (True, "a")])
def test_the_fastest_is_taken_unless_numbers_are_to_come_again(
    deterministic: bool, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ways: dict[str, Any] = {name: lambda one, other, geometry: None for name in "abc"}
    took = iter([3.0, 1.0, 2.0])
    monkeypatch.setattr(convolution, "_time_way", lambda work: next(took))
    monkeypatch.setattr(torch.backends.cudnn, "deterministic", deterministic)
    monkeypatch.setattr(convolution, "_chosen", {})
    monkeypatch.setitem(WAYS, OUTPUT, ways)
    stack: Any = Stack()
    assert [convolution._choose_way(OUTPUT, stack, stack, ONE) for _ in range(2)] == [expected] * 2  # tried once


def test_a_way_without_the_memory_for_it_is_not_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)

    def full() -> None:
        raise torch.cuda.OutOfMemoryError

    assert convolution._time_way(full) == float("inf") > convolution._time_way(lambda: None) > 0


def test_orders_of_memory_meet_without_copies() -> None:
    """Each implementation returns a view with the client's channels side by side, as batch normalisation takes them."""
    x, w = (t.detach() for t in case(ONE))
    for name, way in WAYS[OUTPUT].items():
        y = way(x, w, ONE)
        side = y.transpose(0, 1).flatten(1, 2)
        assert side.data_ptr() == y.data_ptr() and side._base is not None, name
