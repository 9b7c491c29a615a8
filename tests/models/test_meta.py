"""Networks on the meta device: shapes and types without any draw."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from semcom.models.meta import build_on_meta
from semcom.models.registry import ENCODERS, HEADS, build_encoder


def described(module: nn.Module) -> dict[str, tuple[torch.Size, torch.dtype]]:
    return {name: (t.shape, t.dtype) for name, t in module.state_dict().items()}


@pytest.mark.parametrize("name", [*filter(ENCODERS.ships, ENCODERS.names()), *filter(HEADS.ships, HEADS.names())])
def test_networks_are_the_same_but_for_their_numbers(name: str) -> None:
    def make() -> nn.Module:
        return build_encoder(name, (3, 32, 32), 512) if name in ENCODERS else HEADS.get(name)(512, 10)

    with build_on_meta():
        made = make()
    assert all(t.device.type == "meta" for t in made.state_dict().values())
    assert described(made) == described(make())


def test_drawing_gives_back_the_tensor() -> None:
    before = torch.get_rng_state()
    with build_on_meta():
        weight = torch.empty(2, 3)
        assert nn.init.normal_(weight) is weight and weight.normal_(0.0, 2.0) is weight
        assert nn.init.kaiming_normal_(weight) is weight and nn.init.normal_(tensor=weight) is weight
    assert weight.device.type == "meta" and torch.equal(torch.get_rng_state(), before)
    assert torch.ones(3).normal_().unique().numel() > 1, "outside, numbers are drawn"
