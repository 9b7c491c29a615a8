"""Tensors of a network that no training changes: those of parameters that take no gradients."""

from __future__ import annotations

from functools import lru_cache

from torch import nn


@lru_cache(maxsize=1024)
def is_frozen(module: nn.Module) -> bool:
    """Check whether a module has parameters of which none takes gradients."""
    takes = [p.requires_grad for p in module.parameters()]
    return bool(takes) and not any(takes)


@lru_cache(maxsize=256)
def find_frozen(network: nn.Module) -> frozenset[str]:
    """Find the names of a network's frozen tensors: such parameters, and all tensors of a module that is frozen.

    So BatchNorm's statistics are frozen with its weights, or with the block around it.
    """
    found = {name for name, p in network.named_parameters() if not p.requires_grad}
    for path, module in network.named_modules():
        if is_frozen(module):
            found.update(f"{path}.{name}".lstrip(".") for name in module.state_dict())
    return frozenset(found)
