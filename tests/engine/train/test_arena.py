"""Fits share an arena only if Python does the same in their steps."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from semcom.engine.train.arena import Unknown, describe, describe_inputs
from semcom.engine.train.descent import Optimizer
from semcom.engine.train.phase import Phase, Take


@dataclass(frozen=True)
class Hyper:
    lam: float = 0.5


class Method:
    def __init__(self, lam: float, **more: Any) -> None:
        self.hyper, self.parts = Hyper(lam), ("encoder.",)
        vars(self).update(more)

    def objective(self, loss: float) -> float:
        return loss * self.hyper.lam


def scale(by: Any) -> Callable[[float], Any]:
    return lambda loss: loss * by


PHASE = Phase("head", epochs=(1, 2), takes=(Take("again", same=True),))


@pytest.mark.parametrize(
    ("one", "other", "alike"),
    [
        (Method(0.5).objective, Method(0.5).objective, True),
        (Method(0.5).objective, Method(0.25).objective, False),
        (Method(0.5).objective, Method(0.5, warm=True).objective, False),
        (scale(2), scale(2), True),
        (scale(2), scale(2.0), False),
        (scale(2), scale(True), False),
        (scale(2), lambda loss: loss * 2, False),
        (scale(Hyper()), scale(Hyper()), True),
        (scale(scale(2)), scale(scale(3)), False),
        (Optimizer(lr=(0.1, 0.2)), Optimizer(lr=(0.1, 0.2)), True),
        (Optimizer(), Optimizer().scaled(0.9), False),
        (PHASE, replace(PHASE), True),
        (PHASE, replace(PHASE, uniforms=1), False),
    ],
)
def test_what_python_does_is_described(one: Any, other: Any, alike: bool) -> None:
    assert (describe(one) == describe(other)) == alike


@pytest.mark.parametrize(
    "value",
    [
        scale(torch.ones(1)),
        scale({"w": torch.ones(1)}),
        scale(torch.nn.Linear(1, 1)),
        scale(SimpleNamespace(world=SimpleNamespace(round=1))),
        Method(0.5, state=torch.ones(1)).objective,
        torch.ones(1),
    ],
)
def test_what_may_change_from_round_to_round_is_not_described(value: Any) -> None:
    with pytest.raises(Unknown):
        describe(value)


def test_numbers_on_the_host_are_read_by_a_recorded_step() -> None:
    def inputs(lam: float, w: Tensor) -> dict[str, Any]:
        return {"common": {"lam": torch.tensor(lam)}, "carry": {"w": w}}

    here = torch.empty(2, 3, device="meta")  # stands in for a GPU
    assert describe_inputs(inputs(0.5, here)) == describe_inputs(inputs(0.5, here.clone()))
    assert describe_inputs(inputs(0.5, here)) != describe_inputs(inputs(0.25, here))
    assert describe_inputs(inputs(0.5, here)) != describe_inputs(inputs(0.5, here.T))
    with pytest.raises(Unknown):
        describe_inputs(inputs(0.5, torch.ones(2, 3)))
