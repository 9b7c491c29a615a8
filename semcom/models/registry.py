"""The encoders and heads by name; an entry is imported when it is first asked for."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from channels.registry import Registry

if TYPE_CHECKING:
    from torch import nn

ENCODERS: Registry[Callable[..., nn.Module]] = Registry(
    "encoder",
    {
        "dcgan": "semcom.models.encoders:dcgan",
        "dcgan-wide": "semcom.models.encoders:dcgan_wide",
        "dcgan-narrow": "semcom.models.encoders:dcgan_narrow",
        "dcgan-deep": "semcom.models.encoders:dcgan_deep",
        "cnn": "semcom.models.encoders:cnn",
        "cnn-dropout": "semcom.models.encoders:cnn_dropout",
        "conv4": "semcom.models.encoders:conv4",
        "resnet18": "semcom.models.resnet:resnet18",
        "resnet34": "semcom.models.resnet:resnet34",
        "mobilenet": "semcom.models.mobilenet:mobilenet",
    },
)
"""Semantic encoders: name -> function of (input channels, feature dimension)."""

HEADS: Registry[Callable[..., nn.Module]] = Registry(
    "head", {"linear": "semcom.models.heads:linear", "mlp": "semcom.models.heads:mlp"}
)
"""Semantic decoders: name -> function of (feature dimension, classes)."""
