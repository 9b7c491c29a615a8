"""Networks and links of a user that draw numbers, remember, or look at other clients: one line as runs begin."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import semcom
from semcom import ChannelConfig, ModelConfig, PartitionConfig, RunConfig, TrainConfig
from semcom.channels import LINKS, Link
from semcom.models.registry import ENCODERS, HEADS
from semcom.models.stacks import for_stacks, stacked
from tests.refusals import refuses


def begin(chunk: int | str, **parts: str) -> None:
    """Train two clients for a round with an encoder, a head or a link."""
    channel = ChannelConfig(kind=parts.pop("kind", "awgn"))
    train, partition = TrainConfig(rounds=1, local_steps=1), PartitionConfig(options={"shots": 3})
    model = ModelConfig(features=8, **{"encoder": "cnn", **parts})
    semcom.run(
        RunConfig("fedavg", clients=2, channel=channel, model=model, train=train, partition=partition, chunk=chunk)
    )


class Layers(nn.Module):
    def __init__(self, inputs: int, outputs: int, deed: Callable[[nn.Module, Tensor], Tensor]) -> None:
        super().__init__()
        self.layers, self.deed = nn.Sequential(nn.Flatten(), nn.Linear(inputs, outputs)), deed
        self.generator, self.calls = torch.Generator().manual_seed(0), 0

    def forward(self, x: Tensor) -> Tensor:
        return self.deed(self, self.layers(x))


class Mixed(Layers):
    """The same, said to work on stacks."""


for_stacks(Mixed)


def count(module: Any, y: Tensor) -> Tensor:
    module.calls += 1
    return y + module.calls


def in_training(module: nn.Module, y: Tensor) -> Tensor:
    return y + torch.rand_like(y) if module.training else y


DRAWING: Mapping[str, Callable[[Any, Tensor], Tensor]] = {
    "torch.rand": lambda module, y: y + torch.rand(y.shape),
    "torch.randn_like": lambda module, y: y * torch.randn_like(y),
    "functional dropout": lambda module, y: nn.functional.dropout(y, 0.5),
    "in training alone": in_training,
    "a generator of its own": lambda module, y: y + torch.rand(y.shape, generator=module.generator),
    "NumPy": lambda module, y: y + float(np.random.default_rng().random()),
    "random": lambda module, y: y * random.random(),
    "it counts": count,
}


@pytest.mark.parametrize(("deed", "chunk"), [*((deed, 1) for deed in DRAWING), ("NumPy", 2), ("it counts", "auto")])
def test_an_encoder_that_draws_is_refused(deed: str, chunk: int | str, own_names: None) -> None:
    ENCODERS.register("mine")(lambda channels, features: Layers(1024, features, DRAWING[deed]))
    with refuses("model.encoder", "'mine' gives other numbers when it is called again"):
        begin(chunk, encoder="mine")


@pytest.mark.parametrize("deed", ["in training alone", "it counts"])
def test_a_head_that_draws_is_refused(deed: str, own_names: None) -> None:
    HEADS.register("mine")(lambda features, classes: Layers(features, classes, DRAWING[deed]))
    with refuses("model.head", "'mine' gives other numbers when it is called again"):
        begin(1, head="mine")


MIXING: Mapping[str, Callable[[Any, Tensor], Tensor]] = {
    "a mean over clients": lambda module, y: y - y.mean(0) if stacked() else y,
    "the other's output": lambda module, y: y.flip(0) if stacked() else y,
    "a norm of all": lambda module, y: y / y.norm() if stacked() else y / y.norm(),
}


@pytest.mark.parametrize("chunk", [1, 2])
@pytest.mark.parametrize("deed", MIXING)
def test_what_looks_at_other_clients_is_refused(deed: str, chunk: int, own_names: None) -> None:
    ENCODERS.register("mine")(lambda channels, features: Mixed(1024, features, MIXING[deed]))
    with refuses("model.encoder", "'mine' gives a client other numbers beside another one"):
        begin(chunk, encoder="mine")
    HEADS.register("mine")(lambda features, classes: Mixed(features, classes, MIXING[deed]))
    with refuses("model.head", "'mine' gives a client other numbers beside another one"):
        begin(chunk, head="mine")


def test_what_is_rounded_otherwise_in_a_stack_is_not_refused(own_names: None) -> None:
    """cuDNN rounds otherwise, and BatchNorm divides by a variance: seen on an H100, 1e-2 of the numbers in float32."""

    def round_otherwise(module: Any, y: Tensor) -> Tensor:
        return y * (1 + 1e5 * torch.finfo(y.dtype).eps) if stacked() else y

    ENCODERS.register("mine")(lambda channels, features: Mixed(1024, features, round_otherwise))
    begin(2, encoder="mine")


class Noise(Link):
    def gain(self, drawn: Mapping[str, Tensor]) -> Tensor:
        return torch.rand(drawn["noise"].shape).to(torch.complex64)


class Unkeyed(Link):
    def draw(self, sizes: Any, d: int, generator: Any, dtype: Any = torch.float32) -> dict[str, Tensor]:
        return {"noise": torch.randn(sum(sizes), d // 2, dtype=dtype.to_complex())}


class Remembers(Link):
    """Adds up what it has drawn."""

    def draw(self, sizes: Any, d: int, generator: Any, dtype: Any = torch.float32) -> dict[str, Tensor]:
        self.sum = getattr(self, "sum", 0) + super().draw(sizes, d, generator, dtype)["noise"]
        return {"noise": self.sum}


class Interferes(Link):
    """Has the other clients' noise in its own."""

    def gain(self, drawn: Mapping[str, Tensor]) -> Tensor:
        return 1 + drawn["noise"].sum(0, keepdim=True)


class Loudest(Link):
    """Scales by the loudest of all clients."""

    normalises = False

    def __call__(self, features: Tensor, *given: Any, **named: Any) -> Tensor:
        return super().__call__(features / features.abs().amax(), *given, **named)


class AtOnce(Link):
    """Draws several clients from the generator of the first."""

    def draw_all(self, clients: Any, sizes: Any, d: int, generators: Any, dtype: Any = None, device: Any = None) -> Any:
        return [self.draw(own, d, generators[0], dtype) for own in sizes]


AGAIN, BESIDE = "when it is called again on the same; a link draws in `draw` alone", "beside another one than alone"


@pytest.mark.parametrize("chunk", [1, 2])
def test_a_link_that_draws_or_looks_at_other_clients_is_refused(chunk: int, own_names: None) -> None:
    for link in (Noise, Unkeyed, Remembers, Interferes, Loudest, AtOnce)[chunk - 1 :: 2]:
        LINKS.register(link.__name__)(link)
        line = AGAIN if link in (Noise, Unkeyed, Remembers) else BESIDE
        with refuses("channel.kind", f"other numbers {line}"):
            begin(chunk, kind=link.__name__)


def test_the_checks_move_no_random_state(own_names: None) -> None:
    """A decent network and link of a user's give the numbers of those that ship, and leave the generators alone."""
    from semcom.channels.fading import AWGN
    from semcom.models.encoders import cnn

    ENCODERS.register("mine")(cnn)
    LINKS.register("own-awgn")(type("Own", (AWGN,), {}))
    before = torch.get_rng_state(), np.random.get_state()[1].tolist(), random.getstate()
    begin(2, encoder="mine", kind="own-awgn")
    after = torch.get_rng_state(), np.random.get_state()[1].tolist(), random.getstate()
    assert torch.equal(before[0], after[0]) and before[1:] == after[1:]


@pytest.mark.parametrize("layers", ["batchnorm", "dropout", "groupnorm"])
def test_networks_that_keep_the_rules_are_taken(layers: str, own_names: None) -> None:
    kinds: dict[str, Callable[[], nn.Module]] = {
        "batchnorm": lambda: nn.BatchNorm2d(3),
        "dropout": lambda: nn.Dropout2d(0.5),
        "groupnorm": lambda: nn.GroupNorm(1, 3),
    }

    def encoder(channels: int, features: int) -> nn.Module:
        body = nn.Sequential(nn.Conv2d(channels, 3, 5, 4), kinds[layers](), nn.ReLU(), nn.Flatten())
        return nn.Sequential(body, nn.Linear(147, features), nn.Dropout(0.3))

    ENCODERS.register("mine")(encoder)
    begin(2, encoder="mine")
