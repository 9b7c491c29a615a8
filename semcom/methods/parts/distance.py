"""The distance of a model in training from another one, and its inner product with a direction."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from semcom.engine.train.forward import StackedModel


def proximal(model: StackedModel, anchor: StackedModel) -> Tensor:
    """Compute ||w - anchor||^2 over all leaves in training, per client: `[k]`. The anchor gets no gradient."""
    return sum_of_squares({name: leaf - anchor.tensors[name].detach() for name, leaf in model.params.items()})


def inner_product(model: StackedModel, direction: Mapping[str, Tensor]) -> Tensor:
    """Compute <direction, w> over all leaves in training, per client: `[k]`. Its gradient is the direction."""
    first, *others = ((direction[name].detach() * leaf).flatten(1).sum(1) for name, leaf in model.params.items())
    return sum(others, first)


def sum_of_squares(tensors: dict[str, Tensor]) -> Tensor:
    """Sum the squares of all numbers of each client, `[k, ...]` by name -> `[k]`."""
    first, *others = (t.square().flatten(1).sum(1) for t in tensors.values())
    return sum(others, first)
