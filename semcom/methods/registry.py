"""The methods by name; an entry is imported when it is first asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from channels.registry import Registry

if TYPE_CHECKING:
    from semcom.methods.base import Method

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
    base="semcom.methods.base:Method",
    options="Hyper",
)
"""Training methods: name -> subclass of `semcom.methods.base.Method`."""
