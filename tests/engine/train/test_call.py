"""A module is called with tensors in place of its own."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call

from semcom.engine.train.forward import _call_module


class Tied(nn.Module):
    """A layer that is used twice under two names, a buffer, and a buffer that is None until it is swapped in."""

    mask: Tensor | None

    def __init__(self) -> None:
        super().__init__()
        self.one = nn.Linear(3, 3)
        self.two = nn.Sequential(self.one, nn.Linear(3, 3))
        self.two[1].weight = self.one.weight
        self.register_buffer("shift", torch.ones(3))
        self.register_buffer("mask", None)

    def forward(self, x: Tensor) -> Tensor:
        if self.mask is None:
            raise RuntimeError("no mask")
        self.shift.add_(1)
        y = self.two(self.one(x) + self.shift) * self.mask
        return y


def test_tensors_stand_in_wherever_a_module_keeps_its_own() -> None:
    module, x = Tied().double(), torch.randn(2, 3, dtype=torch.float64)
    own = {name: t.clone() for name, t in module.state_dict().items()}
    given = {name: torch.randn_like(t) for name, t in module.named_parameters()}  # each weight once
    given |= {"shift": torch.randn(3, dtype=torch.float64), "mask": torch.tensor([1.0, 0.0, 2.0], dtype=torch.float64)}
    again = {name: t.clone() for name, t in given.items()}
    expected = functional_call(copy.deepcopy(module), again, (x,))  # which does not put back a layer with two names
    assert torch.equal(_call_module(module, given, x), expected)
    assert torch.equal(given["shift"], again["shift"]), "a buffer moves in place, in the tensor that was given"
    left = module.state_dict()
    assert module.mask is None and all(torch.equal(left[name], t) for name, t in own.items())


def test_a_module_has_its_own_tensors_back_after_an_error() -> None:
    module = Tied()
    before = module.one.weight
    with pytest.raises(RuntimeError, match="no mask"):
        _call_module(module, {"one.weight": torch.zeros(3, 3)}, torch.zeros(1, 3))
    assert module.one.weight is before and module.two[1].weight is before
