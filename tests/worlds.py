"""Tiny worlds: few images, small networks, float64, clients that own different numbers of samples."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from semcom.config import ChannelConfig, PartitionConfig, Resolved, RunConfig
from semcom.data.dataset import Dataset
from semcom.data.federation import Federation, Ragged
from semcom.data.registry import DATASETS
from semcom.engine.air.links import build_link
from semcom.engine.store.population import Population
from semcom.engine.train.view import View, count_confusion
from semcom.engine.world import World
from semcom.methods.fedavg import FedAvg
from semcom.methods.local import Local
from semcom.methods.registry import METHODS
from semcom.models.registry import ENCODERS
from semcom.runs.request.resolve import resolve


@ENCODERS.register("test-conv")
def conv(channels: int, features: int, width: int = 3) -> nn.Module:
    """Conv + BatchNorm + Conv on `[b, channels, 8, 8]`."""
    return nn.Sequential(
        nn.Conv2d(channels, width, 4, 2, 1, bias=False),
        nn.BatchNorm2d(width),
        nn.LeakyReLU(0.2),
        nn.Conv2d(width, features, 4, bias=False),
        nn.Flatten(),
    )


@ENCODERS.register("test-conv-wide")
def conv_wide(channels: int, features: int) -> nn.Module:
    """Another architecture with the same features."""
    return conv(channels, features, 5)


@ENCODERS.register("test-linear")
def linear(channels: int, features: int) -> nn.Module:
    """One matrix for images of two numbers; no BatchNorm."""
    return nn.Sequential(nn.Flatten(), nn.Linear(2 * channels, features, bias=False))


@ENCODERS.register("test-patches")
def patches(channels: int, features: int) -> nn.Module:
    """Conv + BatchNorm + Conv on `[b, channels, 32, 32]`, the size of all images in a whole run."""
    return nn.Sequential(
        nn.Conv2d(channels, 3, 8, 8, bias=False),
        nn.BatchNorm2d(3),
        nn.LeakyReLU(0.2),
        nn.Conv2d(3, features, 4, bias=False),
        nn.Flatten(),
    )


@ENCODERS.register("test-deep")
def deep(channels: int, features: int) -> nn.Module:
    """Two convolutions on `[b, channels, 32, 32]`, BatchNorm behind the second, whose channels may lie last."""
    return nn.Sequential(
        nn.Conv2d(channels, 3, 4, 4, bias=False),
        nn.LeakyReLU(0.2, inplace=True),
        nn.Conv2d(3, 4, 4, 2, 1, bias=False),
        nn.BatchNorm2d(4),
        nn.LeakyReLU(0.2, inplace=True),
        nn.Conv2d(4, features, 4, bias=False),
        nn.Flatten(),
    )


@ENCODERS.register("test-deep-dropout")
def deep_dropout(channels: int, features: int) -> nn.Module:
    """The same with dropout of channels and of features."""
    layers = list(deep(channels, features).children())
    return nn.Sequential(*layers[:2], nn.Dropout2d(0.2), *layers[2:], nn.Dropout(0.3))


class Whole(nn.Module):
    """A network with a `forward` of its own, which the engine leaves to vmap."""

    def __init__(self, layers: nn.Module) -> None:
        super().__init__()
        self.layers = layers

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x)


@ENCODERS.register("test-deep-vmap")
def deep_vmap(channels: int, features: int) -> nn.Module:
    """The same in vmap."""
    return Whole(deep(channels, features))


@ENCODERS.register("test-pool")
def pool(channels: int, features: int) -> nn.Module:
    """Convolution with a bias, GroupNorm, pooling and a layer with a bias on `[b, channels, 32, 32]`."""
    norm = nn.GroupNorm(2, 4)
    layers = [nn.Conv2d(channels, 4, 5, 4), norm, nn.MaxPool2d(2), nn.ReLU(inplace=True), nn.Flatten()]
    return nn.Sequential(*layers, nn.Linear(36, features))


@DATASETS.register("test-bars")
def bars(root: str | None) -> Dataset:
    """Four classes of 8x8 images, each with one bright bar of its own on noise; 100 to train, 60 to test."""
    rng = np.random.default_rng(0)
    labels = np.arange(160) % 4
    images = rng.integers(0, 128, (160, 1, 8, 8))
    images[np.arange(160), 0, 2 * labels] += 128
    return Dataset("test-bars", images.astype(np.uint8), labels.astype(np.int64), 100, ("a", "b", "c", "d"))


@ENCODERS.register("test-dropout")
def dropout(channels: int, features: int) -> nn.Module:
    """A layer that the engine does not admit."""
    return nn.Sequential(conv(channels, features), nn.AlphaDropout())


@METHODS.register("test-split")
class Everything(Local):
    """Trains through the link and exchanges more than that: a method on which every setting has an effect."""

    split = True
    exchanges = True


@METHODS.register("test-warm-up")
class WarmUp(FedAvg):
    """FedAvg for two rounds, from which each client goes on alone: all of its State changes its shape."""

    @dataclasses.dataclass(frozen=True)
    class State(FedAvg.State):
        """Beside the models: the rounds so far, and the models of the last round's clients."""

        seen: Tensor
        latest: Population

    def setup(self, world: World) -> State:
        """Share everything."""
        model = world.population(shared=self.averages)
        return self.State(model, world.zeros(0), model)

    def round(self, state: State, world: World) -> State:
        """Average in two rounds, and in none after them."""
        if world.round <= 2:
            model = super().round(state, world).model
        else:
            model = state.model.spread("") if world.round == 3 else state.model
            model = model.put(world.fit(model.select(world.sample()), self.objective).models)
        seen = torch.cat([state.seen, world.zeros(1) + world.round])
        return self.State(model, seen, model.select(world.sample()))

    def views(self, state: State, world: World) -> dict[str, View]:
        """Evaluate each client's model."""
        return {"personal": View(state.model)}


SECTIONS: Mapping[str, Mapping[str, Any]] = {
    "data": {},
    "partition": {},
    "model": {"features": 4},
    "channel": {},
    "air": {},
    "train": {"batch_size": 2, "lr": 0.01, "rounds": 2, "eval_every": 1},
}
"""What tests set unless they say otherwise."""


def section(cls: type, **values: Any) -> Any:
    """A section of a configuration from flat values: those that are no field of it are options of its owner."""
    own = {f.name for f in dataclasses.fields(cls)}
    options = {name: value for name, value in values.items() if name not in own}
    fields = {name: value for name, value in values.items() if name in own}
    return cls(**fields, options=options) if options else cls(**fields)


def divided(**values: Any) -> PartitionConfig:
    """A partition from flat values."""
    return section(PartitionConfig, **values)


def linked(**values: Any) -> ChannelConfig:
    """A channel from flat values."""
    return section(ChannelConfig, **values)


def used(method: str, fields: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a schedule that a method uses."""
    unused = METHODS.get(method).unused if method in METHODS else ()  # a plug-in's is not known yet
    return {name: value for name, value in fields.items() if f"train.{name}" not in unused}


def settings(method: str, encoder: str, clients: int, **overrides: Any) -> Resolved:
    """A resolved configuration; a section is given as a dictionary of its fields: `train={"lr": 0.1}`."""
    base = RunConfig(method=method, clients=clients, device="cpu", precision="float64")
    usual = {**SECTIONS, "train": used(method, SECTIONS["train"])}
    sections = {
        name: section(type(getattr(base, name)), **{**defaults, **overrides.pop(name, {})})
        for name, defaults in usual.items()
    }
    if method in METHODS and METHODS.get(method).finishing is not None:
        overrides["finish"] = {"epochs": 3, **overrides.get("finish", {})}
    sections["model"] = type(base.model)(**{**vars(sections["model"]), "encoder": encoder})
    return resolve(RunConfig(**{**vars(base), **sections, **overrides}))


def request(method: str = "fedavg", **overrides: Any) -> Resolved:
    """A whole run on `test-bars` in a moment: four clients of different sizes, last batches smaller, 6 rounds."""
    overrides["data"] = {"name": "test-bars"}
    split = overrides.pop("partition", {})
    usual = {"ways": 2, "shots": 5, "shots_spread": 3} if split.get("kind", "shots") == "shots" else {}
    overrides["partition"] = {**usual, **split}
    overrides["train"] = {"rounds": 6, "batch_size": 4, **overrides.get("train", {})}
    return settings(method, overrides.pop("encoder", "test-patches"), overrides.pop("clients", 4), **overrides)


def ragged(sizes: Sequence[int], start: int = 0) -> Ragged:
    """Consecutive images, `sizes[k]` for client k."""
    offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    return Ragged(torch.arange(start, start + int(offsets[-1])), offsets)


def federation(images: Tensor, labels: Tensor, train: Ragged, test: Ragged, classes: int) -> Federation:
    """A federation of these images; no validation part."""
    owned = np.zeros((len(train), classes), dtype=bool)
    for k in range(len(train)):
        owned[k, labels[train[k]].numpy()] = True
    names = tuple(f"class {c}" for c in range(classes))
    return Federation(images, labels, train, test, ragged([0] * len(train)), names, owned)


def reorder(table: Ragged, order: Sequence[int]) -> Ragged:
    """Client i gets the list of client order[i]."""
    lists = [table[k] for k in order]
    return dataclasses.replace(ragged([len(each) for each in lists]), flat=torch.cat(lists))


def random_federation(sizes: Sequence[int], tests: Sequence[int] | None = None, classes: int = 3) -> Federation:
    """Random 8x8 images that differ from client to client."""
    tests = tests or [n + 1 for n in reversed(sizes)]
    total, generator = sum(sizes) + sum(tests), torch.Generator().manual_seed(0)
    images = torch.randint(0, 256, (total, 1, 8, 8), generator=generator, dtype=torch.uint8)
    labels = torch.randint(0, classes, (total,), generator=generator)
    return federation(images, labels, ragged(sizes), ragged(tests, sum(sizes)), classes)


def world(
    method: str = "fedavg",
    sizes: Sequence[int] = (7, 5, 3),
    classes: int = 3,
    encoder: str = "test-conv",
    split: bool | None = None,
    tests: Sequence[int] | None = None,
    data: Federation | None = None,
    **overrides: Any,
) -> World:
    """A world of `len(sizes)` clients with fixed random images, in round 1.

    Args:
        method: whose hyperparameters are resolved.
        sizes: training samples per client.
        classes: C.
        encoder: name, or a comma list.
        split: whether training runs through the link (None: as the method declares).
        tests: test samples per client (None: the training sizes reversed, plus one).
        data: a federation in place of the random one.
        overrides: of the configuration, a section as a dictionary: `train={"lr": 0.1}, chunk=3, hyper={"lam": 1.0}`.
    """
    data = data or random_federation(sizes, tests, classes)
    config = settings(method, encoder, len(data.train), **overrides)
    split = METHODS.get(method).split if split is None else split
    device = torch.device(config.device)
    made = World(config, data.to(device), device, build_link(config)[0], split=split)
    made.session.tally.begin(1)
    return made


def toy(
    images: Sequence[Sequence[Sequence[int]]],
    labels: Sequence[Sequence[int]],
    method: str = "fedavg",
    classes: int = 2,
    split: bool | None = None,
    **overrides: Any,
) -> World:
    """A world for numbers worked by hand: two-pixel images (byte 0 is -1, byte 255 is 1), a linear encoder 2 -> 2.

    `images[k]` and `labels[k]` are client k's, for training and for testing. The link is ideal unless overridden: it
    still scales features to mean square 1. Full batches of up to 50 samples.
    """
    flat = torch.tensor([pixels for mine in images for pixels in mine], dtype=torch.uint8).view(-1, 1, 1, 2)
    own = ragged([len(mine) for mine in images])
    data = federation(flat, torch.tensor([c for mine in labels for c in mine]), own, own, classes)
    overrides["channel"] = {"kind": "ideal", **overrides.get("channel", {})}
    overrides["model"] = {"features": 2, **overrides.get("model", {})}
    overrides["train"] = {"batch_size": 50, **overrides.get("train", {})}
    return world(method, encoder="test-linear", split=split, data=data, **overrides)


def mapped(pop: Population, fn: Callable[[str, Tensor], Tensor]) -> Population:
    """The population with `fn(name, tensor)` in place of each tensor."""
    changed = ({name: fn(name, t) for name, t in c.tensors.items()} for c in pop.stacks())
    return Population(tuple(dataclasses.replace(c, tensors=ts) for c, ts in zip(pop.stacks(), changed, strict=True)))


def tensors(pop: Population) -> dict[str, Tensor]:
    """All tensors of a population by "cohort/name"."""
    return {f"{i}/{name}": t for i, c in enumerate(pop.cohorts) for name, t in c.tensors.items()}


def gap(one: Population, other: Population) -> float:
    """Largest absolute difference between the tensors of two populations of the same structure."""
    a, b = tensors(one), tensors(other)
    assert a.keys() == b.keys()
    assert all(np.array_equal(x.ids, y.ids) for x, y in zip(one.cohorts, other.cohorts, strict=True))
    return max(float((a[n] - b[n]).abs().max()) for n in a)


def client(pop: Population, k: int) -> dict[str, Tensor]:
    """The tensors of one client's model, without the client axis."""
    cohort = pop.select(np.array([k])).cohorts[0]
    return {name: t[0] for name, t in cohort.tensors.items()}


def confusion(w: World, view: View, snr_db: float | None = None) -> Tensor:
    """True and predicted classes of the clients' test images, `[n, C, C]`."""
    return count_confusion(w.session, {"": view}, snr_db, w.session.draws.federation.test)[""]


def plain(tensors: Mapping[str, Tensor], x: Tensor, link: str = "ideal") -> Tensor:
    """Logits of one client's `test-patches` or `test-conv` model over the link ideal or none, in torch's own words."""
    y = plain_features(tensors, x)
    y = y / y.square().mean(1, keepdim=True).sqrt() if link == "ideal" else y
    return y @ tensors["head.0.weight"].T + tensors["head.0.bias"]


def plain_features(tensors: Mapping[str, Tensor], x: Tensor) -> Tensor:
    """Features of one client's `test-patches` or `test-conv` encoder before any link, in torch's own words."""
    stride = 8 if tensors["encoder.0.weight"].shape[-1] == 8 else 2
    y = functional.conv2d(x, tensors["encoder.0.weight"], stride=stride, padding=0 if stride == 8 else 1)
    mean, var, scale, shift = (tensors[f"encoder.1.{n}"] for n in ("running_mean", "running_var", "weight", "bias"))
    y = functional.leaky_relu(functional.batch_norm(y, mean, var, scale, shift), 0.2)
    return functional.conv2d(y, tensors["encoder.3.weight"]).flatten(1)
