"""The methods by name. An entry is imported on first use."""

from __future__ import annotations

from typing import TYPE_CHECKING

from semcom.channels.registry import Registry

if TYPE_CHECKING:
    from semcom.methods.base import Method

METHODS: Registry[type[Method]] = Registry(
    "method",
    {
        "local": "semcom.methods.local:Local",
        "fedavg": "semcom.methods.fedavg:FedAvg",
        "fedprox": "semcom.methods.fedprox:FedProx",
        "moon": "semcom.methods.moon:Moon",
        "scaffold": "semcom.methods.scaffold:Scaffold",
        "feddyn": "semcom.methods.feddyn:FedDyn",
        "fedavg_ft": "semcom.methods.fedavg_ft:FedAvgFT",
        "fedprox_ft": "semcom.methods.fedprox_ft:FedProxFT",
        "perfedavg": "semcom.methods.perfedavg:PerFedAvg",
        "ditto": "semcom.methods.ditto:Ditto",
        "pfedme": "semcom.methods.pfedme:PFedMe",
        "apfl": "semcom.methods.apfl:APFL",
        "fedamp": "semcom.methods.fedamp:FedAMP",
        "fedala": "semcom.methods.fedala:FedALA",
        "fedbn": "semcom.methods.fedbn:FedBN",
        "feddbe": "semcom.methods.feddbe:FedDBE",
        "fedrod": "semcom.methods.fedrod:FedRoD",
        "fedper": "semcom.methods.fedper:FedPer",
        "fedrep": "semcom.methods.fedrep:FedRep",
        "fedbabu": "semcom.methods.fedbabu:FedBABU",
        "repper": "semcom.methods.repper:RepPer",
        "lg_fedavg": "semcom.methods.lg_fedavg:LGFedAvg",
        "fedgh": "semcom.methods.fedgh:FedGH",
        "fedcl": "semcom.methods.fedcl:FedCL",
        "fedproto": "semcom.methods.fedproto:FedProto",
        "fedpac": "semcom.methods.fedpac:FedPAC",
        "fedcrc": "semcom.methods.fedcrc:FedCRC",
        "fedcrl": "semcom.methods.fedcrl:FedCRL",
        "fedcosr": "semcom.methods.fedcosr:FedCoSR",
    },
    base="semcom.methods.base:Method",
    options="Hyper",
    beside={"digital-chain": "semcom.methods.digital_chain:DigitalChain"},
)
"""Training methods: name -> subclass of `semcom.methods.base.Method`. Beside them a baseline without training.

In the order of docs/methods.md: no sharing, one model for all, that and a last step or a second model of each client,
personal heads, personal encoders, prototypes and centroids.
"""
