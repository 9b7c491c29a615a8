"""The registries of what a user may add to semcom; an entry is imported when it is first asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from channels.registry import Registry
from semcom.config import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import nn

    from semcom.data.datasets import Dataset
    from semcom.methods.base import Method

T = TypeVar("T")


def find(registry: Registry[T], name: str) -> T:
    """The entry called `name`; a name that is not known is a ConfigError, in the registry's own words."""
    try:
        return registry.get(name)
    except ValueError as error:
        raise ConfigError(str(error)) from None


METHODS: Registry[type[Method]] = Registry(
    "method",
    {
        "fedcl": "semcom.methods.fedcl:FedCL",
        "fedavg": "semcom.methods.fedavg:FedAvg",
        "fedavg_ft": "semcom.methods.fedavg_ft:FedAvgFT",
        "fedprox": "semcom.methods.fedprox:FedProx",
        "fedprox_ft": "semcom.methods.fedprox_ft:FedProxFT",
        "ditto": "semcom.methods.ditto:Ditto",
        "fedper": "semcom.methods.fedper:FedPer",
        "fedrep": "semcom.methods.fedrep:FedRep",
        "lg_fedavg": "semcom.methods.lg_fedavg:LGFedAvg",
        "fedbabu": "semcom.methods.fedbabu:FedBABU",
        "fedproto": "semcom.methods.fedproto:FedProto",
        "fedamp": "semcom.methods.fedamp:FedAMP",
        "fedala": "semcom.methods.fedala:FedALA",
        "fedgh": "semcom.methods.fedgh:FedGH",
        "fedcrc": "semcom.methods.fedcrc:FedCRC",
        "local": "semcom.methods.local:Local",
        "fedpac": "semcom.methods.fedpac:FedPAC",
        "repper": "semcom.methods.repper:RepPer",
        "moon": "semcom.methods.moon:Moon",
        "perfedavg": "semcom.methods.perfedavg:PerFedAvg",
        "pfedme": "semcom.methods.pfedme:PFedMe",
        "fedcosr": "semcom.methods.fedcosr:FedCoSR",
        "fedcrl": "semcom.methods.fedcrl:FedCRL",
    },
)
"""Training methods: name -> subclass of `semcom.methods.base.Method`."""

DATASETS: Registry[Callable[[str | None], Dataset]] = Registry(
    "dataset",
    {
        "digits": "semcom.data.datasets:digits",
        "cifar10": "semcom.data.datasets:cifar10",
        "mnist": "semcom.data.datasets:mnist",
    },
)
"""Datasets: name -> function of the data root that loads one."""

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
