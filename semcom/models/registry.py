"""The encoders and heads by name; an entry is imported when it is first asked for."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeVar

from channels.registry import Registry
from semcom.config import ConfigError
from semcom.registry import find

if TYPE_CHECKING:
    from torch import nn

E = TypeVar("E", bound=Callable[..., object])

ENCODERS: Registry[Callable[..., nn.Module]] = Registry(
    "encoder",
    {
        "dcgan": "semcom.models.encoders:dcgan",
        "dcgan-wide": "semcom.models.encoders:dcgan_wide",
        "dcgan-narrow": "semcom.models.encoders:dcgan_narrow",
        "dcgan-narrow-groupnorm": "semcom.models.encoders:dcgan_narrow_groupnorm",
        "dcgan-deep": "semcom.models.encoders:dcgan_deep",
        "cnn": "semcom.models.encoders:cnn",
        "cnn-dropout": "semcom.models.encoders:cnn_dropout",
        "cnn-linear": "semcom.models.encoders:cnn_linear",
        "cnn-linear-dropout": "semcom.models.encoders:cnn_linear_dropout",
        "lenet": "semcom.models.encoders:lenet",
        "conv4": "semcom.models.encoders:conv4",
        "resnet18": "semcom.models.resnet:resnet18",
        "resnet34": "semcom.models.resnet:resnet34",
        "resnet18-pooled": "semcom.models.resnet:resnet18_pooled",
        "resnet34-pooled": "semcom.models.resnet:resnet34_pooled",
        "deepjscc": "semcom.models.deepjscc:encoder",
        "mlp": "semcom.models.encoders:mlp",
        "mobilenet": "semcom.models.mobilenet:mobilenet",
        "mobilenet-v1": "semcom.models.mobilenet:mobilenet_v1",
    },
)
"""Semantic encoders: name -> function of (input channels, feature dimension), and of `size` if it depends on it; for
arrays of any kind, of (`shape` of an input, feature dimension)."""

HEADS: Registry[Callable[..., nn.Module]] = Registry(
    "head",
    {
        "linear": "semcom.models.heads:linear",
        "mlp": "semcom.models.heads:mlp",
        "deepjscc": "semcom.models.deepjscc:decoder",
        "dcgan": "semcom.models.heads:dcgan",
    },
)
"""Semantic decoders: name -> function of (feature dimension, classes), or (feature dimension, `shape` of an answer)."""

MARK = "ends_in"
"""Attribute of an encoder that has features of its own: their number."""


def ends_in(features: int) -> Callable[[E], E]:
    """Return a decorator for an encoder that has d features of its own: no layer takes them to another number."""

    def mark(encoder: E) -> E:
        setattr(encoder, MARK, features)
        return encoder

    return mark


def own_features(encoder: Callable[..., object]) -> int | None:
    """Return the number of features that an encoder ends in, or None if it can give any."""
    return getattr(encoder, MARK, None)


def check_features(names: Sequence[str], features: int) -> None:
    """Check that d is what the encoders of a run give.

    Raises:
        ConfigError: an encoder is unknown, one of them ends in another number, or two of them in different ones.
    """
    ends = {name: own for name in names if (own := own_features(find(ENCODERS, name, "model.encoder"))) is not None}
    if len(set(ends.values())) > 1:
        given = " and ".join(f"{name} {own}" for name, own in ends.items())
        raise ConfigError(f"model.encoder: the clients need one number of features; these give: {given}")
    for name, own in ends.items():
        if own != features:
            raise ConfigError(f"model.features: {features} is not the {own} features of {name}; give {own}")


def build_head(name: str, features: int, shape: tuple[int, ...]) -> nn.Module:
    """Return a new head `[b, features] -> [b, ...]`; one that takes `shape` is told it, others its product.

    Raises ValueError if nothing is called so, and whatever the head's function raises.
    """
    build = HEADS.get(name)
    return build(features, shape if "shape" in inspect.signature(build).parameters else math.prod(shape))


def build_encoder(name: str, shape: Sequence[int], features: int, pictured: bool = True) -> nn.Module:
    """Return a new encoder `[b, *shape] -> [b, features]`.

    One that takes `shape` is told it; others take images, `[b, channels, size, size]`, and are told the channels, and
    `size` where they take it.

    Raises ValueError if nothing is called so, ConfigError if it takes images and these are none (`pictured`), and
    whatever the encoder's function raises.
    """
    build = ENCODERS.get(name)
    takes = inspect.signature(build).parameters
    if "shape" in takes:
        return build(tuple(shape), features)
    if not pictured:
        given = f"the data are arrays of {list(shape)}"
        raise ConfigError(f"model.encoder: {name!r} takes images, and {given}; give mlp, or an encoder of `shape`")
    return build(shape[0], features, **({"size": shape[-1]} if "size" in takes else {}))
