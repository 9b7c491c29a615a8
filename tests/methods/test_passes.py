"""Cost of a round of each method: samples that pass encoders forward and backward, counted and by hand."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import pytest
from torch import Tensor

from semcom.engine.train.forward import Batch, StackedModel
from semcom.methods.registry import METHODS
from tests.worlds import world

SIZES = (10, 5, 5)
"""Samples of the clients. Chunks pad their last batches, and four fifths of each are a whole number."""

COSTS: dict[str, tuple[float, float]] = {
    **dict.fromkeys(("local", "fedavg", "fedavg_ft", "fedprox", "fedprox_ft", "fedamp"), (1, 1)),
    **dict.fromkeys(("scaffold", "feddyn", "fedbn", "fedrod", "feddbe"), (1, 1)),
    "apfl": (2, 2),  # w, and the mixture
    **dict.fromkeys(("fedper", "lg_fedavg", "fedbabu", "fedproto", "fedcl"), (1, 1)),
    "moon": (3, 1),  # the global and the previous model's features
    "ditto": (2, 2),  # two models
    "pfedme": (5, 5),  # inner steps
    "perfedavg": (2, 2),  # inner and outer step
    "fedrep": (11, 1),  # ten epochs of the head
    "repper": (2, 2),  # two views of each image
    "fedala": (1.8, 1),  # W learns from 80 %, of the head's tensors alone
    **dict.fromkeys(("fedgh", "fedcosr", "fedcrl"), (2, 1)),  # prototypes
    "fedcrc": (3, 1),  # two predictors
    "fedpac": (4, 1),  # statistics, an epoch of the head, prototypes
}
"""Method -> passes forward and backward per sample, with one local epoch and the default hyperparameters."""

OTHERS: list[tuple[str, dict[str, Any], tuple[float, float]]] = [
    ("fedavg", {"train": {"local_epochs": 3}}, (3, 3)),
    ("pfedme", {"hyper": {"inner_steps": 2}}, (2, 2)),
    ("perfedavg", {"hyper": {"variant": "hf"}}, (4, 4)),
    ("fedrep", {"hyper": {"head_epochs": 2}, "train": {"local_epochs": 2}}, (4, 2)),
    ("fedpac", {"hyper": {"head_epochs": 0}}, (3, 1)),
    ("fedproto", {"hyper": {"source": "pass"}}, (2, 1)),
    ("fedala", {"hyper": {"p": 0}}, (1, 1)),
    ("fedala", {"hyper": {"eta": 0.0}}, (1, 1)),  # W stands still
    ("fedala", {"hyper": {"p": 6}}, (1.8, 1.8)),  # W of every tensor: it needs the encoder's gradients
    ("fedcrc", {"train": {"local_epochs": 2}}, (5, 2)),
]
"""The same with other settings."""


@contextmanager
def counted() -> Iterator[dict[str, int]]:
    """Count samples without padding that pass encoders `forward`, and gradients that pass them `backward`."""
    passes, encode = {"forward": 0, "backward": 0}, StackedModel.encode

    def counting(model: StackedModel, batch: Batch) -> Tensor:
        features, samples = encode(model, batch), int(batch.count.sum())
        passes["forward"] += samples

        def came_back(gradient: Tensor) -> None:
            passes["backward"] += samples

        if features.requires_grad:
            features.register_hook(came_back)
        return features

    with patch.object(StackedModel, "encode", counting):
        yield passes


def cost(name: str, **overrides: Any) -> tuple[float, float]:
    """Count passes per sample in the second round, or in FedALA's third, after W's long learning."""
    rounds = 3 if name == "fedala" else 2
    here = world(name, sizes=SIZES, **overrides)
    method = METHODS.get(name)(here.config.hyper)
    state = method.setup(here)
    for r in range(1, rounds + 1):
        here.session.tally.begin(r)
        with counted() as passes:
            state = method.round(state, here)
    return passes["forward"] / sum(SIZES), passes["backward"] / sum(SIZES)


def test_the_table_names_every_method() -> None:
    assert COSTS.keys() == {name for name in METHODS.names() if not name.startswith("test-")}


@pytest.mark.parametrize("method", COSTS)
def test_passes_by_hand(method: str) -> None:
    assert cost(method) == COSTS[method]


@pytest.mark.parametrize(("method", "overrides", "wanted"), OTHERS)
def test_passes_with_other_settings_by_hand(
    method: str, overrides: dict[str, Any], wanted: tuple[float, float]
) -> None:
    assert cost(method, **overrides) == wanted


@pytest.mark.parametrize("method", ["moon", "fedala", "repper", "fedpac"])
def test_padding_does_not_count(method: str) -> None:
    """Three clients at once, the smaller ones padded in their last batch."""
    assert cost(method, chunk=3, train={"batch_size": 4}) == COSTS[method]


def test_participants_alone_count() -> None:
    """One of three clients, and not the others."""
    forward, backward = cost("fedavg", train={"participation": 0.3})
    assert forward == backward and forward * sum(SIZES) in SIZES
