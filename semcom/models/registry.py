"""The encoders and heads by name. An entry is imported on first use."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeVar

from semcom.channels.registry import Registry
from semcom.config import ConfigError
from semcom.registry import find_entry

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
        "resnet18-imagenet": "semcom.models.resnet:resnet18_imagenet",
        "resnet34-imagenet": "semcom.models.resnet:resnet34_imagenet",
        "deepjscc": "semcom.models.deepjscc:deepjscc_encoder",
        "mlp": "semcom.models.encoders:mlp",
        "mobilenet": "semcom.models.mobilenet:mobilenet",
        "mobilenet-v1": "semcom.models.mobilenet:mobilenet_v1",
    },
)
"""Semantic encoders: name -> function of (input channels, feature dimension), with `size` if it depends on it. For
arrays of any kind, function of (`shape` of an input, feature dimension)."""

HEADS: Registry[Callable[..., nn.Module]] = Registry(
    "head",
    {
        "linear": "semcom.models.heads:linear_head",
        "mlp": "semcom.models.heads:mlp_head",
        "deepjscc": "semcom.models.deepjscc:deepjscc_decoder",
        "dcgan": "semcom.models.heads:dcgan_head",
    },
)
"""Semantic decoders: name -> function of (feature dimension, classes), or (feature dimension, `shape` of an answer)."""

MARK = "ends_in"
"""Attribute of an encoder that has features of its own: their number."""


def ends_in(features: int) -> Callable[[E], E]:
    """Return a decorator for an encoder with a fixed d, which has no layer to another number of features."""

    def mark(encoder: E) -> E:
        setattr(encoder, MARK, features)
        return encoder

    return mark


def own_features(encoder: Callable[..., object]) -> int | None:
    """Look up the fixed number of features of an encoder, or None if it can give any."""
    return getattr(encoder, MARK, None)


def check_features(names: Sequence[str], features: int) -> None:
    """Check d against the encoders of a run.

    Raises:
        ConfigError: an encoder is unknown, an encoder ends in another number, or two encoders end in different numbers.
    """
    ends = {
        name: own for name in names if (own := own_features(find_entry(ENCODERS, name, "model.encoder"))) is not None
    }
    if len(set(ends.values())) > 1:
        given = " and ".join(f"{name} {own}" for name, own in ends.items())
        raise ConfigError(f"model.encoder: the clients need one number of features; these give: {given}")
    for name, own in ends.items():
        if own != features:
            raise ConfigError(f"model.features: {features} is not the {own} features of {name}; give {own}")


def build_head(name: str, features: int, shape: tuple[int, ...]) -> nn.Module:
    """Build a new head `[b, features] -> [b, ...]`, from the `shape` of an answer if it takes it, else from its size.

    Raises ValueError for an unknown head, and whatever the head's function raises.
    """
    build = HEADS.get(name)
    return build(features, shape if "shape" in inspect.signature(build).parameters else math.prod(shape))


def build_encoder(name: str, shape: Sequence[int], features: int, pictured: bool = True) -> nn.Module:
    """Build a new encoder `[b, *shape] -> [b, features]`.

    Its function gets `shape` if it takes it. Other encoders take images, `[b, channels, size, size]`, and get the
    channels, and `size` if they take it.

    Raises ValueError for an unknown encoder, ConfigError for an encoder of images on other data (`pictured`), and
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
