"""Shared by the tests of every arm: a toy federation, runs of a few rounds, comparisons of states."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from semcom.engine.store.population import Population
from semcom.engine.train.view import View
from semcom.engine.world import World
from semcom.methods.base import Method
from semcom.methods.registry import METHODS
from tests.methods.by_hand import Toy
from tests.worlds import client, toy, used, world

ARMS = [name for name in METHODS.names() if not name.startswith("test-")]
"""The methods of the registry."""

IMAGES = [[[255, 0], [255, 102], [0, 255]], [[102, 255], [0, 51]]]
LABELS = [[0, 0, 1], [1, 0]]
"""Two clients with three and two images of two pixels."""

X = [np.array(mine) / 127.5 - 1 for mine in IMAGES]
Y = [np.array(mine) for mine in LABELS]


def toy_world(method: str, lr: float = 0.5, **overrides: Any) -> World:
    """The two clients in a world with plain SGD and full batches."""
    overrides["train"] = {**used(method, {"optimizer": "sgd", "lr": lr}), **overrides.get("train", {})}
    return toy(IMAGES, LABELS, method, **overrides)


def rounds(world: World, method: Method | None = None, n: int = 1, first: int = 1) -> list[Any]:
    """The states before and after each of n rounds, of which `first` is the first that has clients."""
    method = method or METHODS.get(world.config.method)(world.config.hyper)
    states = [method.setup(world)]
    for r in range(first, first + n):
        world.session.tally.begin(r)
        states.append(method.round(states[-1], world))
    return states


def ended(world: World, method: Method | None = None, n: int = 1) -> tuple[Any, dict[str, View]]:
    """Run n rounds and return the State with the evaluated result, after the method's last stage, if it has one."""
    method = method or METHODS.get(world.config.method)(world.config.hyper)
    state = rounds(world, method, n)[-1]
    world.session.tally.begin(n + 1)
    return state, method.finish(state, world) or method.views(state, world)


def compare_noise(states: Sequence[Any], kept: Callable[[Any], Population]) -> float:
    """The power by which what the base station keeps misses the mean of `own`, over that of all changes of `own`."""
    missed = sent = 0.0
    for name in states[-1].own.named():
        own = torch.stack([state.own.named()[name] for state in states])
        missed += float((kept(states[-1]).named()[name][0] - own[-1].mean(0)).square().sum())
        sent += float(own.diff(dim=0).square().sum())
    return missed / sent


def play(method: str, n: int = 2, **overrides: Any) -> Any:
    """The last state of n rounds on random images: three unequal clients, BatchNorm, noise both ways."""
    return rounds(world(method, **{"sizes": (3, 2, 1), **overrides}), n=n)[-1]


def as_toy(pop: Population, k: int) -> Toy:
    """A client's model of the toy world in NumPy."""
    t = {name: value.numpy() for name, value in client(pop, k).items()}
    return Toy(t["encoder.1.weight"], t["head.0.weight"], t["head.0.bias"])


def toys(pop: Population) -> list[Toy]:
    """Both clients' models."""
    return [as_toy(pop, k) for k in (0, 1)]


def assert_toy(got: Toy, want: Toy) -> None:
    """Equal up to rounding in float64."""
    for part in ("W", "V", "b"):
        np.testing.assert_allclose(getattr(got, part), getattr(want, part), rtol=0, atol=1e-12)


def assert_toys(pop: Population, want: Toy | list[Toy]) -> None:
    """Both clients have one model, or each its own."""
    for k, got in enumerate(toys(pop)):
        assert_toy(got, want[k] if isinstance(want, list) else want)


def fields(state: Any) -> dict[str, list[Tensor]]:
    """The tensors of a State by field."""
    return {f.name: tensors_of(getattr(state, f.name)) for f in dataclasses.fields(state)}


def tensors_of(value: Any) -> list[Tensor]:
    """List the tensors of a field: a tensor, a population, or a dataclass of these."""
    if isinstance(value, Population):
        return list(value.tensors())
    return [t for ts in fields(value).values() for t in ts] if dataclasses.is_dataclass(value) else [value]


def flat(state: Any) -> Tensor:
    """Everything in a State as one vector."""
    return torch.cat([t.double().flatten() for ts in fields(state).values() for t in ts])


def storages(tensors: list[Tensor]) -> set[int]:
    """Addresses of the memory behind tensors."""
    return {t.untyped_storage().data_ptr() for t in tensors if t.numel()}
